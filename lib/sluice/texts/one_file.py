"""A file that holds one text, or many: what it is, by its name and first bytes.

A file that is no text, or a table of them, is refused with the option that was meant.
"""

import os
import stat

from ..faults import data_error
from . import inputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BINARY_LOOK = 8192  # bytes at the beginning that show whether a file is text
# what other files than text begin with
SIGNATURES = (
    (b"\x7fELF", "a program"),
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive, or a document that is one"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"GGUF", "a model"),
    (b"SQLite format 3\x00", "a database"),
)


def open_path(path: str) -> int:
    """A descriptor of the file at `path`, which may be a pipe. OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)


def opened(
    path: str,
    is_mail: bool,
    as_text: bool = False,
    as_mbox: bool = False,
    open_file: "Callable[[str], int]" = open_path,
) -> int:
    """A descriptor of a file that holds text. OSError; DataError that names the option for what
    else it holds.
    """
    fd = open_file(path)
    try:
        if not as_text and stat.S_ISREG(os.fstat(fd).st_mode):
            if why := _other(path, os.pread(fd, BINARY_LOOK, 0), is_mail or as_mbox):
                raise data_error(path, why)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_one(path: str, is_mail: bool, as_text: bool = False) -> bytes:
    """The text of the file at `path`, at most what inputs.read keeps. DataError if it is empty or
    no text; OSError.
    """
    fd = opened(path, is_mail, as_text)
    try:
        data = inputs.read(fd, is_mail)
    finally:
        os.close(fd)
    if not data:
        raise data_error(path, "no text: the input is empty")
    return data


def called(path: str) -> str:
    """What messages call the file at `path`, or stdin ("-")."""
    return "standard input" if path == "-" else path


def _other(path, start, is_mail):
    """Why the file `path`, which begins with `start`, would not be classified as what it is; or
    None.
    """
    name = path.lower()
    insist = "; --text reads it as one text"
    if name.endswith((".csv", ".tsv")):
        return f"is a table: --csv COLUMN reads its rows{insist}"
    if name.endswith((".jsonl", ".ndjson")):
        return f"is JSON lines: --jsonl reads its objects{insist}"
    for signature, what in SIGNATURES:
        if start.startswith(signature):
            return f"is {what}, not text{insist}"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"is UTF-16: iconv -f UTF-16 -t UTF-8 makes text of it{insist}"
    if b"\0" in start[:512] and not (is_mail and b":" in start.partition(b"\0")[0]):
        return f"is binary, not text{insist}"
    return None


def holds_messages(fd: int) -> bool:
    """Whether `fd` is of an mbox file with more than one message."""
    if not stat.S_ISREG(os.fstat(fd).st_mode) or os.pread(fd, 5, 0) != b"From ":
        return False
    from . import mbox

    at = 0

    def read_some() -> bytes:
        nonlocal at
        data = os.pread(fd, 1 << 20, at)
        at += len(data)
        return data

    return mbox.is_mbox(read_some)


def file_holds_messages(path: str) -> bool:
    """Whether there is an mbox file with more than one message at `path`. Raises nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would take its writer's data
            return False
        fd = open_path(path)
    except (OSError, ValueError):  # reading it says why
        return False
    try:
        return holds_messages(fd)
    except OSError:
        return False
    finally:
        os.close(fd)
