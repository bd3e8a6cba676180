"""Special tokens of a vocabulary: BOS, EOS, EOG, the unknown token, and those never sampled."""

from ..kernels import lib
from .pieces import CONTROL, END_MARKS, KEY, UNKNOWN, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

NONE = 0xFFFFFFFF  # stored as a token ID: the vocabulary has no such token
NAMES = ("bos", "eos", "eot", "eom")


def named(file: "File", n_vocab: int, name: str) -> int | None:
    """Return the token that the key of `name` in a gguf.File names.

    None if the key is absent, -1 if it says that there is no such token. DataError.
    """
    key = f"{name}_token_id"
    value = file.get(KEY + key, "u32", None)
    if value is None or value == NONE:
        return None if value is None else -1
    if value >= n_vocab:
        raise wrong(file, key, f"{value} is not below the vocabulary size {n_vocab}")
    return value


def choose(file: "File", index: "Any", of_keys: "Any", begins: bool) -> "tuple[Any, ...]":
    """Return (bos, eos, eog, unknown, add_bos, add_eos) of a gguf.File.

    bos, eos and unknown are tokens or None, eog is a frozenset of tokens, add_* are bool. Sets
    the unknown token of `index` (a C vocab * with its texts entered). of_keys: results of
    `named` for NAMES. begins: whether BOS is added if the file does not say so. If a key is
    absent, 1, 2 and 0 are tried for BOS, EOS and unknown, as is usual with SentencePiece.
    """
    is_control = lambda i: (
        index.model == lib.VOCAB_SPM and i < index.n_vocab and index.piece[i].kind == CONTROL
    )
    defaults = [1 if is_control(1) else -1, 2 if is_control(2) else -1, -1, -1]
    tokens = [default if i is None else i for i, default in zip(of_keys, defaults)]
    bos, eos = (i if i >= 0 else None for i in tokens[:2])
    marks = (lib.vocab_find(index, m, len(m), 1 << CONTROL) for m in END_MARKS)
    eog = frozenset(i for i in (*tokens[1:], *marks) if i >= 0)
    return bos, eos, eog, _unknown(file, index), *_added(file, bos, eos, begins)


def suppressed(file: "File", n_vocab: int) -> frozenset[int]:
    """Return the tokens of a gguf.File that are never sampled (`suppress_tokens`). DataError."""
    stored = file.get(KEY + "suppress_tokens", "[i32]", None)
    tokens = stored.values() if stored else []
    for i in tokens:
        if not 0 <= i < n_vocab:
            raise wrong(file, "suppress_tokens", f"{i} is not a token of {n_vocab}")
    return frozenset(tokens)


def _unknown(file, index):
    """Return the unknown token, or None if bytes stand for text without a token."""
    unknown = named(file, index.n_vocab, "unknown")
    index.unknown = unknown = 0 if unknown is None else unknown
    has_bytes = index.has_bytes or index.model == lib.VOCAB_BYTES
    if not has_bytes and (unknown < 0 or index.piece[unknown].kind != UNKNOWN):
        raise wrong(
            file,
            "unknown_token_id",
            "not a token of type unknown, and there are no byte tokens: "
            "some texts would have no tokens",
        )
    return None if has_bytes else unknown


def _added(file, bos, eos, begins):
    """Return (add_bos, add_eos): whether a text gets BOS, and EOS."""
    add_bos = file.get(KEY + "add_bos_token", "bool", begins and bos is not None)
    add_eos = file.get(KEY + "add_eos_token", "bool", False)
    for name, add, i in (("bos", add_bos, bos), ("eos", add_eos, eos)):
        if add and i is None:
            raise wrong(file, f"{name}_token_id", f"names no token, but add_{name}_token is true")
    return add_bos, add_eos
