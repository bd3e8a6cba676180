"""Where many texts come from: files, folders, mboxes, lines. All are read as they are asked for.

A source yields lists of Items. The Items of a list may be classified together; a list of lines on a
pipe holds those that have arrived, and never waits for more.
"""

import os

from .. import stream
from ..faults import DataError, data_error
from ..jsonl import lines_at_once
from . import folder, inputs, mbox
from .one_file import holds_messages, open_path, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

GROUP, GROUP_BYTES = 64, 1 << 18  # what is held of texts that are classified together
IN_MEMORY = 1 << 20  # bytes of a message that is kept whole: more goes into a file


class Item:
    """A text.

    name: in the output. data: the bytes to classify; None, with `error`, if they cannot be had, and
    without it where a text is missing, such as an empty line. whole: all of it, as bytes, a
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
                        yield from self._of_file(found, folder.open_file)
                    else:
                        yield Item(getattr(found, "filename", None) or path, None, found)
                if not n:
                    yield Item(path, None, data_error(path, "no text: there is no file in it"))
            else:
                yield from self._of_file(path)

    def _of_file(self, path, open_file=open_path):
        try:
            fd = (
                0
                if path == "-"
                else opened(path, self._is_mail, self._as_text, self._as_mbox, open_file)
            )
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
            import tempfile

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
                items.append(Item(at, None, whole=line))
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


def write_whole(whole: "Any", write: "Callable[[bytes], None]") -> None:
    """Write an Item's `whole`."""
    if isinstance(whole, bytes):
        write(whole)
        return
    whole.seek(0)
    while data := whole.read(1 << 20):
        write(data)
