"""Where many texts come from: files, folders, mboxes, lines. All are read as they are asked for.

A source yields lists of Items. The Items of a list may be classified together; a list of lines on a
pipe holds those that have arrived, and never waits for more.
"""

import os
import stat
import tempfile

from .. import stream
from ..classify import inputs
from ..faults import DataError, data_error
from ..jsonl import lines_at_once
from . import folder, mbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

GROUP, GROUP_BYTES = 64, 1 << 18  # what is held of texts that are classified together
IN_MEMORY = 1 << 20  # bytes of a message that is kept whole: more goes into a file
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


class Item:
    """A text.

    name: in the output. data: the bytes to look at; None, with `error`, if there are none, and
    without it for a place between texts that only the output has. whole: all of it, as bytes, a
    file or a row, if the source keeps it. id: of an object in JSON lines.
    """

    __slots__ = ("data", "error", "id", "name", "whole")

    def __init__(
        self,
        name: str,
        data: bytes | None,
        error: Exception | None = None,
        whole: "Any" = None,
        id: "Any" = None,
    ) -> None:
        self.name, self.data, self.error, self.whole, self.id = name, data, error, whole, id

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to classify here, and nothing wrong."""
        return self.data is None and self.error is None


class Files:
    """The texts in files, folders and mboxes.

    paths: of files and folders, "-" for stdin. is_mail: files are messages. recursive: folders
    below those named, too. as_mbox: every file is an mbox. as_text: files are texts, whatever they
    look like. keep: Items of mboxes have `whole`.
    """

    def __init__(
        self,
        paths: "Iterable[str]",
        is_mail: bool,
        recursive: bool = False,
        as_mbox: bool = False,
        as_text: bool = False,
        keep: bool = False,
    ) -> None:
        self._paths, self._is_mail, self._recursive = paths, is_mail, recursive
        self._as_mbox, self._as_text, self._keep = as_mbox, as_text, keep

    def __iter__(self) -> "Iterator[list[Item]]":
        return groups(self._items())

    def _items(self):
        for path in self._paths:
            if path != "-" and os.path.isdir(path):
                n = 0
                for found in folder.paths(path, self._recursive):
                    n += 1
                    if isinstance(found, str):
                        yield from self._of_file(found)
                    else:
                        yield Item(getattr(found, "filename", None) or path, None, found)
                if not n:
                    yield Item(path, None, data_error(path, "there is no file in it"))
            else:
                yield from self._of_file(path)

    def _of_file(self, path):
        try:
            fd = 0 if path == "-" else opened(path, self._is_mail, self._as_text, self._as_mbox)
        except (OSError, DataError) as e:
            yield Item(path, None, e)
            return
        try:
            if self._as_mbox or (path != "-" and not self._as_text and holds_messages(fd)):
                yield from self._of_mbox(path, fd)
            else:
                data = inputs.read(fd, self._is_mail)
                if data:
                    yield Item(path, data)
                else:
                    yield Item(path, None, data_error(path, "no text: it is empty"))
        except OSError as e:
            e.filename = e.filename or path
            yield Item(path, None, e)
        finally:
            if fd:
                os.close(fd)

    def _of_mbox(self, path, fd):
        kept: list[Any] = []

        def copy():
            kept.append(tempfile.SpooledTemporaryFile(IN_MEMORY))
            return kept[-1].write

        read_some = lambda: stream.read_some(fd)
        found = mbox.messages(read_some, inputs.MAIL_BYTES, copy if self._keep else None)
        for n, message in enumerate(found, 1):
            whole = kept.pop(0) if self._keep else None
            yield Item(f"{path}:{n}", message.data, whole=whole)


def lines(name: str, fd: int) -> "Iterator[list[Item]]":
    """Every line on a descriptor as an Item `name`:N, with the line as `whole`."""
    n = 0
    for arrived in lines_at_once(fd):
        items = []
        for line in arrived:
            n += 1
            at = f"{name}:{n}"
            if line is None:
                items.append(Item(at, None, data_error(at, "the line is too long")))
            elif not line.removesuffix(b"\r"):
                items.append(Item(at, None, data_error(at, "no text: it is empty"), line))
            else:
                items.append(Item(at, line.removesuffix(b"\r"), whole=line))
        yield from groups(items)


def groups(items: "Iterable[Item]") -> "Iterator[list[Item]]":
    """`items` in lists of at most GROUP, and of GROUP_BYTES or one."""
    some: list[Item] = []
    n_bytes = 0
    for item in items:
        n = len(item.data or b"")
        if some and (n_bytes + n > GROUP_BYTES or len(some) == GROUP):
            yield some
            some, n_bytes = [], 0
        some.append(item)
        n_bytes += n
    if some:
        yield some


def opened(path: str, is_mail: bool, as_text: bool = False, as_mbox: bool = False) -> int:
    """A descriptor of a file that holds text. OSError; DataError that names the option for what
    else it holds.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not as_text and stat.S_ISREG(os.fstat(fd).st_mode):
            if why := _other(path, os.pread(fd, BINARY_LOOK, 0), is_mail or as_mbox):
                raise data_error(path, why)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _other(path, start, is_mail):
    """Why the file `path`, which begins with `start`, would not be classified as what it is; or
    None.
    """
    name = path.lower()
    insist = "; --text classifies it as one text"
    if name.endswith((".csv", ".tsv")):
        return f"is a table: --csv COLUMN classifies its rows{insist}"
    if name.endswith((".jsonl", ".ndjson")):
        return f"is JSON lines: --jsonl classifies its objects{insist}"
    for signature, what in SIGNATURES:
        if start.startswith(signature):
            return f"is {what}, not text{insist}"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"is UTF-16: iconv -f UTF-16 -t UTF-8 makes text of it{insist}"
    if b"\0" in start[:512] and not (is_mail and b":" in start.partition(b"\0")[0]):
        return f"is binary, not text{insist}"
    return None


def holds_messages(fd: int) -> bool:
    """Whether a descriptor, at its beginning, is of an mbox file with more than one message."""
    if not stat.S_ISREG(os.fstat(fd).st_mode) or os.pread(fd, 5, 0) != b"From ":
        return False
    at = 0

    def read_some() -> bytes:
        nonlocal at
        data = os.pread(fd, 1 << 20, at)
        at += len(data)
        return data

    return mbox.is_mbox(read_some)


def write_whole(whole: "Any", write: "Callable[[bytes], None]") -> None:
    """Write an Item's `whole`."""
    if isinstance(whole, bytes):
        write(whole)
        return
    whole.seek(0)
    while data := whole.read(1 << 20):
        write(data)
