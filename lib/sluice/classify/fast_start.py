"""`classify --long` as a mail hook starts it, a process a mail: without click, whose loading takes
a quarter of all the time.

commands/classify.py calls `run` before it imports click. Taken are a few of its options, each a
word of its own and its value the next; with any other word in the command line, or a value that is
not as it should be, nothing is done here: click reads them all, and says what is wrong.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAGS = {
    "--long": "long",
    "--mail": "as_mail",
    "--no-cache": "no_cache",
    "--no-calibration": "no_calibration",
}
VALUES = {
    "-q": "asked",
    "--question": "asked",
    "-m": "model",
    "--model": "model",
    "--cache": "cache_dir",
    "--calibration": "learnt_file",
    "-j": "threads",
    "--threads": "threads",
}


def run(argv: list[str]) -> None:
    """Answer the mail or text on stdin and end the process, if `argv` (the words after the
    command's name) is of those options.
    """
    options = parse(argv)
    if options is None:
        return
    try:
        from ..system import descriptors

        descriptors.fill_closed()
        code = _answer(**options)
    except BaseException as e:
        from .. import cli

        code = cli.code_of(e)
    os._exit(code)


def parse(argv: list[str]) -> "dict[str, Any] | None":
    """The options as arguments of Setup, or None where click is needed."""
    found: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        value = next(words, "-") if word in VALUES else True
        name = FLAGS.get(word) or VALUES.get(word)
        if not name or value is not True and (not value or value.startswith("-")):
            return None
        found[name] = value
    threads = found.get("threads")
    if threads is not None:
        if not (
            threads.isascii()
            and threads.isdigit()
            and len(threads) <= 4
            and 1 <= int(threads) <= 1024
        ):
            return None
        found["threads"] = int(threads)
    return found if found.pop("long", False) else None


def _answer(**options):
    """The exit code, after the line."""
    from .. import stream
    from .setup import Setup

    setup = Setup(**options)
    q = setup.question()
    data = setup.read_input(q)
    c = setup.classifier(q)
    v = c.ask(data)
    stream.write_all(1, c.line(v, v.answer))
    return c.status(v)
