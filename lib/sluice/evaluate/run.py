"""Run `classify --evaluate`: options, models, texts, report, page."""

from __future__ import annotations

import contextlib
import os

from .. import stream
from ..classify import report
from ..classify.setup import Setup
from ..faults import Error, data_error, unsupported_error
from ..jsonl import dump
from ..question.question import Question, find
from ..texts.labelled import Labelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..classify.classifier import Classifier
    from ..cli.progress import Texts

START_BYTES = 16
CALIBRATION, FIT = b"#calibration", b"#fit "


def run(
    setup_with: Callable[..., Setup],
    read: Callable[[Question], Labelled],
    progress: Callable[[Callable[[], int | None]], Texts],
    as_json: bool = False,
    html: str | None = None,
    compared: str | None = None,
    numbers: str | None = None,
) -> None:
    """Evaluate a classifier on labelled texts; print the report.

    setup_with(**changes): the Setup of the command's options, with these arguments changed.
    read(question): the labelled texts. progress: cli.progress.Texts. html: path of the page, or
    None. compared: --compare, or None. numbers: --curve, or None.
    Raises DataError at the end if some texts could not be classified.
    """
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        raise unsupported_error(
            "--evaluate", "numpy is not installed (pip install numpy)"
        ) from None
    from . import collect, page, result, terminal

    sizes = None
    if numbers is not None:
        from . import curve

        sizes = curve.sizes(numbers)
    setups = [setup_with()]
    if compared is not None:
        setups.append(setup_with(**changes(compared)))
    questions = [setup.question() for setup in setups]
    for other in questions[1:]:
        collect.same_answers(questions[0], other)
    labelled = read(questions[0])
    if sizes and labelled.n is not None:  # else when all are classified
        curve.check(sizes, labelled.n)
    if html is not None:
        page.check(html, [*labelled.paths, *([compared] if compared else [])])
    panels = []
    for setup, q in zip(setups, questions):
        setup.as_mail |= labelled.are_messages
        panels.append(setup.panel([q]))
    points = None
    with contextlib.ExitStack() as stack:
        collector = None
        if sizes:
            collector = stack.enter_context(curve.Collector(panels[0].first))
        with progress(lambda: labelled.n) as bar:
            see = collector.see if collector else None
            found = collect.collect(panels, labelled, bar.say, bar.advance, see)
        if collector and sizes:
            with progress(lambda: curve.DRAWS * len(sizes)) as bar:
                points = collector.curve(sizes, bar.say, bar.advance)
    classifiers = [panel.first for panel in panels]
    labels = _labels(classifiers, compared)
    systems = [_system(c, label) for c, label in zip(classifiers, labels)]
    r = result.Result(list(questions[0].answers), systems, found, points)
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
        if start.startswith(FIT):
            return {"fit_path": compared, "no_calibration": False}
    elif compared.endswith(".gguf"):
        return {"model": compared}  # opening it says why there is none
    try:
        find(compared)
    except Error:
        # the text of a question, if the first one was given with --answers; else it is refused
        return {"asked": compared}
    return {"asked": compared, "answers": None}


def _labels(classifiers, compared):
    """What tells the classifiers apart: the names of their questions, models or calibrations."""
    questions = [c.question.name for c in classifiers]
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

    learned = c.learned.section(c.model.file) if c.learned else None
    calibration = report.learned_by(learned, list(c.question.answers)) if learned else None
    if not learned and c.fitted:
        calibration = {"fit": c.fitted.digest, "labels": c.fitted.n, "taken": c.fitted.taken}
    return result.System(
        label,
        c.question.name,
        os.path.basename(c.model.file.path),
        c.model.file.id[:8].hex(),
        c.question.thresholds,
        calibration,
    )
