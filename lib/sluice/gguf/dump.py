"""A model file in words: what gguf-dump prints of it, as lines of text or as JSON.

Every string that comes from a file is made visible before it is printed: no
control code, nor any other character without a shape of its own, reaches the
output as it is.
"""

import struct

from ..faults import BAD_DATA, Fault, unsupported
from ..kernels import ffi, lib
from ..stream import write_all
from .file import type_name
from .metadata import ARRAY, BOOL, F32, F64, KIND_NAMES, STRING, Unread

ABBREVIATED = 60  # characters of a value
CHECK_ELEMENTS = 1 << 15  # of a tensor at a time: a multiple of every block
LINES = 512  # written at once
FLOAT = struct.Struct("<f")


def put(lines):
    """Write lines (str, without newline) to stdout, some hundreds at a time."""
    batch = []
    for line in lines:
        batch.append(line)
        if len(batch) == LINES:
            write_all(1, ("\n".join(batch) + "\n").encode())
            batch = []
    if batch:
        write_all(1, ("\n".join(batch) + "\n").encode())


def put_json(value):
    """Write one line of JSON, in ASCII. `value` holds no float that is not finite (see
    `json_number`).
    """
    import json

    write_all(1, json.dumps(value, allow_nan=False).encode() + b"\n")


def visible(text, keep="", quote=""):
    """`text` (str, or bytes that should be UTF-8) with escapes for what cannot be seen.

    Backslash, newline and the like become \\\\, \\n; bytes that are not UTF-8 \\xNN;
    other characters that are not printable (Unicode: controls, formats such as the
    direction overrides, separators but the space) \\xNN, \\uNNNN. `keep`: characters
    that stay as they are; `quote`: one to put around it, and to escape.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:  # so that the two sorts of backslash differ
            text = text.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
            return quote + "".join(_seen(c, keep + "\\", quote) for c in text) + quote
    if not (text.isprintable() and "\\" not in text and (not quote or quote not in text)):
        text = "".join(_seen(c, keep, quote) for c in text)
    return quote + text + quote


def _seen(c, keep, quote):
    if c in keep or c.isprintable() and c != "\\" and c != quote:
        return c
    return f"\\{c}" if c == quote else c.encode("unicode_escape").decode()


def number(value, kind):
    """A float in the fewest digits that give it back as `kind` (F32 or F64)."""
    if kind == F32 and value - value == 0:
        for digits in range(6, 9):
            text = f"{value:.{digits}g}"
            if FLOAT.pack(float(text)) == FLOAT.pack(value):
                return text
        return f"{value:.9g}"
    return repr(value)


def scalar(value, kind):
    """One value as text, strings in double quotes."""
    if kind == STRING:
        return visible(value, quote='"')
    if kind == BOOL:
        return "true" if value else "false"
    return number(value, kind) if kind in (F32, F64) else str(value)


def json_number(value, kind):
    """A scalar for JSON; floats that are not finite as in the JSON mapping of Protocol Buffers:
    "NaN", "-Infinity".
    """
    if kind in (F32, F64):
        if value != value:
            return "NaN"
        if value - value != 0:
            return "Infinity" if value > 0 else "-Infinity"
        return float(number(value, kind))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


# Metadata --------------------------------------------------------------------


def text_pieces(value):
    """The string of an Unread as str, in pieces; bytes that are not UTF-8 as \\xNN."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in value.pieces():
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def kind_of(file, key):
    value = file.metadata[key]
    return (
        f"{KIND_NAMES[value.kind]}[{value.n}]"
        if file.kinds[key] == ARRAY
        else KIND_NAMES[file.kinds[key]]
    )


def abbreviated(value, kind):
    """A value in about ABBREVIATED characters."""
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


def metadata_lines(file, full):
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


def put_value(file, key):
    """Write the bare value of a key: a string with its own newlines and tabs, an array one element
    a line, escaped."""
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


def put_json_value(file, key):
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


