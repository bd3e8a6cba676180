"""The tokens that begin and end a text, and the one of what has no token."""

from ..kernels import lib
from .pieces import CONTROL, END_MARKS, KEY, UNKNOWN, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

NONE = 0xFFFFFFFF  # a key of an id says that there is none
NAMES = ("bos", "eos", "eot", "eom")


def named(file: "File", n_vocab: int, name: str) -> int | None:
    """The id that the key of `name` in a gguf.File names; None where the key is absent, -1 where it
    says that there is none. DataError.
    """
    key = f"{name}_token_id"
    value = file.get(KEY + key, "u32", None)
    if value is None or value == NONE:
        return None if value is None else -1
    if value >= n_vocab:
        raise wrong(file, key, f"{value} is not below the vocabulary size {n_vocab}")
    return value


def choose(file: "File", index: "Any", of_keys: "Any", begins: bool) -> "tuple[Any, ...]":
    """(bos, eos, eog, unknown, add_bos, add_eos) of a gguf.File: tokens or None, but eog, a
    frozenset of tokens, and add_*, bool. Sets the unknown id of `index` (a C vocab *, its texts
    entered).

    of_keys: what `named` says of NAMES. begins: whether the begin id is put first where the file
    does not say. Where a key is absent, 1, 2 and 0 are tried, as is custom with SentencePiece.
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


def _unknown(file, index):
    """The unknown id, or None where bytes write what has no token."""
    unknown = named(file, index.n_vocab, "unknown")
    index.unknown = unknown = 0 if unknown is None else unknown
    has_bytes = index.has_bytes or index.model == lib.VOCAB_BYTES
    if not has_bytes and (unknown < 0 or index.piece[unknown].kind != UNKNOWN):
        raise wrong(
            file,
            "unknown_token_id",
            "not a token of type unknown, and there are no byte tokens either: "
            "not every text has tokens",
        )
    return None if has_bytes else unknown


def _added(file, bos, eos, begins):
    """(add_bos, add_eos): whether a text gets the begin id, the end id."""
    add_bos = file.get(KEY + "add_bos_token", "bool", begins and bos is not None)
    add_eos = file.get(KEY + "add_eos_token", "bool", False)
    for name, add, i in (("bos", add_bos, bos), ("eos", add_eos, eos)):
        if add and i is None:
            raise wrong(file, f"{name}_token_id", f"there is none, but add_{name}_token is true")
    return add_bos, add_eos
