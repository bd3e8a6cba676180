"""A model file of any sort the tools run: a GGUF, or a checkpoint of llama2.c with its vocabulary
beside it.
"""

from .. import gguf
from ..faults import BAD_DATA, USAGE, Error
from .cursor import read_begin


def open_model(path: str, vocab: str | None = None, huge_pages: bool = False) -> "gguf.File":
    """A gguf.File, or with `vocab`, the path of a tokenizer.bin, the llama2.c checkpoint at `path`,
    which looks like one. huge_pages: see gguf.File.
    """
    if vocab is None:
        try:
            return gguf.File(path, huge_pages=huge_pages)
        except Error as e:
            from . import llama2c

            if e.code == BAD_DATA and llama2c.looks_like(path):
                raise Error(
                    USAGE,
                    f"{path}: a checkpoint of llama2.c: give its vocabulary too, --vocab"
                    " tokenizer.bin",
                ) from None
            raise
    from .llama2c_checkpoint import Checkpoint

    try:
        return Checkpoint(path, vocab, huge_pages)
    except Error as e:
        if e.code == BAD_DATA and begins_as_gguf(path):
            raise Error(
                USAGE, f"{path}: a GGUF, which has its vocabulary inside: without --vocab"
            ) from None
        raise


def begins_as_gguf(path: str) -> bool:
    return read_begin(path, 4) == b"GGUF"
