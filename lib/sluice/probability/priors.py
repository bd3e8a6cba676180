"""Priors of a model for the answers, found without labels: p' ~ p / prior^strength.

A model prefers some answers whatever the text says. Two ways to learn by how much:

    content-free   the mean p of the answers for inputs without content, CONTENT_FREE
                   (Zhao et al. 2021, contextual calibration)
    texts          the mean p of the answers over the texts at hand, or in a file
                   (Zhou et al. 2023, batch calibration)

`texts` assumes that the answers are about equally frequent among the texts. If one is rare, as
spam may be, it makes that answer too probable; a strength below 1 makes less of it.

A prior is added to the biases of the question's calibration, since p' ~ exp(ln p - strength ln
prior). The log probabilities of the model stay as they are. Means are sums with fsum, which round
once, so they do not depend on the order of the texts.
"""

import os
from math import fsum

from ..faults import USAGE, Error, data_error, printable
from ..kernels import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..classify.classifier import Classifier
    from ..question.question import Question

NONE, CONTENT_FREE, TEXTS = "none", "content-free", "texts"
KINDS = (NONE, CONTENT_FREE, TEXTS)
# "N/A", "[MASK]" and an empty text in Zhao et al.; an empty input is an error here
INPUTS = (b"N/A", b"[MASK]", b" ")
MIN_TEXTS = 8  # the mean over fewer says more about these texts than about the model
MAX_STRENGTH = 4.0
FLOOR = 1e-6  # of a mean: an answer that no text gets is not divided by 0
KIND = "prior"  # of the file of --save-prior


class Asked:
    """A prior as it is asked for. kind: one of KINDS, or "file" with `path`, or "given" with log_p
    [n_answers]. strength: float.
    """

    def __init__(
        self,
        kind: str,
        strength: float = 1.0,
        path: str | None = None,
        log_p: list[float] | None = None,
    ) -> None:
        self.kind, self.strength, self.path, self.log_p = kind, strength, path, log_p


def asked_by(question: "Question", tree: "Any") -> Asked:
    """Check the key `prior` of a question. Raises DataError naming the key at fault."""
    path = question.path
    if not isinstance(tree, dict):
        raise data_error(path, "prior: is not a mapping with kind or log_p, and strength")
    for key in tree:
        if key not in ("kind", "log_p", "strength"):
            raise data_error(
                path, f"prior: there is no key {printable(key)}; use kind, log_p, strength"
            )
    if ("kind" in tree) == ("log_p" in tree):
        raise data_error(path, "prior: give either kind or log_p")
    strength = tree.get("strength", 1.0)
    if not _is_number(strength, 0, MAX_STRENGTH):
        raise data_error(path, f"prior.strength: is not a number from 0 to {MAX_STRENGTH:g}")
    if "kind" in tree:
        if tree["kind"] not in (NONE, CONTENT_FREE):
            raise data_error(
                path,
                f"prior.kind: is none of {NONE}, {CONTENT_FREE}; for that of texts, give --prior"
                " texts, or log_p as --save-prior writes it",
            )
        return Asked(tree["kind"], float(strength))
    log_p = tree["log_p"]
    if not isinstance(log_p, dict) or list(log_p) != list(question.answers):
        known = ", ".join(question.answers)
        raise data_error(path, f"prior.log_p: is not a mapping of every answer, in order: {known}")
    for name, x in log_p.items():
        if not _is_number(x, -1e3, 0):
            raise data_error(path, f"prior.log_p.{name}: is not a number from -1000 to 0")
    return Asked("given", float(strength), log_p=[float(x) for x in log_p.values()])


def parse(word: str, question: "Question") -> Asked:
    """Return what --prior `word` asks for: one of KINDS, or a file. Its strength is the one in the
    question, else 1.
    """
    strength = question.prior.strength if question.prior else 1.0
    return Asked(word, strength) if word in KINDS else Asked("file", strength, path=word)


def of_texts(rows: "Iterable[list[float]]", where: str) -> list[float]:
    """Return ln(mean of p over texts). rows: float [n_texts][n_answers].

    Raises DataError naming `where` if there are fewer than MIN_TEXTS.
    """
    rows = list(rows)
    if len(rows) < MIN_TEXTS:
        raise data_error(
            where,
            f"{len(rows)} text{'s' * (len(rows) != 1)} cannot show a prior: at least {MIN_TEXTS}"
            " are needed; --prior content-free needs none",
        )
    return mean(rows)


