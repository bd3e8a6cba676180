"""Write GGUF files for the tests: small, deterministic, and wrong in any way a test asks for.

`write_gguf` writes a valid file. Its parts (`string`, `value`, `key_value`, `tensor_info`,
`header`) are for files that must be refused.
"""

import struct

try:
    import numpy as np
except (
    ImportError
):  # only QUANTIZE needs it; tiny_model.py writes files before the test packages are there
    np = None

KINDS = (
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "f32",
    "bool",
    "string",
    "array",
    "u64",
    "i64",
    "f64",
)
FORMS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "?",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30
# Types in blocks that the engine computes with: name -> number, elements of a block, its bytes,
# where its halves are (d, then m); set_scales knows the others
BLOCK_TYPES = {
    "Q8_0": (8, 32, 34, (0,)),
    "Q4_0": (2, 32, 18, (0,)),
    "Q4_1": (3, 32, 20, (0, 2)),
    "Q5_0": (6, 32, 22, (0,)),
    "Q5_1": (7, 32, 24, (0, 2)),
    "IQ4_NL": (20, 32, 18, (0,)),
    "Q2_K": (10, 256, 84, (80, 82)),
    "Q3_K": (11, 256, 110, (108,)),
    "Q4_K": (12, 256, 144, (0, 2)),
    "Q5_K": (13, 256, 176, (0, 2)),
    "Q6_K": (14, 256, 210, (208,)),
    "IQ4_XS": (23, 256, 136, (0,)),
    "IQ2_XXS": (16, 256, 66, (0,)),
    "IQ2_XS": (17, 256, 74, (0,)),
    "IQ3_XXS": (18, 256, 98, (0,)),
    "IQ1_S": (19, 256, 50, (0,)),
    "IQ3_S": (21, 256, 110, (0,)),
    "IQ2_S": (22, 256, 82, (0,)),
    "IQ1_M": (29, 256, 56, ()),
    "TQ1_0": (34, 256, 54, (52,)),
    "TQ2_0": (35, 256, 66, (64,)),
    "MXFP4": (39, 32, 17, ()),
    "NVFP4": (40, 64, 36, ()),
}


