"""A llama2.c checkpoint and its tokenizer.bin as a gguf.File, for the kernels."""

from .. import gguf
from ..faults import unsupported_error
from . import tokenizer_bin
from . import write as gguf_write
from .llama2c import HEADER_BYTES, VERSIONED, read_config
from .metadata import ARRAY, ARRAY_HEAD, KIND_NAMES, Array


class Checkpoint(gguf.File):
    """The checkpoint at `path` with the tokenizer.bin `vocab`, as a gguf.File.

    Versions 0 and 1 only: the kernels use their f32 where it lies in the map. UnsupportedError
    for other versions names the command that converts them. DataError.

    The ID covers both files, so a stream of tokens of another vocabulary is refused.
    """

    kind = "a llama2.c"

    def __init__(self, path: str, vocab: str, huge_pages: bool = False) -> None:
        self._vocab_path = vocab
        super().__init__(path, huge_pages=huge_pages)

    def _parse(self, cursor):
        cursor.need(min(self.size, VERSIONED.size), "header")
        head = bytes(cursor.memory[: min(self.size, VERSIONED.size)])
        c = read_config(self.path, head, self.size)
        if c.version not in (0, 1):
            raise unsupported_error(
                self.path,
                f"version: llama2.c checkpoint {c.version} is not run as it is; convert it with"
                " gguf-convert",
            )
        self.version, self.alignment, self._config = c.version, 4, head
        part = self.parts[0]
        part.data_offset = HEADER_BYTES[c.version]
        self._vocab_bytes = tokenizer_bin.vocab_bytes(self._vocab_path)
        vocab = tokenizer_bin.vocab_metadata(
            *tokenizer_bin.parse_vocab(self._vocab_path, self._vocab_bytes, c.vocab_size)
        )
        self.metadata, self.kinds = {}, {}
        for key, (kind, value) in {**c.metadata(), **vocab}.items():
            self.metadata[key], self.kinds[key] = _as_read(kind, value)
        self.tensors = {
            name: gguf.Tensor(name, 0, c.shape(role), at, n, part)
            for name, role, at, n in c.parts()[0]
            if name != "rope"
        }

    def _earlier_head(self):
        texts = (self.metadata[f"tokenizer.ggml.{k}"].raw for k in ("tokens", "scores"))
        return b"llama2.c\0" + self._config + b"".join(texts)

    def _identify(self):
        from . import identity

        return identity.of(self.parts, self.id_cache, [self._vocab_bytes])


def _as_read(kind, value):
    """Return (value, type number) in the form of metadata.parse_metadata."""
    if not kind.startswith("["):
        return value, KIND_NAMES.index(kind)
    return (
        Array(
            KIND_NAMES.index(kind[1:-1]),
            len(value),
            gguf_write.value(kind, value)[ARRAY_HEAD.size :],
        ),
        ARRAY,
    )
