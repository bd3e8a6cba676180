"""SentencePiece vocabularies: rules about spaces, and BPE by score (csrc/tokenizer/spm.c).

Gemma 4 uses the same algorithm with a list of merges (bpe.py).
"""

from ..faults import unsupported_error
from ..kernels import ffi, lib
from .pieces import KEY, new_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

SPACE = "\u2581".encode()


def refuse_other_rules(file: "File") -> None:
    """UnsupportedError if a gguf.File needs text processing that this build lacks."""
    if file.get(KEY + "treat_whitespace_as_suffix", "bool", False):
        raise unsupported_error(file.path, f"{KEY}treat_whitespace_as_suffix")
    charsmap = file.metadata.get(KEY + "precompiled_charsmap")
    n = getattr(charsmap, "n", 1)
    if charsmap is not None and n:
        raise unsupported_error(
            file.path,
            f"{KEY}precompiled_charsmap: text normalization other than identity",
        )


def choose_spaces(file: "File", index: "Any") -> tuple[bool, bool]:
    """Set the rule of `index` (a C vocab *) for the space before a text from a gguf.File.

    Returns (add_prefix, remove_extra), bool; both False for vocabularies other than
    SentencePiece.
    """
    flag = lambda name, default: (
        index.model == lib.VOCAB_SPM and file.get(KEY + name, "bool", default)
    )
    index.add_prefix = add_prefix = flag("add_space_prefix", True)
    return add_prefix, flag("remove_extra_whitespaces", False)


def encode(
    index: "Any", source: "Any", n_bytes: int, user: int, prefix: bool, remove_extra: bool
) -> list[int]:
    """Return the tokens (list of int) of a text, `source` (uint8_t *) [n_bytes].

    user: the sets of user defined pieces that text may become. prefix: put a space before the
    text. remove_extra: replace several spaces by one, and remove those at the ends.
    """
    text = new_raw("uint8_t[]", 3 * n_bytes + 3)
    n_bytes = lib.spm_normalize(text, index, user, source, n_bytes, prefix, remove_extra)
    n = lib.spm_longest(index, user, text, n_bytes)
    tokens = new_raw("int32_t[]", n_bytes + 1)
    split = new_raw("uint32_t[]", index.n_vocab) if index.has_unused else ffi.NULL
    symbols, pairs = new_raw("merge_symbol[]", n), new_raw("merge_pair[]", 2 * n)
    n_tokens = lib.spm_encode(tokens, text, n_bytes, index, user, symbols, pairs, split)
    return ffi.unpack(tokens, n_tokens)
