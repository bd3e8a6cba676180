"""Kept logits file format: logits of a model over a text, for comparison with another model.

`perplexity --save-logits` writes it. Little-endian. A header, the tokens of the text, then a row
for each scored token (evaluate.py):

    offset  type    field
         0  u8[6]   magic, "KLBASE"
         6  u16     version, 1
         8  u32     n_vocab
        12  i32     BOS token, -1: none
        16  u32     n_ctx
        20  u32     stride
        24  u32     n_count: scored tokens of a window
        28  u32     n_window
        32  u32     n_tokens
        36  u32     zero
        40  u8[32]  model ID
        72  u8[32]  vocabulary: SHA-256 of the tokens, each u64 n_bytes and the bytes
       104  u8[20]  zero
       124  u32     CRC32C of the 124 bytes before
       128  i32 [n_tokens], u32 CRC32C of them
            n_window * n_count rows, each with its checksum (csrc/sampling/score.c)

The header determines the size of the file; any other size is an error. The file contains the text,
so its mode is 0600.
"""

from __future__ import annotations

import os
import stat
import struct
from array import array
from collections import namedtuple

from ..faults import data_error, unsupported_error
from ..gguf import write as gguf_write
from ..kernels import ffi, lib
from ..limits import MAX_CAPACITY, MAX_VOCAB
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ..gguf import File
    from .evaluate import Windows

    T = TypeVar("T")

MAGIC, VERSION = b"KLBASE", 1
HEADER = struct.Struct("<6sHIi5II32s32s20s")
CRC = struct.Struct("<I")
MAX_TOKENS = 1 << 24  # of a text
Header = namedtuple(
    "Header",
    "magic version n_vocab bos n_ctx stride n_count n_window n_tokens zero model vocab pad",
)


def vocab_id(file: File) -> bytes:
    """Return the SHA-256 (bytes) of the tokens of a gguf.File."""
    import hashlib

    return hashlib.sha256(file.get("tokenizer.ggml.tokens", "[string]").raw).digest()


def file_bytes(n_vocab: int, n_tokens: int, n_window: int, n_count: int) -> int:
    """Return the size of a file in bytes."""
    return (
        HEADER.size
        + CRC.size
        + 4 * n_tokens
        + CRC.size
        + n_window * n_count * lib.kept_row_bytes(n_vocab)
    )


def head(file: File, n_vocab: int, windows: Windows) -> bytes:
    """Return the bytes before the rows, for a gguf.File and evaluate.Windows."""
    w = windows
    bos = -1 if w.bos is None else w.bos
    h = HEADER.pack(
        MAGIC,
        VERSION,
        n_vocab,
        bos,
        w.n_ctx,
        w.stride,
        w.n_count,
        w.n_window,
        len(w.tokens),
        0,
        file.id,
        vocab_id(file),
        bytes(20),
    )
    tokens = w.tokens.tobytes()
    return h + CRC.pack(_crc(h)) + tokens + CRC.pack(_crc(tokens))


def write(
    path: str, file: File, n_vocab: int, windows: Windows, run: Callable[[Callable[[Any], Any]], T]
) -> T:
    """Write the file `path`. Return the result of `run`, which is called with a function that
    writes rows (a buffer).

    Error 73, 74 or 75, and `path` stays as it was; 75 at once if the disk is too full.
    """
    result = []

    def fill(f):
        f.write(head(file, n_vocab, windows))
        result.append(run(f.write))

    gguf_write.check_disk_space(
        path, file_bytes(n_vocab, len(windows.tokens), windows.n_window, windows.n_count)
    )
    files.write(path, fill, 0o600)
    return result[0]


def _crc(data):
    return lib.crc32c(0, ffi.from_buffer("uint8_t[]", data), len(data))


class Base:
    """An open file of kept logits, its header and tokens checked. `rows` reads the rows in
    order.

    h: Header. tokens: array of i32. Error 65 or 69.
    """

    def __init__(self, path: str) -> None:
        self.path, self._fd, self._n_read = path, None, 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        s = os.fstat(self._fd)
        if not stat.S_ISREG(s.st_mode):
            raise data_error(path, "not a regular file")
        raw = os.read(self._fd, HEADER.size + CRC.size)
        if not raw.startswith(MAGIC):
            raise data_error(
                path,
                "does not begin with KLBASE: not a file of perplexity --save-logits"
                if raw
                else "is empty",
            )
        if len(raw) < HEADER.size + CRC.size:
            raise data_error(path, f"header cut at byte {len(raw)}")
        self.h = h = Header(*HEADER.unpack_from(raw))
        if h.version != VERSION:
            raise unsupported_error(path, f"version {h.version}; this build reads {VERSION}")
        if CRC.unpack_from(raw, HEADER.size)[0] != _crc(raw[: HEADER.size]):
            raise data_error(path, "header: its checksum is wrong")
        self._check(s.st_size)
        self.tokens = array("i")
        tokens = self._read(4 * h.n_tokens + CRC.size, "tokens")
        if CRC.unpack(tokens[-CRC.size :])[0] != _crc(tokens[: -CRC.size]):
            raise data_error(path, "tokens: the checksum is wrong")
        self.tokens.frombytes(tokens[: -CRC.size])
        if max(self.tokens) >= h.n_vocab or min(self.tokens) < 0:
            raise data_error(path, f"tokens: one is not below the vocabulary size {h.n_vocab}")

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def _check(self, size):
        h = self.h
        if not (0 < h.n_vocab <= MAX_VOCAB and -1 <= h.bos < h.n_vocab):
            raise data_error(
                self.path, f"header: n_vocab {h.n_vocab} or BOS token {h.bos} is out of range"
            )
        if (
            not (
                0 < h.n_count < h.n_ctx <= min(h.n_tokens, MAX_CAPACITY)
                and h.n_tokens <= MAX_TOKENS
                and h.n_window > 0
                and (
                    h.n_count == h.stride
                    or (h.stride, h.n_count) == (h.n_ctx, h.n_ctx - h.n_ctx // 2 - 1)
                )
                and (h.n_window - 1) * h.stride + h.n_ctx <= h.n_tokens
            )
            or h.zero
            or any(h.pad)
        ):
            raise data_error(self.path, "header: its windows do not fit its tokens")
        expected = file_bytes(h.n_vocab, h.n_tokens, h.n_window, h.n_count)
        if size != expected:
            raise data_error(self.path, f"{size} bytes, but its header means {expected}")

    def _read(self, n_bytes, label):
        data = bytearray(n_bytes)
        view, n = memoryview(data), 0
        while n < n_bytes:
            part = os.readv(self._fd, [view[n:]])
            if not part:
                raise data_error(self.path, f"{label}: the file became shorter while it was read")
            n += part
        return view

    def rows(self, n: int) -> memoryview:
        """Return the next `n` rows (a memoryview), checked. DataError."""
        label = f"rows from {self._n_read}"
        rows = self._read(n * lib.kept_row_bytes(self.h.n_vocab), label)
        wrong = lib.first_bad_kept(ffi.from_buffer("uint8_t[]", rows), n, self.h.n_vocab)
        if wrong >= 0:
            raise data_error(
                self.path,
                f"row {self._n_read + wrong}: its checksum, its top token or its step is wrong",
            )
        self._n_read += n
        return rows
