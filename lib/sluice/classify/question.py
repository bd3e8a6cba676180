"""A question: what a model is asked about a text, and what it may answer. A YAML file
(configs/*.yaml):

    model: spam.gguf              # optional: a file next to this one, or in the package's data
    input:
      kind: mail                  # mail: a message; text: the bytes are the text
      fold: true                  # optional: the text as mail.normalize.fold() gives it
      head_ids: 384               # of a longer text the first 384 tokens
      tail_ids: 128               # and the last 128 are read
    frame: auto                   # optional: chat template; auto, or a name of templates.py
    prompt:                       # segments, each encoded alone and joined as tokens
      - special: "<s>"            # a control token, by its text
      - text: "Is this spam?"     # text, never a control token
      - input                     # once
    answers:                      # label -> spellings, what the model may write for it
      yes: ["yes"]
      no: ["no"]
    tokenisations: all            # optional: all ways to write a spelling in tokens; canonical: the
                                  # tokenizer's alone
    thresholds: {yes: 0.9}        # optional: a best label less probable than this is unsure
    calibration:                  # optional: p ~ exp(scale * log P + bias)
      scale: 1.0
      bias: {yes: 0.0}

A model's name without a "/" is also looked for in the package's data folder.
Every key is checked; one that is not known is refused, so that a misspelt threshold is not a
threshold of 0.
"""

import os

from .. import stream
from ..faults import NO_INPUT, Error, data_error, printable
from ..kernels import lib
from . import templates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# of the package: configs/ and data/ lie there
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHIPPED, DATA = os.path.join(HERE, "configs"), os.path.join(HERE, "data")
MAX_BYTES = 64 << 10  # of the file
MAX_IDS = 1 << 17  # of the head or tail
MAX_ANSWERS = MAX_SPELLINGS = 64
MAX_SPELLING_BYTES = 256
UNSURE = "unsure"
SUFFIX = ".question"  # of a parsed question in a cache
MAX_KEPT = 64  # parsed questions a cache keeps


