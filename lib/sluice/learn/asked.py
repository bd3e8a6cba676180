"""What `classify` does for --learn, --forget, --list-learned and --reset, and what it prints."""

from .. import stream
from ..faults import BAD_DATA, USAGE, Error, Exit
from ..jsonl import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..classify.classifier import Classifier, Verdict
    from ..classify.plan import Texts
    from ..classify.setup import Setup
    from ..cli.progress import Texts as Bar


def path_of(setup: "Setup") -> str:
    """Return the path of the file. Raises Error 64 if there is none."""
    if not setup.calibration_file:
        raise Error(
            USAGE,
            "--learn, --forget, --list-learned, --reset and --auto-learn need a file: give"
            " --calibration FILE (no --no-calibration; a question without a file, or an unset"
            " $HOME, has none)",
        )
    return setup.calibration_file


def one(setup: "Setup", answer: str | None) -> "Callable[[Classifier, bytes], Verdict]":
    """Return a function of a Classifier and an input that learns or forgets it (answer: None)."""
    path = path_of(setup)

    def change(c: "Classifier", data: bytes) -> "Verdict":
        from . import teach

        return teach.one(c, data, path, answer)

    return change


def many(setup: "Setup", texts: "Texts", answer: str | None, as_json: bool, bar: "Bar") -> int:
    """Learn or forget many texts, and print their number. Returns the exit status: 65 if some had
    an error.
    """
    from ..classify import many as sources
    from . import teach

    path = path_of(setup)
    question = setup.question()
    if answer is not None:
        teach.answer_of(question, answer)
    panel = setup.panel([question])
    source = sources.source_of(texts, panel)
    n = teach.many(panel.first, source, path, answer, bar.say, bar.advance)
    if as_json:
        stream.write_all(1, dump(n))
    else:
        stream.write_all(1, _line(n, answer).encode())
    return BAD_DATA if n["errors"] else 0


def _line(n, answer):
    if answer is None:
        return f"forgotten {n['forgotten']}\n"
    return f"learned {n['texts'] - n['errors']} {answer}, {n['new']} new, {n['moved']} moved\n"


def listed(setup: "Setup", as_json: bool) -> None:
    """Print what was learned."""
    from . import listing

    path = path_of(setup)
    found = listing.of(setup.classifier(), path)
    stream.write_all(1, dump(found) if as_json else listing.lines(found))


def emptied(setup: "Setup", as_json: bool) -> None:
    """Empty the file, and print the number of texts that it had."""
    from . import teach

    n = teach.reset(path_of(setup))
    if as_json:
        stream.write_all(1, dump({"forgotten": n}))
    else:
        known = "a damaged file" if n is None else n
        stream.write_all(1, f"forgotten {known}\n".encode())


def at_once(setup: "Setup", reset: bool, as_json: bool) -> None:
    """Do what --reset or --list-learned asks for, and end."""
    (emptied if reset else listed)(setup, as_json)
    raise Exit(0)


def keep(c: "Classifier", verdict: "Any") -> None:
    """Let --auto-learn learn from a Verdict, at once."""
    if c.auto:
        c.auto.note(verdict)
        c.auto.save()
