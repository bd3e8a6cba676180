"""Mailboxes in the mbox formats, split into messages while they are read.

A message begins with a line `From SENDER DATE` that is the first of the file or stands behind an
empty line (RFC 4155; the same rule reads mboxo, mboxrd and mboxcl). The date is asked for because
texts contain lines such as "From here on". Lines that a writer has quoted with ">" stay as they
are. Of a message that is longer than `limit` the rest is read past, so memory is bounded whatever
comes.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FROM = b"From "
MAX_FROM_LINE = 512  # bytes: a longer line does not begin a message

# "From user@host  Thu Nov 26 10:00:00 2026", with a time zone before or behind the year, without
# seconds or with a sender that has blanks; `hg` and old MTAs write all of these
DATED = re.compile(
    rb"From .*?\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +"
    rb"((Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +[0-9]{1,2}"
    rb"|[0-9]{1,2} +(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec))\b"
    rb".*?\b[0-9]{1,2}:[0-9]{2}"
)


class Message:
    """data: its bytes without the line that begins it and the empty line behind it, at most the
    limit; n_bytes: of all of it, with these; from_line: the line that begins it, with its end, or
    b"".
    """

    __slots__ = ("data", "from_line", "n_bytes")

    def __init__(self, data: bytes, from_line: bytes, n_bytes: int) -> None:
        self.data, self.from_line, self.n_bytes = data, from_line, n_bytes


def messages(
    read_some: "Callable[[], bytes]",
    limit: int,
    copy: "Callable[[], Callable[[bytes], object]] | None" = None,
) -> "Iterator[Message]":
    """Yield the Messages of an mbox, in order. read_some(): its next bytes, b"" at the end.

    limit: bytes of a message that are kept. copy(): called as each message begins, returns a
    function that is given all its bytes piece by piece, the line that begins it among them.
    """
    message = _Open(limit, copy)
    for piece, begins in _pieces(read_some):
        if begins and message.n_bytes:
            yield message.close()
            message = _Open(limit, copy)
        message.add(piece)
    if message.n_bytes:
        yield message.close()


def is_mbox(read_some: "Callable[[], bytes]") -> bool:
    """Whether a file begins with a line `From ` and has a further message: if not, it is one text
    or one message. Reads as far as it must.
    """
    start = b""
    for piece, begins in _pieces(read_some):
        if begins:
            return True
        if len(start) < len(FROM):
            start += piece
            if not FROM.startswith(start[: len(FROM)]):
                return False
    return False


class _Open:
    """A message that is being read."""

    def __init__(self, limit, copy):
        self._limit, self._kept, self.n_bytes = limit, [], 0
        self._n_kept = 0
        self._copy = copy and copy()

    def add(self, piece):
        if self._copy:
            self._copy(bytes(piece))
        self.n_bytes += len(piece)
        left = self._limit + MAX_FROM_LINE - self._n_kept
        if left > 0:
            self._kept.append(bytes(piece[:left]))
            self._n_kept += len(self._kept[-1])

    def close(self):
        data, from_line = b"".join(self._kept), b""
        if data.startswith(FROM):
            from_line = data[: data.find(b"\n", 0, MAX_FROM_LINE) + 1]
            data = data[len(from_line) :]
        if self._n_kept == self.n_bytes:  # the empty line behind it is the format's
            for end in (b"\r\n\r\n", b"\n\n"):
                if data.endswith(end):
                    data = data[: -len(end) // 2]
                    break
        return Message(data[: self._limit], from_line, self.n_bytes)


def _pieces(read_some):
    """Yield (bytes, whether a further message begins with them) of all that is read."""
    data, begin, begins, is_end = b"", 0, False, False
    while not is_end:
        chunk = read_some()
        is_end = not chunk
        data += chunk
        # a line that may begin a message is looked at when all of it is there
        safe = len(data) if is_end else max(begin, len(data) - MAX_FROM_LINE)
        at = max(0, begin - 1)
        while (at := data.find(b"\n" + FROM, at, safe + 5)) >= 0:
            at += 1
            if at >= begin and _begins_message(data, at):
                if at > begin:
                    yield data[begin:at], begins
                begin, begins = at, True
        if safe > begin:
            yield data[begin:safe], begins
            begin, begins = safe, False
        # the end of the line before, and of the empty one, may matter to the next
        data, begin = data[max(0, begin - 3) :], min(begin, 3)


def _begins_message(data, at):
    """Whether the line of data[at:], which begins with "From ", begins a message."""
    if not data.endswith((b"\n\n", b"\n\r\n"), max(0, at - 3), at):
        return False
    end = data.find(b"\n", at, at + MAX_FROM_LINE)
    return end >= 0 and DATED.match(data, at, end) is not None
