"""Stream formats between commands: tokens as text, logits as binary records.

Tokens, one token ID per line; an optional second column is the natural logarithm of the token's
probability. Lines that begin with `#` are control lines:

    #ids 1 model=3f9c0a12b4d57e60 vocab=32000
    9707
    1879	-0.0132
    #end stop

The reasons of `#end`:

    stop      the grammar is complete, or an EOG token came
    length    the maximum number of tokens was reached
    full      the KV cache is full
    cut       length or full, and the text is not complete in its grammar
    text      these are the tokens of a text

Logits, little-endian. Header, 32 bytes:

    offset  type    field
         0  u8[6]   magic, "LOGITS"
         6  u16     version, 1
         8  u32     n_vocab
        12  u32     zero
        16  u8[16]  model ID, first half

Records, each with a head of 16 bytes:

         0  u8      type: L dense, C candidates, E end
         1  u8      flags:
                    1 last: every choice completes the text
                    2 full (E only): the KV cache is full
                    4 length (E only): the maximum number of tokens was reached
                    8 constrained: a grammar constrains the text
                    16 may-end: constrained, and the text up to prev is complete
         2  u16     zero
         4  u32     bytes of the payload
         8  u32     pos: position of the token to be chosen
        12  i32     prev: the token before it, -1 before the first
        16          payload. L: f32 [n_vocab]; C: {i32 token, f32 logit}, tokens ascending; E: empty

The pos of an E is larger than that of the record before it if a token was chosen from that record:
its prev, or -1 if the writer cannot know it. Streams of older writers, without flags 8 and 16, have
the same version; older readers refuse these flags.

A stream without its end mark is truncated, which is an error (65): a killed command can never look
like a short answer.
"""

import bisect
import errno
import os
import struct

from .faults import data_error
from .limits import MAX_TEXT_BYTES, MAX_VOCAB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .gguf import File

