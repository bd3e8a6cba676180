"""Fast start of `classify --long` without click, for mail filters that run a process per message.

Importing click takes a quarter of the run time. commands/classify.py calls `run` before that
import. `run` knows a few options, each written as a word and its value as the next word. On any
other word, an invalid value or a further value of an option it returns, and click parses the
command line and reports the error.
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
    "--explain-header": "explain",
}
VALUES = {
    "-q": "asked",
    "--question": "asked",
    "-m": "model",
    "--model": "model",
    "--cache": "cache_dir",
    "--calibration": "calibration_file",
    "-j": "threads",
    "--threads": "threads",
    "--rules": "rules",
    "--client": "client",
    "--learned-in": "learned_in",
    "--learned-by": "learned_by",
    "--authserv-id": "authserv_ids",
}


def run(argv: list[str]) -> None:
    """Classify stdin and end the process if `argv` has only known options; else return.

    argv: the words after the command's name.
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
    """Parse `argv` into keyword arguments of Setup; None if click must parse it."""
    found: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        value = next(words, "-") if word in VALUES else True
        name = FLAGS.get(word) or VALUES.get(word)
        if not name or value is not True and (not value or value.startswith("-")):
            return None
        if value is not True and name in found and name != "authserv_ids":
            return None
        found[name] = [*found.get(name, ()), value] if name == "authserv_ids" else value
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


def _answer(explain=False, **options):
    """Print the line of --long; return the exit status."""
    from .. import stream
    from . import further_words
    from .setup import Setup

    setup = Setup(**options)
    q = setup.question()
    data = setup.read_input([q])
    c = setup.classifier(q)
    v = c.ask(data)
    stream.write_all(1, further_words.line(c, v, data, explain, v.answer))
    return c.status(v)
