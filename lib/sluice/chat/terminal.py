"""Terminal input and output of a chat: lines typed or piped, escaped output, and Ctrl-C.

Python's readline edits lines: UTF-8, history, and a paste of several lines as one message. It
supports dumb terminals. If stdin or stdout is not a terminal, lines are read without editing.
"""

import os
import signal
import stat
import sys

from .. import jsonl, stream
from ..faults import NO_OUTPUT, Error, data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Controls of writing direction, which make text look like other text; tags and annotations, which
# make it invisible.
HIDDEN = [
    0x61C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
]
ESCAPES = {c: f"^{chr(c ^ 64)}" for c in [*range(32), 127] if c not in b"\t\n"}
ESCAPES.update({c: f"\\x{c:02x}" for c in range(128, 160)})
ESCAPES.update({c: chr(c).encode("unicode_escape").decode() for c in HIDDEN})


def harmless(data: bytes) -> bytes:
    """Escape a model's text (whole UTF-8 characters) so that it cannot control a terminal.

    Control characters except tab and newline become ^[ or \\x9b, invalid UTF-8 becomes \\xff.
    """
    return data.decode("utf-8", "backslashreplace").translate(ESCAPES).encode()


def show(data: bytes) -> None:
    """Write a part of an answer to stdout; to a terminal with escapes."""
    stream.write_all(1, harmless(data) if os.isatty(1) else data)


class Interrupt:
    """Within `with`, Ctrl-C sets a flag; calling the object returns it.

    The third Ctrl-C before `clear` raises KeyboardInterrupt.
    """

    PATIENCE = 2

    def __init__(self) -> None:
        self.clear()

    def __call__(self) -> bool:
        return self._n > 0

    def clear(self) -> None:
        """Reset the flag."""
        self._n = 0

    def __enter__(self) -> "Interrupt":
        self._before = signal.signal(signal.SIGINT, self._count)
        return self

    def _count(self, number, frame):
        self._n += 1
        if self._n > self.PATIENCE:
            raise KeyboardInterrupt

    def __exit__(self, *exception: "Any") -> None:
        signal.signal(signal.SIGINT, self._before)


def typed(prompt: "Callable[[], str]", history: str | None = None) -> "Iterator[bytes]":
    """Yield the messages typed at a terminal, as bytes, until Ctrl-D. Ctrl-C discards the line.

    prompt: returns what is printed before a line. history: file for the lines, or None.
    """
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    edited = os.isatty(1)
    readline = _editor(history) if edited else None
    while True:
        try:
            line = _line(prompt(), edited)
        except EOFError:
            stream.write_all(1 if edited else 2, b"\n")
            return
        except KeyboardInterrupt:
            stream.write_all(1 if edited else 2, b"\n")
            continue
        if line.strip():
            if history and readline:
                readline.append_history_file(1, history)
            yield line.encode("utf-8", "surrogateescape").rstrip(b"\n")


def _line(prompt, edited):
    """Read a typed line. Raises KeyboardInterrupt for Ctrl-C, EOFError for Ctrl-D."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if edited:
            return input(prompt)
        stream.write_all(2, prompt.encode())
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line
    finally:
        signal.signal(signal.SIGINT, before)


def _editor(history):
    """Return the readline module with the lines of the file `history`; None if it is missing."""
    if history:
        _private(history)
    try:
        import readline
    except ImportError:
        return None
    if os.environ.get("TERM", "dumb") != "dumb":
        readline.parse_and_bind("set enable-bracketed-paste on")
    readline.parse_and_bind("tab: self-insert")
    if history:
        readline.read_history_file(history)
    return readline


def _private(path):
    """Create the history file, or check that only its owner, this user, can read it.

    Raises Error 73, or OSError.
    """
    try:
        fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    except OSError as e:
        raise Error(NO_OUTPUT, f"{path}: cannot keep a history there: {e.strerror}") from None
    s = os.fstat(fd)
    os.close(fd)
    if not stat.S_ISREG(s.st_mode) or s.st_uid != os.geteuid() or s.st_mode & 0o077:
        raise Error(
            NO_OUTPUT,
            f"{path}: cannot keep a history there: it must be a regular file of yours, with mode"
            " 0600",
        )


def summary(figures: "dict[str, Any]") -> str:
    """Return the line about an answer. figures: those of conversation.Conversation."""
    f = figures
    speed = lambda n, s: f"{n / max(s, 1e-6):.1f}/s"
    end = f["end"] + ", within a character, which is dropped" * (f["open"] > 0)
    forced = f", {f['forced']} of them forced" if f.get("forced") else ""
    return (
        f"prompt: {f['new']} of {f['prompt']} tokens processed, {speed(f['new'], f['prompt_s'])};"
        f" generated: {f['tokens']} tokens{forced}, {speed(f['tokens'], f['s'])} ({end});"
        f" context: {f['used']} of {f['context']} in use"
    )


def piped() -> "Iterator[bytes]":
    """Yield the messages on stdin, one per line, as bytes, without empty lines.

    Raises DataError for a line that is too long.
    """
    for line in jsonl.lines(0):
        if line is None:
            raise data_error(
                "standard input", f"a line is longer than {jsonl.MAX_LINE_BYTES >> 20} MiB"
            )
        if line.strip():
            yield line.rstrip(b"\r")