REASONS = ("stop", "length", "full", "cut", "text")
LAST, FULL, LENGTH, CONSTRAINED, MAY_END = 1, 2, 4, 8, 16
FLAG_WORDS = {
    LAST: "last",
    FULL: "full",
    LENGTH: "length",
    CONSTRAINED: "constrained",
    MAY_END: "may-end",
}
# flags of the E that decode writes after `#end` with this reason
END_FLAGS = {"full": FULL, "length": LENGTH, "cut": LENGTH | CONSTRAINED}
HEADER = struct.Struct("<6sHII16s")
RECORD = struct.Struct("<BBHIIi")
CANDIDATE = struct.Struct("<if")
MAGIC, VERSION = b"LOGITS", 1
MAX_POS = 1 << 31  # so that the next position fits, too
MAX_LINE_BYTES = 256
CHUNK_BYTES = 1 << 16
DRAIN_BYTES = 1 << 24


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all bytes of `data` to `fd`, unbuffered. OSError names the standard stream."""
    view = memoryview(data).cast("B")
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as e:
            raise _named(e, fd) from None


def read_some(fd: int, maximum: int = 1 << 20) -> bytes:
    """Return the bytes available on `fd`, at most `maximum`; b"" at the end of input. OSError
    names the standard stream.
    """
    try:
        return os.read(fd, maximum)
    except OSError as e:
        raise _named(e, fd) from None


def _named(e, fd):
    e.filename = e.filename or {0: "standard input", 1: "standard output"}.get(fd)
    return e


def read_exactly(fd: int, n_bytes: int) -> bytes:
    """Return `n_bytes` bytes from `fd`, fewer only at the end of input."""
    parts = []
    while n_bytes:
        part = read_some(fd, min(n_bytes, 1 << 20))
        if not part:
            break
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


def read_text(fd: int, name: str = "standard input") -> bytes:
    """Return all bytes on `fd`, a text called `name`. DataError: more than MAX_TEXT_BYTES;
    OSError.
    """
    data = read_exactly(fd, MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise data_error(name, f"more than {MAX_TEXT_BYTES >> 20} MiB of text")
    return data


def read_file(path: str, maximum: int) -> bytes:
    """Return the bytes of the file at `path`, of any kind. DataError: a directory, or more than
    `maximum` bytes; OSError.
    """
    try:
        with open(path, "rb") as f:
            data = f.read(maximum + 1)
    except IsADirectoryError:
        raise data_error(path, "is a directory") from None
    if len(data) > maximum:
        raise data_error(
            path,
            f"more than {maximum >> 20} MiB" if maximum >> 20 else f"more than {maximum} bytes",
        )
    return data


# Tokens -----------------------------------------------------------------------


def tokens_header(model_id: bytes, n_vocab: int) -> bytes:
    """Return the first line of a stream of tokens. model_id: bytes [32], or its first half."""
    return b"#ids 1 model=%s vocab=%d\n" % (model_id[:8].hex().encode(), n_vocab)


def tokens_end(reason: str) -> bytes:
    """Return the last line of a stream of tokens. reason: one of REASONS."""
    assert reason in REASONS
    return b"#end %s\n" % reason.encode()


class TokenReader:
    """Reads the tokens on a descriptor as they arrive: iterate, then read `reason`.

    Checks the header against `model` (a gguf.File, or None for any), each token against the
    vocabulary size, and that the stream ends with `#end`. DataError names `name` and the line
    number. Memory: one line and one chunk. start: bytes already read from the descriptor, at
    most a part of the first line.
    """

    def __init__(
        self,
        fd: int,
        model: "File | None" = None,
        n_vocab: int | None = None,
        name: str = "standard input",
        start: bytes = b"",
    ) -> None:
        self.fd, self.name, self.n_line, self.reason = fd, name, 0, None
        # complete lines not yet returned, the next one last; an incomplete line
        self._lines, self._partial = [], start
        fields = self._line().split()
        if fields[:2] != [b"#ids", b"1"]:
            raise self._data_error('does not begin with "#ids 1": not a stream of tokens')
        keys = dict(f.partition(b"=")[::2] for f in fields[2:])
        self.model_hex, vocab = (
            keys.get(b"model", b"").decode("ascii", "replace"),
            keys.get(b"vocab", b""),
        )
        if not (vocab.isdigit() and len(vocab) <= 7 and 0 < int(vocab) <= MAX_VOCAB):
            raise self._data_error("#ids: vocab= is missing or out of range")
        self.n_vocab = int(vocab)
        if len(self.model_hex) != 16 or not set(self.model_hex) <= set("0123456789abcdef"):
            raise self._data_error("#ids: model= is not 16 hexadecimal digits")
        if model is not None and self.model_hex != model.id[:8].hex():
            raise self._data_error(
                f"tokens made with model {self.model_hex}, but {model.path} is {model.id[:8].hex()}"
            )
        if n_vocab is not None and self.n_vocab != n_vocab:
            raise self._data_error(
                f"tokens of a vocabulary of {self.n_vocab}, but the model has {n_vocab}"
            )

    def __iter__(self) -> "Iterator[int]":
        while self.reason is None:
            line = self._line()
            if line.startswith(b"#"):
                word, _, reason = line.partition(b" ")
                if word != b"#end" or reason.decode("ascii", "replace") not in REASONS:
                    raise self._data_error(
                        'control line is not "#end" with a reason of ' + ", ".join(REASONS)
                    )
                self.reason = reason.decode()
                return
            field = line.partition(b"\t")[0]
            if not (field.isdigit() and len(field) <= 7):
                raise self._data_error("not a token ID")
            if int(field) >= self.n_vocab:
                raise self._data_error(
                    f"token {int(field)} is not below the vocabulary size {self.n_vocab}"
                )
            yield int(field)

    def is_waiting(self) -> bool:
        """Whether the next line has not been read yet; a writer flushes its output no later
        than then.
        """
        return not self._lines

    def _line(self):
        """Return the next line without its newline. DataError if input ends before `#end`."""
        while not self._lines:
            chunk = read_some(self.fd, CHUNK_BYTES)
            if not chunk:
                self.n_line += 1
                raise self._data_error(
                    'ends before "#end": the stream was cut' if self.n_line > 1 else "is empty"
                )
            lines = (self._partial + chunk).split(b"\n")
            self._partial = lines.pop()
            if len(self._partial) > MAX_LINE_BYTES:
                self.n_line += 1 + len(lines)
                raise self._data_error("line is too long for a token ID")
            self._lines = lines[::-1]
        self.n_line += 1
        return self._lines.pop()

    def end_is_here(self) -> bool:
        """Whether the next line is `#end` and has already arrived: the last token needs no
        logits.
        """
        return bool(self._lines) and self._lines[-1].startswith(b"#end ")

    def finish(self) -> None:
        """Read to the end of input. DataError if anything follows `#end`."""
        if self._lines or self._partial or read_some(self.fd, 1):
            self.n_line += 1
            raise self._data_error('there is more after "#end": one stream at a time')

    def drain(self) -> None:
        """Read until `#end`, the end of input or DRAIN_BYTES, so that the writer is not
        killed by SIGPIPE.
        """
        n_read = 0
        while n_read < DRAIN_BYTES and not any(line.startswith(b"#end ") for line in self._lines):
            chunk = read_some(self.fd, CHUNK_BYTES)
            if not chunk:
                return
            n_read += len(chunk)
            self._lines = (self._partial + chunk).split(b"\n")
            self._partial = self._lines[-1][-MAX_LINE_BYTES:]

    def _data_error(self, problem):
        return data_error(self.name, f"line {self.n_line}: {problem}")


# Logits ----------------------------------------------------------------------


class Record:
    """One record of a stream of logits.

    kind: b"L", b"C" or b"E". payload: bytes-like, as in the table above.
    """

    __slots__ = ("kind", "flags", "pos", "prev", "payload")

    def __init__(self, kind: bytes, flags: int, pos: int, prev: int, payload: "Any") -> None:
        self.kind, self.flags, self.pos, self.prev, self.payload = kind, flags, pos, prev, payload

    # of a record whose logits are not computed yet: returns it with the tokens of a set
    narrow: "Callable[[Any], Record | None] | None" = None

    @property
    def is_waiting(self) -> bool:
        """Whether the payload needs a pass through the layers first."""
        return False

    def only(self, token: int) -> "Record | None":
        """Return a C record without flags that has the candidate `token` alone; None without it."""
        if self.kind == b"L":
            bits = self.payload[4 * token : 4 * token + 4]
        else:
            tokens = memoryview(self.payload).cast("i")[::2]
            i = bisect.bisect_left(tokens, token)
            if i == len(tokens) or tokens[i] != token:
                return None
            bits = self.payload[8 * i + 4 : 8 * i + 8]
        payload = token.to_bytes(4, "little") + bytes(bits)
        return Record(b"C", 0, self.pos, self.prev, payload)

    def pack(self) -> bytes:
        """Return the record as bytes."""
        return record(self.kind, self.flags, self.pos, self.prev, self.payload)

    @property
    def is_complete(self) -> bool:
        """Whether the text up to `prev` is complete in its grammar, or has no grammar."""
        return not self.flags & CONSTRAINED or bool(self.flags & MAY_END)

    def end_after(self, at_limit: bool) -> str | None:
        """Return the reason of `#end` if the tokens end with the one chosen from this
        record, else None.

        at_limit: it is the last token allowed. None then means: `end_before` of the next
        record has the reason.
        """
        if self.flags & LAST:
            return "stop"
        return "length" if at_limit and not self.flags & CONSTRAINED else None

    def end_before(self) -> str:
        """Return the reason of `#end` if the tokens end before this record: an E, or the
        limit was reached.
        """
        if self.kind == b"E" and not self.flags & (FULL | LENGTH):
            return "stop"
        return "cut" if not self.is_complete else "full" if self.flags & FULL else "length"


def logits_header(model_id: bytes, n_vocab: int) -> bytes:
    """Return the 32-byte header of a stream of logits."""
    return HEADER.pack(MAGIC, VERSION, n_vocab, 0, model_id[:16])


def record(kind: bytes, flags: int, pos: int, prev: int, payload: "Any" = b"") -> bytes:
    """Return one record as bytes; `payload` is bytes-like."""
    return RECORD.pack(kind[0], flags, 0, len(payload), pos, prev) + bytes(payload)


class LogitsReader:
    """Reads the records on a descriptor: iterate; the last one has kind b"E".

    allowed: letters of the kinds accepted, E among them. Checks the header against `model` (a
    gguf.File, or None), sizes, reserved bytes, that candidate tokens ascend and are below
    n_vocab, and that the stream ends with E. DataError names `name` and the record number.
    start: bytes already read from the descriptor, at most a part of the header.
    """

    def __init__(
        self,
        fd: int,
        allowed: bytes = b"LCE",
        model: "File | None" = None,
        name: str = "standard input",
        start: bytes = b"",
    ) -> None:
        self.fd, self.allowed, self.name, self.n_record = fd, allowed, name, 0
        self._is_over = False
        self._constrained = None  # whether L and C records are, known after the first
        head = start + read_exactly(fd, HEADER.size - len(start))
        if len(head) < HEADER.size:
            raise data_error(
                name, "is empty" if not head else f"header cut at byte {len(head)} of {HEADER.size}"
            )
        magic, version, self.n_vocab, zero, self.model_half = HEADER.unpack(head)
        if magic != MAGIC:
            raise data_error(name, "does not begin with LOGITS: not a stream of logits")
        if version != VERSION:
            raise data_error(name, f"logits stream version {version}; this build reads {VERSION}")
        if zero or not 0 < self.n_vocab <= MAX_VOCAB:
            raise data_error(
                name,
                f"logits header: n_vocab {self.n_vocab} is out of range or the reserved field is"
                " not zero",
            )
        if model is not None and self.model_half != model.id[:16]:
            raise data_error(
                name,
                f"logits made with model {self.model_half[:8].hex()}, "
                f"but {model.path} is {model.id[:8].hex()}",
            )

    def __iter__(self) -> "Iterator[Record]":
        while True:
            r = self._record()
            self._is_over = r.kind == b"E"
            yield r
            if self._is_over:
                return

    def finish(self) -> None:
        """After E: DataError if the stream goes on."""
        if self._is_over and read_exactly(self.fd, 1):
            raise data_error(self.name, "there is more after the E record")

    def _record(self):
        head = read_exactly(self.fd, RECORD.size)
        if len(head) < RECORD.size:
            raise self._data_error("the stream was cut: no E record at its end")
        kind, flags, zero, n_bytes, pos, prev = RECORD.unpack(head)
        kind = bytes([kind])
        if kind not in (b"L", b"C", b"E") or kind not in self.allowed:
            raise self._data_error(f"type {kind!r} is not one of {self.allowed.decode()}")
        self._check_flags(kind, flags, zero)
        if pos >= MAX_POS:
            raise self._data_error(f"pos {pos} is not below {MAX_POS}")
        if not -1 <= prev < self.n_vocab:
            raise self._data_error(f"prev {prev} is not a token of this vocabulary")
        fits = {
            b"L": n_bytes == 4 * self.n_vocab,
            b"E": n_bytes == 0,
            b"C": n_bytes % CANDIDATE.size == 0 and 0 < n_bytes <= CANDIDATE.size * self.n_vocab,
        }[kind]
        if not fits:
            raise self._data_error(f"payload of {n_bytes} bytes does not fit type {kind.decode()}")
        payload = read_exactly(self.fd, n_bytes)
        if len(payload) < n_bytes:
            raise self._data_error(f"payload cut at byte {len(payload)} of {n_bytes}")
        if kind == b"C":
            tokens = memoryview(payload).cast("i")[::2].tolist()
            if (
                tokens[0] < 0
                or tokens[-1] >= self.n_vocab
                or any(a >= b for a, b in zip(tokens, tokens[1:]))
            ):
                raise self._data_error("candidate tokens do not ascend below n_vocab")
        self.n_record += 1
        return Record(kind, flags, pos, prev, payload)

    def _check_flags(self, kind, flags, zero):
        if zero or flags & ~(LAST | FULL | LENGTH | CONSTRAINED | MAY_END):
            raise self._data_error("reserved bits are not zero")
        constrained = flags & CONSTRAINED
        if flags & MAY_END and not constrained:
            raise self._data_error("may-end without constrained")
        if kind == b"E":
            if constrained and not flags & (MAY_END | FULL | LENGTH):
                raise self._data_error("ends the text as complete, but without may-end it is not")
        elif self._constrained not in (None, constrained):
            raise self._data_error("constrained unlike the records before it")
        else:
            self._constrained = constrained

    def _data_error(self, problem):
        return data_error(self.name, f"record {self.n_record + 1}: {problem}")


def end_quietly(fd: int, data: bytes) -> None:
    """Write the end mark `data`. It is no error if the reader has gone: it may have requested
    the end.
    """
    try:
        write_all(fd, data)
    except OSError as e:
        if e.errno != errno.EPIPE:
            raise
