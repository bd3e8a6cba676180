"""Text and JSON of snapshots and streams for gguf-dump."""

import os
from heapq import nlargest

from ..faults import data_error
from ..kvcache.format import (
    FIELDS,
    KV_TYPES,
    Geometry,
    Layout,
    check_extent,
    misfit,
    read_header,
)
from ..limits import MAX_CAPACITY, MAX_VOCAB
from ..stream import CANDIDATE, FLAG_WORDS, LogitsReader, TokenReader
from .metadata import F32
from .printing import json_number, number, put, put_json
from .tensor import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..stream import Record

N_BEST = 5
TOKENS_PER_LINE = 10
MAX_LAYERS, MAX_ROW_ELEMENTS = 4096, 1 << 24


def best_text(best: "Iterable[tuple[float, int]]") -> str:
    """The most probable tokens as text: token ID and logit, by descending logit."""
    return "  ".join(f"{i} {number(x, F32)}" for x, i in best)


def best_of(pairs: "Iterable[tuple[int, float]]", n: int = N_BEST) -> list[tuple[float, int]]:
    """Return (logit, token) of the `n` largest logits in `pairs` of (token, logit).

    Equal logits are sorted by ascending token. NaN is left out.
    """
    return [(x, -i) for x, i in nlargest(n, ((x, -i) for i, x in pairs if x == x))]


# Snapshots -----------------------------------------------------------------------