def string(text):
    """u64 n_bytes and the bytes of `text` (str or bytes)."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    """The bytes of `v` as `kind`: a name of KINDS, or "[name]" for an array (an iterable, or a
    numpy array).
    """
    if kind == "string":
        return string(v)
    if kind.startswith("["):
        kind = kind[1:-1]
        head = struct.pack("<IQ", KINDS.index(kind), len(v))
        if kind in FORMS:
            return head + struct.pack(f"<{len(v)}{FORMS[kind]}", *v)
        return head + b"".join(value(kind, x) for x in v)
    return struct.pack("<" + FORMS[kind], v)


def key_value(key, kind, v):
    """One metadata entry: key, type number, value."""
    number = KINDS.index("array" if kind.startswith("[") else kind)
    return string(key) + struct.pack("<I", number) + value(kind, v)


def tensor_info(name, type_number, shape, offset):
    """One entry of the tensor directory; `offset` counts from the start of the data."""
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_number, offset)


def header(n_tensors, n_kv, version=3, magic=b"GGUF"):
    return struct.pack("<4sIQQ", magic, version, n_tensors, n_kv)


def padded(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def gguf_bytes(metadata, tensors, version=3, alignment=32):
    """A whole file as bytes; arguments as of `write_gguf`."""
    metadata = dict(metadata)
    if alignment != 32:
        metadata.setdefault("general.alignment", ("u32", alignment))
    out = [header(len(tensors), len(metadata), version)]
    out += [key_value(key, kind, v) for key, (kind, v) in metadata.items()]
    offset = 0
    for name, type_number, shape, data in tensors:
        out.append(tensor_info(name, type_number, shape, offset))
        offset += len(padded(data, alignment))
    return padded(b"".join(out), alignment) + b"".join(
        padded(data, alignment) for *_, data in tensors
    )


def write_gguf(path, metadata, tensors, version=3, alignment=32):
    """Write a GGUF file.

    metadata
    dict: key -> (kind, value); kind is a name of KINDS, or "[string]" and the like for an array
        tensors
    list of (name, type number, shape in GGUF order: row length first, bytes) alignment  of the
        tensor data; other than 32 adds the key general.alignment
    """
    with open(path, "wb") as f:
        f.write(gguf_bytes(metadata, tensors, version, alignment))


# Weights: f32 [..., n] -> the bytes of the rows in a GGML type. The formats of 32
# take a multiple of 32 elements in C order and round as the gguf package does.


def f32(x):
    return np.ascontiguousarray(x, "<f4").tobytes()


def f16(x):
    return np.ascontiguousarray(x, "<f4").astype("<f2").tobytes()


def bf16(x):
    """To nearest, ties to even; finite input."""
    u = np.ascontiguousarray(x, "<f4").view("<u4").astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2").tobytes()


def _blocks(x):
    return np.ascontiguousarray(x, np.float32).reshape(-1, 32)


def _inverse(d):
    with np.errstate(divide="ignore"):
        return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _round_away(x):
    """To nearest, ties away from zero: roundf of C."""
    whole = np.floor(np.abs(x))
    return np.sign(x) * (whole + np.floor(2 * (np.abs(x) - whole)))


def _nibbles(q):
    """u8 [n, 32] below 16 -> u8 [n, 16]: element i in the low half, i + 16 in the high."""
    return q[:, :16] | q[:, 16:] << 4


def q8_0(x):
    """Blocks {f16 d, i8 q[32]}: d = max |x| / 127."""
    x = _blocks(x)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    q = _round_away(x * _inverse(d)).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), q.view(np.uint8)], 1).tobytes()


def q4_0(x):
    """Blocks {f16 d, u8 q[16]}: d = (the element of largest size) / -8, w = d (q - 8)."""
    x = _blocks(x)
    d = np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1) / np.float32(-8)
    q = np.trunc(x * _inverse(d) + np.float32(8.5)).clip(0, 15).astype(np.uint8)
    return np.concatenate([d.astype("<f2").view(np.uint8), _nibbles(q)], 1).tobytes()


def q4_1(x):
    """Blocks {f16 d, f16 m, u8 q[16]}: m = min, d = (max - min) / 15, w = d q + m."""
    x = _blocks(x)
    m = x.min(1, keepdims=True)
    d = (x.max(1, keepdims=True) - m) / np.float32(15)
    q = np.trunc((x - m) * _inverse(d) + np.float32(0.5)).clip(0, 15).astype(np.uint8)
    return np.concatenate(
        [d.astype("<f2").view(np.uint8), m.astype("<f2").view(np.uint8), _nibbles(q)], 1
    ).tobytes()


QUANTIZE = {F32: f32, F16: f16, BF16: bf16, Q8_0: q8_0, Q4_0: q4_0, Q4_1: q4_1}


def set_halves(blocks, at, values):
    """Write `values`, f16 [n] or one number, as the half that begins at byte `at` of each of
    `blocks`, u8 [n, bytes of a block].
    """
    blocks[:, at : at + 2] = (
        np.broadcast_to(np.asarray(values, "<f2").reshape(-1, 1), (len(blocks), 1))
        .copy()
        .view(np.uint8)
    )


def set_scales(blocks, name, values, minima=True):
    """Write `values`, f16 [n] or one number, as the scales (and minima) of `blocks`, u8 [n, bytes];
    of MXFP4 the nearest power of two, of NVFP4 the nearest number of E4M3, both without sign.
    """
    values = np.broadcast_to(np.asarray(values, "<f2"), len(blocks)).astype("<f4")
    if name == "MXFP4":  # 2^(e - 128)
        blocks[:, 0] = np.round(128 + np.log2(np.abs(values))).clip(1, 250)
    elif name == "NVFP4":
        e = np.arange(0x7F)
        known = np.where(e < 8, e / 8, (1 + e % 8 / 8) * 2.0 ** (e // 8 - 1)) * 2.0**-7
        near = np.abs(np.abs(values)[:, None] - known).argmin(1)
        blocks[:, :4] = near[:, None]
    elif name == "IQ1_M":  # four bits in each of four words
        words = blocks[:, 48:].copy().view("<u2")
        bits = values.astype("<f2").view("<u2").reshape(-1, 1) >> np.array([0, 4, 8, 12]) & 15
        blocks[:, 48:] = (words & 0xFFF | bits << 12).astype("<u2").view(np.uint8)
    for at in BLOCK_TYPES[name][3][: 2 if minima else 1]:
        set_halves(blocks, at, values)


def random_blocks(rng, name, n):
    """u8 [n, bytes]: n blocks of a type of BLOCK_TYPES, d and m normally distributed, of everything
    else any bits.
    """
    _, _, n_bytes, halves = BLOCK_TYPES[name]
    blocks = rng.integers(0, 256, (n, n_bytes), np.uint8)
    for at in halves:
        set_halves(blocks, at, rng.normal(size=n))
    if not halves:
        set_scales(blocks, name, rng.normal(size=n))
    return blocks