def json_value(value, kind):
    return (
        [json_number(v, value.kind) for v in value.values()]
        if kind == ARRAY
        else json_number(value, kind)
    )


# The whole file ----------------------------------------------------------------


def shape_text(tensor):
    return " x ".join(map(str, tensor.dims))


def model_lines(file, full):
    """Header, metadata and tensors, aligned."""
    tensors = list(file.tensors.values())
    yield (
        f"GGUF version {file.version}, {file.size} bytes, model id {file.id[:8].hex()}, "
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
        (t.name, type_name(t.type), shape_text(t), str(t.offset), str(t.n_bytes), shard[t.part])
        for t in tensors
    ]
    if rows:
        rows.insert(0, ("name", "type", "shape", "offset", "bytes", "shard"))
    a, b, c, d, e, f = (max(map(len, column)) for column in zip(*rows)) if rows else (0,) * 6
    for name, kind, shape, offset, n_bytes, number in rows:
        line = f"  {name:{a}}  {kind:{b}}  {shape:{c}}  {offset:>{d}}  {n_bytes:>{e}}"
        yield line + f"  {number:>{f}}" * is_split


def model_json(file, full):
    """The same for machines. Of an array only kind and count, unless `full`: half a value looks
    like a whole one; of a value that is not read its bytes alone."""
    metadata = {}
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


# Tensor data -------------------------------------------------------------------


def hexdump_lines(file, tensor, n):
    """The first `n` bytes: offset in the file, 16 bytes, and those that are ASCII."""
    data = file.read(tensor, 0, min(n, tensor.n_bytes))
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{tensor.offset + at:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  |{text}|"


def values(file, tensor, n):
    """The first `n` elements as a list of floats, each exactly an f32."""
    refuse_unsupported(file, tensor)
    block = lib.type_block(tensor.type)
    n = min(n, tensor.n_elements)
    n_whole = -(-n // block) * block
    y = ffi.new("float[]", n_whole)
    lib.dequantize_row(
        y,
        tensor.type,
        ffi.from_buffer(file.read(tensor, 0, lib.type_row_bytes(tensor.type, n_whole))),
        n_whole,
    )
    return ffi.unpack(y, n)


def values_lines(file, tensor, n):
    yield f"{tensor.name}  {type_name(tensor.type)}  {shape_text(tensor)}"
    v = values(file, tensor, n)
    for i in range(0, len(v), 8):
        yield f"{i:8}  " + "  ".join(f"{number(x, F32):>15}" for x in v[i : i + 8])


def refuse_unsupported(file, tensor):
    if not lib.type_supported(tensor.type):
        what = f"type {type_name(tensor.type)} is not supported by this build"
        raise unsupported(tensor.part.path, f"tensor {tensor.name}: {what}")


def check(file):
    """Look at every stored scale and float, some 100 KB at a time: a line for each tensor with one
    that is infinite or NaN, then Fault 65; Fault 69 if a tensor's type cannot be checked."""
    n_bad, unknown, first = 0, None, ffi.new("int64_t *")
    for t in file.tensors.values():
        if not lib.type_supported(t.type):
            unknown = unknown or t
            continue
        n, where = 0, None
        for i in range(0, t.n_elements, CHECK_ELEMENTS):
            n_here = min(CHECK_ELEMENTS, t.n_elements - i)
            data = file.read(t, lib.type_row_bytes(t.type, i), lib.type_row_bytes(t.type, n_here))
            n += lib.count_nonfinite(first, t.type, ffi.from_buffer(data), n_here)
            if where is None and first[0] >= 0:
                where = i + first[0]
        if n:
            n_bad += 1
            index = []
            for d in t.shape:
                index.append(where % d)
                where //= d
            put([f"{t.name}: {n} not finite, the first at {index}"])
    file.check_unchanged()
    if n_bad:
        raise Fault(
            BAD_DATA,
            f"{file.path}: {n_bad} of {len(file.tensors)} tensors hold values that are not finite",
        )
    if unknown:
        refuse_unsupported(file, unknown)