def mean(rows: "Iterable[list[float]]") -> list[float]:
    """Return ln(mean of p over `rows`), each at least ln(FLOOR). rows: float [n][n_answers]."""
    rows = list(rows)
    return [lib.sluice_log(max(FLOOR, fsum(column) / len(rows))) for column in zip(*rows)]


def content_free(c: "Classifier") -> list[float]:
    """Return the ln of the mean p for the content-free INPUTS."""
    return mean(list(c.ask(data).scores.values()) for data in INPUTS)


class Prior:
    """A prior in use. log_p [n_answers]: ln of it. base: [scale, *biases] of the question's
    calibration without it.
    """

    def __init__(self, log_p: list[float], base: list[float]) -> None:
        self.log_p, self.base = log_p, base


def apply(c: "Classifier", log_p: list[float], strength: float) -> None:
    """Add a prior to the biases of the question of `c`, which must be a copy of its own."""
    q = c.question
    c.prior = Prior(log_p, [q.scale, *q.bias.values()])
    q.bias = {name: bias - strength * x for (name, bias), x in zip(q.bias.items(), log_p)}


def prepare(c: "Classifier", asked: Asked) -> None:
    """Find the prior that is `asked` for, and apply it to the question of `c`.

    That of the texts to come is not known yet: replay.py finds it. Raises DataError if a file is
    at fault, or OSError.
    """
    if asked.kind in (NONE, TEXTS):
        return
    if asked.kind == CONTENT_FREE:
        log_p = content_free(c)
    elif asked.kind == "file":
        assert asked.path is not None
        log_p = _of_file(c, asked.path)
    else:
        assert asked.log_p is not None
        log_p = asked.log_p
    apply(c, log_p, asked.strength)


def save(path: str, c: "Classifier") -> None:
    """Write the prior in use to the file at `path`. Error 73 or 74."""
    from . import fit_file

    assert c.prior is not None
    fields = {**fit_file.bound_to(c, c.prior.base), "log_p": c.prior.log_p}
    fit_file.write(path, KIND, fields)


def _of_file(c, path):
    """Return the prior saved in the file at `path`, or the one of the texts in it."""
    from . import fit_file

    if fit_file.kind_of(path) is None:
        return of_texts((list(v.scores.values()) for v in _verdicts(c, path)), path)
    fields = fit_file.read(path, KIND)
    fit_file.check_bound(path, fields, c)
    base = [c.question.scale, *c.question.bias.values()]
    if fit_file.numbers(path, fields, "base", len(base)) != base:
        raise data_error(path, "was found with another calibration of the question")
    log_p = fit_file.numbers(path, fields, "log_p", len(base) - 1)
    if not all(x <= 0 for x in log_p):
        raise data_error(path, "log_p: is not ln of probabilities")
    return log_p


def _verdicts(c, path):
    """Yield the Verdicts on the texts in the file or folder at `path`: lines, objects with a text
    if its name ends in .jsonl, messages of an mbox, files. Texts that cannot be read are left out.
    """
    from ..classify import many
    from ..texts import sources

    if os.path.isdir(path) or c.is_mail:
        source: Any = sources.Files([path], c.is_mail)
    elif path.endswith((".jsonl", ".ndjson")):
        source = many._json_items([path], "latin-1" if c.as_mail else "utf-8")
    else:
        source = sources.lines(path, many._open(path))
    for items in source:
        for item in items:
            if isinstance(item.error, OSError):
                raise item.error
        for v in c.ask_many([item.data for item in items if item.data]):
            if not isinstance(v, Error):
                yield v


def check_options(word: str | None, save_path: str | None, is_many: bool, has_state: bool) -> None:
    """Raise Error 64 for options that do not go with --prior or --save-prior."""
    if word == TEXTS and has_state:
        raise Error(USAGE, "--prior texts: reads all texts first, so not with --state")
    if word == TEXTS and not is_many:
        raise Error(USAGE, "--prior texts: needs many texts, as of --each, --csv or a folder")
    if save_path and word in (None, NONE):
        raise Error(USAGE, "--save-prior: needs --prior content-free, texts or a file of texts")


def _is_number(x, minimum, maximum):
    return type(x) in (int, float) and minimum <= x <= maximum  # NaN fails, too
