"""Run `classify --evaluate`: options, models, texts, report, page."""

from __future__ import annotations

import os

from .. import stream
from ..classify.question import Question
from ..classify.setup import Setup
from ..faults import data_error, unsupported_error
from ..jsonl import dump
from ..texts.labelled import Labelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from ..classify.classifier import Classifier

START_BYTES = 16
CALIBRATION = b"#calibration"


def run(
    setup: Setup,
    other: Callable[[dict[str, Any]], Setup],
    read: Callable[[Question], Labelled],
    say: Callable[[str], None],
    shown: Callable[[str, int], AbstractContextManager[Callable[[int], object]]],
    as_json: bool = False,
    html: str | None = None,
    compared: str | None = None,
) -> None:
    """Evaluate the classifier of `setup` on labelled texts; print the report.

    other(changes): the Setup with changed arguments. read(question): the labelled texts. shown: see
    cli.progress. html: path of the page, or None. compared: --compare, or None.
    Raises DataError at the end if some texts could not be classified.
    """
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        raise unsupported_error(
            "--evaluate", "numpy is not installed (pip install numpy)"
        ) from None
    q = setup.question()
    changed = None if compared is None else other(changes(compared))
    other_question = None if changed is None else changed.question()
    labelled = read(q)
    from . import collect, page, result, terminal

    if html is not None:
        page.check(html, [*labelled.paths, *([compared] if compared else [])])

    if other_question:
        collect.same_answers(q, other_question)
    classifiers = [setup.classifier(q)]
    if changed:
        classifiers.append(changed.classifier(other_question))
    with shown("texts", labelled.n or 0) as progress:
        found = collect.collect(classifiers, labelled, say, progress)
    labels = _labels(classifiers, compared)
    systems = [_system(c, label) for c, label in zip(classifiers, labels)]
    r = result.Result(list(q.answers), systems, found)
    if html is not None:
        page.write(html, r)
    report = dump(result.as_json(r)) if as_json else terminal.report(r)
    if isinstance(report, str):  # names of files may have bytes that are not UTF-8
        report = report.encode("utf-8", "surrogateescape")
    stream.write_all(1, report)
    if found.n_bad:
        n = found.n_bad + r.n_texts
        raise data_error("--evaluate", f"{found.n_bad} of {n} texts could not be used; see above")


def changes(compared: str) -> dict[str, Any]:
    """The arguments of Setup that --compare changes: its model, calibration or question."""
    if os.path.isfile(compared):
        with open(compared, "rb") as f:
            start = f.read(START_BYTES)
        if start.startswith(b"GGUF"):
            return {"model": compared}
        if start.startswith(CALIBRATION):
            return {"calibration_file": compared, "no_calibration": False}
    elif compared.endswith(".gguf"):
        return {"model": compared}  # opening it says why there is none
    return {"asked": compared}


def _labels(classifiers, compared):
    """What tells the classifiers apart: the names of their questions, models or calibrations."""
    questions = [_name(c.question.path) for c in classifiers]
    models = [_name(c.model.file.path) for c in classifiers]
    if len(classifiers) == 1:
        return questions
    for names in (questions, models, [questions[0], _name(compared)]):
        if names[0] != names[1]:
            return names
    return ["first", "second"]


def _name(path):
    return os.path.splitext(os.path.basename(path))[0]


def _system(c: Classifier, label: str):
    from . import result

    fit = c.user_calibration and c.user_calibration.fit(c.model.file)
    names = list(c.question.answers)
    calibration = fit and {
        "learnt": fit.n_texts,
        "scale": fit.fitted[0],
        "bias": dict(zip(names, fit.fitted[1:])),
    }
    return result.System(
        label,
        _name(c.question.path),
        os.path.basename(c.model.file.path),
        c.model.file.id[:8].hex(),
        c.question.thresholds,
        calibration,
    )