class SnapshotFile:
    """The printed parts of a snapshot file. DataError names the file and the field."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        self.header = h = read_header(fd, name)
        for field, minimum, maximum in (
            ("n_layer", 1, MAX_LAYERS),
            ("n_head_kv", 1, MAX_ROW_ELEMENTS),
            ("head_dim", 1, MAX_ROW_ELEMENTS),
            ("n_vocab", 1, MAX_VOCAB),
            ("capacity", 1, MAX_CAPACITY),
            ("n_tok", 1, h["capacity"]),
        ):
            if not minimum <= h[field] <= maximum:
                raise data_error(name, f"{field} is {h[field]}, not {minimum} to {maximum}")
        if h["kv_type"] not in KV_TYPES.values():
            raise data_error(
                name,
                f"kv_type {h['kv_type']} is not one of {', '.join(map(str, KV_TYPES.values()))}",
            )
        self.geometry = Geometry(*(h[f] for f in Geometry._fields))
        if problem := misfit(self.geometry):
            raise data_error(name, problem)
        self.layout = Layout(self.geometry, h["capacity"])
        check_extent(h, name, self.layout, os.fstat(fd).st_size)

    def _read(self, form, n, offset):
        data = os.pread(self.fd, 4 * n, offset)
        if len(data) < 4 * n:
            raise data_error(self.name, "became shorter while it was read")
        return memoryview(data).cast(form)

    def tokens(self, n: int) -> list[int]:
        return self._read("i", n, self.layout.ids_offset).tolist()

    def logits(self) -> list[float]:
        return self._read("f", self.header["n_vocab"], self.layout.logits_offset)

    def check(self) -> None:
        """Verify every checksum, and that tokens are below the vocabulary size. DataError."""
        from ..kvcache.snapshot import Snapshot

        Snapshot.open(
            self.name, self.header["model_id"], self.header["arithmetic"], self.geometry
        ).close()


def _heads(h: "dict[str, Any]") -> str:
    """Return "2 x 32", or "2 x 32, 1 x 64" if layers differ, in the order of the layers."""
    widths = h["widths"] or [(h["n_head_kv"], h["head_dim"])]
    return ", ".join(f"{n_head} x {head_dim}" for n_head, head_dim in dict.fromkeys(widths))


def dump_snapshot(snapshot: "SnapshotFile", full: bool, as_json: bool) -> None:
    """Print a snapshot: header, tokens and the largest logits; with `full` all tokens."""
    h, n_tok = snapshot.header, snapshot.header["n_tok"]
    tokens, best = (
        snapshot.tokens(n_tok if full or as_json else min(n_tok, TOKENS_PER_LINE)),
        best_of(enumerate(snapshot.logits())),
    )
    row_bytes = snapshot.layout.token_bytes
    if as_json:
        plain = {
            f: h[f] for f in FIELDS if isinstance(h[f], (int, str)) and f not in ("zero", "flags")
        }
        return put_json(
            {
                "format": "KVSNAP",
                **plain,
                **({"states": h["states"]} if h["states"] else {}),
                "model_id": h["model_id"].hex(),
                "ids": tokens,
                "best": [[i, json_number(x, F32)] for x, i in best],
            }
        )
    lines = [
        (
            f"KVSNAP version {h['version']}, {h['file_bytes']} bytes, model ID"
            f" {h['model_id'][:8].hex()}"
        ),
        "",
    ]
    rows = [
        ("tokens", f"{n_tok} of {h['capacity']}"),
        ("vocabulary", h["n_vocab"]),
        ("layers", h["n_layer"]),
        ("key and value heads", _heads(h)),
        ("stored as", f"{type_name(h['kv_type'])}, {row_bytes} bytes per token"),
        ("arithmetic", h["arithmetic"]),
    ]
    if h["states"]:
        n_state, state_floats = h["states"]
        rows.append(("states", f"{n_state} of {state_floats} F32, after the last token"))
    rows += [
        (f, h[f])
        for f in (
            "ids_offset",
            "logits_offset",
            "kv_offset",
            "layer_stride",
            "v_distance",
            "checksum_offset",
            "n_checksum",
        )
    ]
    lines += [f"  {name:19}  {value}" for name, value in rows]
    lines += ["", "tokens"] + token_lines(tokens) + ["  ..."] * (len(tokens) < n_tok)
    put(lines + ["", "most likely next tokens and their logits", "  " + best_text(best)])


def token_lines(tokens: list[int]) -> list[str]:
    """Return the tokens as lines of TOKENS_PER_LINE."""
    return [
        " " + "".join(f"{i:>8}" for i in tokens[at : at + TOKENS_PER_LINE])
        for at in range(0, len(tokens), TOKENS_PER_LINE)
    ]


# Streams ---------------------------------------------------------------------------


def dump_tokens(fd: int, name: str, start: bytes, as_json: bool) -> None:
    """Print a stream of tokens as it arrives. Memory: one line."""
    reader, n, line = TokenReader(fd, name=name, start=start), 0, []
    head = {"format": "ids", "model": reader.model_hex, "vocab": reader.n_vocab}
    (
        put_json(head)
        if as_json
        else put([f"#ids version 1, model ID {reader.model_hex}, vocabulary {reader.n_vocab}", ""])
    )
    for i in reader:
        n += 1
        line.append(i)
        if len(line) == TOKENS_PER_LINE:
            put_json({"ids": line}) if as_json else put(token_lines(line))
            line = []
    if line:
        put_json({"ids": line}) if as_json else put(token_lines(line))
    (
        put_json({"count": n, "end": reader.reason})
        if as_json
        else put(["", f"{n} tokens, end: {reader.reason}"])
    )


def record_pairs(r: "Record") -> "Iterable[tuple[int, float]]":
    """Return the (token, logit) pairs of an L or C record."""
    if r.kind == b"L":
        return enumerate(memoryview(r.payload).cast("f"))
    return CANDIDATE.iter_unpack(r.payload)


def dump_logits(fd: int, name: str, start: bytes, full: bool, as_json: bool) -> None:
    """Print a line for each record as it arrives: position, previous token, number of logits,
    the largest logits.
    """
    reader = LogitsReader(fd, name=name, start=start)
    model = reader.model_half[:8].hex()
    (
        put_json({"format": "LOGITS", "model": model, "vocab": reader.n_vocab})
        if as_json
        else put(
            [
                f"LOGITS version 1, model ID {model}, vocabulary {reader.n_vocab}",
                "",
                (
                    f"  {'':1}  {'pos':>8}  {'prev':>8}  {'logits':>8} "
                    f" {'all' if full else 'the largest'}, as token and logit"
                ),
            ]
        )
    )
    for r in reader:
        n = (
            0
            if r.kind == b"E"
            else reader.n_vocab
            if r.kind == b"L"
            else len(r.payload) // CANDIDATE.size
        )
        best = best_of(record_pairs(r), n if full else N_BEST) if n else []
        n_odd = sum(x - x != 0 for _, x in record_pairs(r)) if n else 0
        flags = [word for bit, word in FLAG_WORDS.items() if r.flags & bit]
        if as_json:
            put_json(
                {
                    "type": r.kind.decode(),
                    "flags": flags,
                    "pos": r.pos,
                    "prev": r.prev,
                    "count": n,
                    "not_finite": n_odd,
                    "best": [[i, json_number(x, F32)] for x, i in best],
                }
            )
        else:
            put(
                [
                    f"  {r.kind.decode()}  {r.pos:8}  {r.prev:8}  {n:8}  {best_text(best)}".rstrip()
                    + f"  ({n_odd} not finite)" * (n_odd > 0)
                    + "".join(f"  {word}" for word in flags)
                ]
            )