class Question:
    """Fields as in the file: path, model (or None), kind, fold, head_ids, tail_ids, frame (or
    None), prompt [(kind, text)], answers {name: [spelling]}, tokenisations, thresholds {name:
    float} and bias {name: float} for every answer, scale.
    """

    model: "Any"
    head_ids: int
    tail_ids: int

    def __init__(self, tree: "Any", path: str) -> None:
        self.path = path
        top = self._dict(
            tree,
            "",
            ("input", "prompt", "answers"),
            ("model", "frame", "tokenisations", "thresholds", "calibration"),
        )
        self.model = self._string(top, "model", 1000) if "model" in top else None
        self.frame = (
            self._choice(top, "frame", (templates.AUTO, *templates.FRAMES))
            if "frame" in top
            else None
        )
        self.tokenisations = (
            self._choice(top, "tokenisations", ("all", "canonical"))
            if "tokenisations" in top
            else "all"
        )
        self._read_input(top["input"])
        self._read_prompt(top["prompt"])
        self._read_answers(top["answers"])
        self.thresholds = self._per_answer(top.get("thresholds", {}), "thresholds", 0, 1)
        calibration = self._dict(top.get("calibration", {}), "calibration", (), ("scale", "bias"))
        self.scale = self._number(calibration.get("scale", 1.0), "calibration.scale", 1e-3, 1e3)
        self.bias = self._per_answer(calibration.get("bias", {}), "calibration.bias", -1e3, 1e3)

    def _read_input(self, value):
        value = self._dict(value, "input", ("kind", "head_ids", "tail_ids"), ("fold",))
        self.kind = self._choice(value, "kind", ("mail", "text"), "input.")
        self.fold = value.get("fold", False)
        if not isinstance(self.fold, bool):
            raise self._data_error("input.fold", "is not true or false")
        for key in ("head_ids", "tail_ids"):
            n = value[key]
            if type(n) is not int or not 0 <= n <= MAX_IDS:
                raise self._data_error(
                    f"input.{key}", f"is not a number of tokens from 0 to {MAX_IDS}"
                )
            setattr(self, key, n)
        if not self.head_ids + self.tail_ids:
            raise self._data_error(
                "input", "head_ids and tail_ids are both 0: nothing would be read"
            )

    def _read_prompt(self, value):
        self.prompt = []
        for i, segment in enumerate(self._list(value, "prompt")):
            where = f"prompt, segment {i + 1}"
            if segment == "input":
                self.prompt.append(("input", ""))
                continue
            if not (
                isinstance(segment, dict)
                and len(segment) == 1
                and set(segment) <= {"special", "text"}
            ):
                raise self._data_error(where, "is none of: input, {special: ...}, {text: ...}")
            kind, text = next(iter(segment.items()))
            self.prompt.append((kind, self._text(text, where, MAX_BYTES)))
        n = sum(kind == "input" for kind, _ in self.prompt)
        if n != 1:
            raise self._data_error("prompt", f"the segment input is there {n} times, not once")

    def _read_answers(self, value):
        if not isinstance(value, dict) or not 2 <= len(value) <= MAX_ANSWERS:
            raise self._data_error(
                "answers", f"is not a mapping of 2 to {MAX_ANSWERS} answers to their spellings"
            )
        self.answers, seen = {}, {}
        for name, spellings in value.items():
            where = f"answers.{name}" if name.isprintable() else f"answers.{printable(name)}"
            if (
                not name
                or not name.isprintable()
                or " " in name
                or len(name) > 80
                or name == UNSURE
            ):
                raise self._data_error(
                    "answers",
                    f"{printable(name)} is not a word that can be printed, or is the word {UNSURE}",
                )
            for s in self._list(spellings, where, MAX_SPELLINGS):
                self._text(s, where, MAX_SPELLING_BYTES)
                if s in seen:
                    raise self._data_error(
                        where, f"the spelling {printable(s)} is there twice, also as {seen[s]}"
                    )
                seen[s] = name
            self.answers[name] = list(spellings)

    # Kinds of values.

    def _data_error(self, where, what):
        return data_error(self.path, f"{where}: {what}" if where else what)

    def _dict(self, value, where, needed, optional):
        if not isinstance(value, dict):
            raise self._data_error(where, "is not a mapping of keys to values")
        for key in value:
            if key not in needed and key not in optional:
                raise self._data_error(
                    where,
                    f"there is no key {printable(key)}; known: {', '.join((*needed, *optional))}",
                )
        for key in needed:
            if key not in value:
                raise self._data_error(where, f"the key {key} is missing")
        return value

    def _list(self, value, where, most=1000):
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self._data_error(where, f"is not a list of 1 to {most}")
        return value

    def _text(self, value, where, most):
        if not isinstance(value, str) or not value:
            raise self._data_error(
                where,
                "is not a text, or empty (a number or true, if it is meant as text, stands in"
                " quotes)",
            )
        try:
            n_bytes = len(value.encode())
        except UnicodeEncodeError:
            raise self._data_error(
                where, "has half of a surrogate pair, which is no character"
            ) from None
        if n_bytes > most:
            raise self._data_error(where, f"more than {most} bytes")
        return value

    def _string(self, tree, key, most):
        value = self._text(tree[key], key, most)
        if "\0" in value:
            raise self._data_error(key, "has a NUL")
        return value

    def _choice(self, tree, key, choices, prefix=""):
        if not isinstance(tree[key], str) or tree[key] not in choices:
            raise self._data_error(prefix + key, f"is none of {', '.join(choices)}")
        return tree[key]

    def _number(self, value, where, least, most):
        if type(value) not in (int, float) or not least <= value <= most:  # NaN is neither
            raise self._data_error(where, f"is not a number from {least} to {most}")
        return float(value)

    def _per_answer(self, value, where, least, most):
        value = self._dict(value, where, (), tuple(self.answers))
        return {
            name: self._number(value.get(name, 0.0), f"{where}.{name}", least, most)
            for name in self.answers
        }


