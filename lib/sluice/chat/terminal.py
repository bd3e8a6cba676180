"""The user's end of a chat: lines that are typed or piped, an answer that is shown without harm,
and Ctrl-C.

Lines are edited by readline, which Python brings: UTF-8, history, and a paste of several lines as
one message. It knows dumb terminals. Where stdin or stdout is no terminal, lines are read as they
come.
"""

import os
import signal
import stat
import sys

from .. import jsonl, stream
from ..faults import NO_OUTPUT, Error, data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Controls of direction, with which text looks like something else, and tags and notes, with which
# it is there and not seen.
HIDING = [
    0x61C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
]
SHOWN = {c: f"^{chr(c ^ 64)}" for c in [*range(32), 127] if c not in b"\t\n"}
SHOWN.update({c: f"\\x{c:02x}" for c in range(128, 160)})
SHOWN.update({c: chr(c).encode("unicode_escape").decode() for c in HIDING})


def harmless(data: bytes) -> bytes:
    """Text from a model (bytes, whole UTF-8 characters) as bytes that a terminal only shows:
    control characters but tab and newline as ^[ or \\x9b, what is not UTF-8 as \\xff.
    """
    return data.decode("utf-8", "backslashreplace").translate(SHOWN).encode()


def show(data: bytes) -> None:
    """Write an answer's text to stdout: as it is, or to a terminal harmlessly."""
    stream.write_all(1, harmless(data) if os.isatty(1) else data)


class Interrupt:
    """Within `with`, Ctrl-C sets a flag that calling this asks for; the third one before `clear` is
    as everywhere.
    """

    PATIENCE = 2

    def __init__(self) -> None:
        self.clear()

    def __call__(self) -> bool:
        return self._n > 0

    def clear(self) -> None:
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


def typed(prompt: str, history: str | None = None) -> "Iterator[bytes]":
    """The messages that are typed at a terminal (bytes), each after `prompt`, to Ctrl-D. Ctrl-C
    throws the line away.
    """
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    edited = os.isatty(1)
    readline = _editor(history) if edited else None
    while True:
        try:
            line = _line(prompt, edited)
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
    """One line that is typed, KeyboardInterrupt for Ctrl-C, EOFError for Ctrl-D."""
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
    """The readline module, set up, with what is in the file `history`; None where Python is without
    it.
    """
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
    """Make the file of a history, or see that it is a file that nobody else can read. Error 73;
    OSError.
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
            f"{path}: is not a file of ours that nobody else can read (mode 0600): no history is"
            " kept there",
        )


def summary(figures: "dict[str, Any]") -> str:
    """The line about an answer, of conversation.Conversation's figures."""
    f = figures
    speed = lambda n, s: f"{n} at {n / max(s, 1e-6):.1f}/s"
    end = f["end"] + ", in a character: its begin is not written" * (f["open"] > 0)
    return (
        f"read {speed(f['new'], f['prompt_s'])} of {f['prompt']}, "
        f"wrote {speed(f['ids'], f['s'])} ({end}), {f['used']} of {f['context']} in use"
    )


def piped() -> "Iterator[bytes]":
    """The messages on stdin, which is no terminal: one a line (bytes), empty lines left out."""
    for line in jsonl.lines(0):
        if line is None:
            raise data_error(
                "standard input", f"a line is longer than {jsonl.MAX_LINE_BYTES >> 20} MiB"
            )
        if line.strip():
            yield line.rstrip(b"\r")
