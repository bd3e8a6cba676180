"""Text and JSON of a GGUF file for gguf-dump: header, metadata and tensor directory."""

from ..stream import write_all
from .metadata import ARRAY, KIND_NAMES, STRING, Unread
from .printing import LINES, json_number, json_value, put, put_json, scalar, shape, visible
from .tensor import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .file import File

ABBREVIATED = 60  # characters of a value


def text_pieces(value: "Unread") -> "Iterator[str]":
    """Yield the string of an Unread as str, in pieces; invalid UTF-8 as \\xNN."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in value.pieces():
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def kind_of(file: "File", key: str) -> str:
    """Return the type of the value of `key`, for instance u32, or string[32000]."""
    value = file.metadata[key]
    return (
        f"{KIND_NAMES[value.kind]}[{value.n}]"
        if file.kinds[key] == ARRAY
        else KIND_NAMES[file.kinds[key]]
    )


def abbreviated(value: "Any", kind: int) -> str:
    """Return a value as text, cut to about ABBREVIATED characters."""
    if isinstance(value, Unread) and kind == STRING:
        begin = b"".join(value.pieces(ABBREVIATED - 10)).decode("utf-8", "ignore")
        return scalar(begin, STRING) + f"... ({value.n} bytes)"
    if kind == ARRAY:
        text = ""
        for i, v in enumerate(value.values(ABBREVIATED)):
            text += ", " * (i > 0) + abbreviated(v, value.kind)
            if len(text) > ABBREVIATED:
                break
        return text + ", ..." * (i + 1 < value.n) if value.n else "(empty)"
    if kind == STRING and len(value) > ABBREVIATED:
        n_bytes = len(value if isinstance(value, bytes) else value.encode())
        return scalar(value[: ABBREVIATED - 10], STRING) + f"... ({n_bytes} bytes)"
    return scalar(value, kind)


def metadata_lines(file: "File", full: bool) -> "Iterator[str]":
    """Yield a line for each key; with `full` each element of an array on its own line."""
    width = min(44, max((len(k) for k in file.metadata), default=0))
    kind_width = max((len(kind_of(file, k)) for k in file.metadata), default=0)
    for key, value in file.metadata.items():
        kind = file.kinds[key]
        head = f"  {key:{width}}  {kind_of(file, key):{kind_width}}"
        if not full:
            yield f"{head}  {abbreviated(value, kind)}"
        elif kind == ARRAY:
            yield head.rstrip()
            yield from (f"  {i:8}  {scalar(v, value.kind)}" for i, v in enumerate(value.values()))
        elif isinstance(value, Unread):
            yield f"{head}  {abbreviated(value, kind)}"
        else:
            yield f"{head}  {scalar(value, kind)}"


def put_value(file: "File", key: str) -> None:
    """Write the bare value of a key: a string with its newlines and tabs, an array one escaped
    element per line.
    """
    value, kind = file.metadata[key], file.kinds[key]
    if kind == STRING:
        for text in text_pieces(value) if isinstance(value, Unread) else (value,):
            write_all(1, visible(text, keep="\n\t\\").encode())
        put([""])
    elif kind == ARRAY:
        bare = visible if value.kind == STRING else lambda v: scalar(v, value.kind)
        put(map(bare, value.values()))
    else:
        put([scalar(value, kind)])


def put_json_value(file: "File", key: str) -> None:
    """Write the value of a key as one line of JSON."""
    value, kind = file.metadata[key], file.kinds[key]
    if not isinstance(value, Unread):
        return put_json(json_value(value, kind))
    import json

    if kind == STRING:
        write_all(1, b'"')
        for text in text_pieces(value):
            write_all(1, json.dumps(text)[1:-1].encode())
        return write_all(1, b'"\n')
    begin, batch = b"[", []
    for v in value.values():
        batch.append(json_number(v, value.kind))
        if len(batch) == LINES:
            write_all(1, begin + json.dumps(batch)[1:-1].encode())
            begin, batch = b", ", []
    write_all(1, (begin + json.dumps(batch)[1:-1].encode() if batch else b"") + b"]\n")


def model_lines(file: "File", full: bool) -> "Iterator[str]":
    """Header, metadata and tensors, aligned."""
    tensors = list(file.tensors.values())
    yield (
        f"GGUF version {file.version}, {file.size} bytes, model ID {file.id[:8].hex()}, "
        f"alignment {file.alignment}, data at byte {file.data_offset}"
    )
    is_split, tensors_of = len(file.parts) > 1, {part: 0 for part in file.parts}
    for t in tensors:
        tensors_of[t.part] += 1
    if is_split:
        yield ""
        yield f"shards: {len(file.parts)}"
        yield from (
            f"  {i:5}  {part.size} bytes, {n} tensors, data at byte {part.data_offset}"
            for i, (part, n) in enumerate(tensors_of.items(), 1)
        )
    yield ""
    yield f"metadata: {len(file.metadata)} keys"
    yield from metadata_lines(file, full)
    yield ""
    by_type = {}
    for t in tensors:
        by_type[t.type] = by_type.get(t.type, 0) + 1
    types = ", ".join(f"{n} {type_name(kind)}" for kind, n in by_type.items())
    yield (
        f"tensors: {len(tensors)}"
        + (
            f" ({types}), {sum(t.n_elements for t in tensors)} elements, "
            f"{sum(t.n_bytes for t in tensors)} bytes"
            if tensors
            else ""
        )
    )
    shard = {part: str(i) for i, part in enumerate(file.parts, 1)}
    rows = [
        (t.name, type_name(t.type), shape(t), str(t.offset), str(t.n_bytes), shard[t.part])
        for t in tensors
    ]
    if rows:
        rows.insert(0, ("name", "type", "shape", "offset", "bytes", "shard"))
    a, b, c, d, e, f = (max(map(len, column)) for column in zip(*rows)) if rows else (0,) * 6
    for name, kind, dims, offset, n_bytes, number in rows:
        line = f"  {name:{a}}  {kind:{b}}  {dims:{c}}  {offset:>{d}}  {n_bytes:>{e}}"
        yield line + f"  {number:>{f}}" * is_split


def model_json(file: "File", full: bool) -> "dict[str, Any]":
    """The fields of model_lines as a dict for JSON.

    Without `full` an array has kind and count only, since half a value looks like a whole one.
    A value that stays in the file (Unread) has its size only.
    """
    metadata: dict[str, dict[str, Any]] = {}
    for key, value in file.metadata.items():
        entry = metadata[key] = {"type": KIND_NAMES[file.kinds[key]]}
        if file.kinds[key] == ARRAY:
            entry.update(elements=KIND_NAMES[value.kind], count=value.n)
        if isinstance(value, Unread):
            entry["bytes"] = value.n_bytes
        elif file.kinds[key] != ARRAY or full:
            entry["value"] = json_value(value, file.kinds[key])
    shard, shards = {}, {}
    if len(file.parts) > 1:
        shard = {part: {"shard": i} for i, part in enumerate(file.parts, 1)}
        shards["shards"] = [{"bytes": p.size, "data_offset": p.data_offset} for p in file.parts]
    return {
        "format": "GGUF",
        "version": file.version,
        "bytes": file.size,
        "model_id": file.id.hex(),
        "alignment": file.alignment,
        "data_offset": file.data_offset,
        **shards,
        "metadata": metadata,
        "tensors": [
            {
                "name": t.name,
                "type": type_name(t.type),
                "shape": t.dims,
                "offset": t.offset,
                "bytes": t.n_bytes,
                **shard.get(t.part, {}),
            }
            for t in file.tensors.values()
        ],
    }