def find(name: str) -> str:
    """The path of a question: `name` itself if it has a slash or ends in .yaml, else that of the
    shipped one of this name.
    """
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return name
    shipped = sorted(f[:-5] for f in os.listdir(SHIPPED) if f.endswith(".yaml"))
    if name not in shipped:
        raise Error(
            NO_INPUT,
            f"-q {printable(name)}: none of the shipped questions, {', '.join(shipped)}; a file has"
            " a / or ends in .yaml",
        )
    return os.path.join(SHIPPED, name + ".yaml")


def model_path(question: "Question") -> str:
    """Where the model is that a question names: beside the question, else, if it is a name alone,
    in the package's data folder.
    """
    beside = os.path.join(os.path.dirname(question.path), question.model)
    shipped = os.path.join(DATA, question.model)
    return (
        shipped
        if os.sep not in question.model and os.path.exists(shipped) and not os.path.exists(beside)
        else beside
    )


def read(path: str, cache_dir: str | None = None) -> "Question":
    """The Question in the file `path`. DataError naming file and key, OSError.

    With cache_dir the parsed file is kept there beside its text, under its CRC: reading YAML takes
    longer than a small model's answer. It is taken for the same text only, and checked like a file;
    whatever hinders keeping it is no matter. What is parsed of shipped questions is shipped
    (`ship`).
    """
    data = stream.read_file(path, MAX_BYTES)
    kept = cache_dir and _kept_name(cache_dir, data)
    for name, is_ours in ((_kept_name(DATA, data), True), (kept, False)):
        try:
            if name:
                return Question(_recall(name, data, is_ours), path)
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            Error,
        ):  # absent, damaged, not to be trusted
            pass
    from .. import yamlfile

    tree = yamlfile.parse(data, path)
    question = Question(tree, path)
    if kept:
        try:
            _keep(kept, data, tree)
        except (OSError, Error):
            pass
    return question


def _kept_name(cache_dir, data):
    return os.path.join(cache_dir, f"{lib.crc32c(0, data, len(data)):08x}{SUFFIX}")


def _checksum(data):
    """The first line of a kept question: CRC-32C of the rest."""
    return b"%08x\n" % lib.crc32c(0, data, len(data))


def _recall(path, data, is_ours):
    """The parsed file `data` as it was kept at `path`, in a cache or (is_ours) in the package."""
    with open(path if is_ours else _trusted(path), "rb") as f:
        checksum, data_kept = f.read(9), f.read(16 * MAX_BYTES)
    import json

    if checksum != _checksum(data_kept):
        raise ValueError("damaged")
    text, tree = json.loads(data_kept)
    if text.encode() != data:
        raise ValueError("of another file")
    return tree


def _trusted(path):
    from ..system import cache_directory, files

    cache_directory.check(os.path.dirname(path))
    return files.open_trusted(path)


def _packed(data, tree):
    """A parsed file as it is kept, as bytes."""
    import json

    kept = json.dumps([data.decode(), tree]).encode()
    return _checksum(kept) + kept


def _keep(path, data, tree):
    from ..system import cache_directory, files

    cache_directory.prepare(os.path.dirname(path))
    cache_directory.trim(os.path.dirname(path), SUFFIX, MAX_KEPT)
    fd, temporary = files.nameless(os.path.dirname(path))
    with open(fd, "wb") as f:
        f.write(_packed(data, tree))
        f.flush()
        files.publish(fd, temporary, path)


def ship(directory: str = DATA) -> None:
    """Write what is parsed of each shipped question into `directory`, and nothing else of the
    kind.
    """
    from .. import yamlfile
    from ..system import files

    for name in os.listdir(directory):
        if name.endswith(SUFFIX):
            os.unlink(os.path.join(directory, name))
    for name in sorted(os.listdir(SHIPPED)):
        if name.endswith(".yaml"):
            with open(os.path.join(SHIPPED, name), "rb") as f:
                data = f.read()
            packed = _packed(data, yamlfile.parse(data, name))
            files.write(_kept_name(directory, data), lambda f: f.write(packed))
