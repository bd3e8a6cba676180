"""Open a model file: a GGUF, or a llama2.c checkpoint with its tokenizer.bin."""

from .. import gguf
from ..faults import BAD_DATA, USAGE, Error
from .cursor import read_start


def open_model(path: str, vocab: str | None = None, huge_pages: bool = False) -> "gguf.File":
    """Open the model at `path`. Return a gguf.File.

    vocab: the path of a tokenizer.bin; `path` is then a llama2.c checkpoint. huge_pages: see
    gguf.File. Error 64 if `vocab` is missing or given in vain.
    """
    if vocab is None:
        try:
            return gguf.File(path, huge_pages=huge_pages)
        except Error as e:
            from . import llama2c

            if e.code == BAD_DATA and llama2c.looks_like(path):
                raise Error(
                    USAGE,
                    f"{path}: is a llama2.c checkpoint; give its vocabulary, too: --vocab"
                    " tokenizer.bin",
                ) from None
            raise
    from .llama2c_checkpoint import Checkpoint

    try:
        return Checkpoint(path, vocab, huge_pages)
    except Error as e:
        if e.code == BAD_DATA and begins_as_gguf(path):
            raise Error(
                USAGE, f"{path}: is a GGUF, which contains its vocabulary; leave out --vocab"
            ) from None
        raise


def begins_as_gguf(path: str) -> bool:
    """Whether the file at `path` begins with the magic of GGUF."""
    return read_start(path, 4) == b"GGUF"
