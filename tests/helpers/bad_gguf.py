"""Files with one error each: (name, bytes, exit code, a part of the message).

The first 34 are those of llama.cpp's tests/test-gguf.cpp, under its names; the
rest hold one invariant of the format each. A code of 0 is a valid file.
"""

import struct

from gguf_writer import (
    BF16,
    F16,
    F32,
    Q4_0,
    Q8_0,
    gguf_bytes,
    header,
    key_value,
    padded,
    string,
    tensor_info,
    value,
)

U64_MAX = (1 << 64) - 1
ROW = bytes(range(128))  # f32 [32]
GOOD_KV = {
    "general.architecture": ("string", "llama"),
    "a.u32": ("u32", 7),
    "a.list": ("[i32]", [1, -2, 3]),
}
EVERY_KIND = {
    "k.u8": ("u8", 255),
    "k.i8": ("i8", -128),
    "k.u16": ("u16", 65535),
    "k.i16": ("i16", -32768),
    "k.u32": ("u32", 1),
    "k.i32": ("i32", -1),
    "k.f32": ("f32", 0.1),
    "k.bool": ("bool", True),
    "k.string": ("string", "a\x1b[31m\u202eb"),
    "k.u64": ("u64", U64_MAX),
    "k.i64": ("i64", -1 << 63),
    "k.f64": ("f64", 0.1),
    "k.nan": ("f32", float("nan")),
    "k.inf": ("f64", float("-inf")),
    "k.bytes": ("string", b"\xff\xfe\\x41"),
    "k.empty": ("string", ""),
    **{
        f"k.[{kind}]": (f"[{kind}]", [0, 1, 1])
        for kind in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
    },
    "k.[f32]": ("[f32]", [0.5, float("inf")]),
    "k.[f64]": ("[f64]", [0.5]),
    "k.[bool]": ("[bool]", [True, False]),
    "k.[string]": ("[string]", ["a", "", b"\x1b\xff\n"]),
    "k.none": ("[string]", []),
    "k.zero": ("[u64]", []),
}
TWO = [("a.weight", F32, (32,), ROW), ("b.weight", Q8_0, (32, 2), bytes(68))]


def kv(*entries, n=None):
    """A file of metadata only, from the bytes of its entries."""
    return header(0, len(entries) if n is None else n) + b"".join(entries)


def raw_kv(key, number, data):
    return kv(string(key) + struct.pack("<I", number) + data)


def tensors(*infos, data=b"", metadata=(), n=None):
    return (
        padded(
            header(len(infos) if n is None else n, len(metadata))
            + b"".join(metadata)
            + b"".join(infos)
        )
        + data
    )


def one(name=b"t", type_number=F32, shape=(32,), offset=0, data=ROW):
    return tensors(tensor_info(name, type_number, shape, offset), data=data)


def dims(n_dims, *d):
    """A tensor whose n_dims is not the number of its dimensions."""
    return tensors(string("t") + struct.pack(f"<I{len(d)}QIQ", n_dims, *d, F32, 0), data=ROW)


def alignment(kind, v):
    return key_value("general.alignment", kind, v)


def aligned(a, offsets, data=256):
    infos = [tensor_info(f"t{i}", F32, (2,), o) for i, o in enumerate(offsets)]
    return tensors(*infos, metadata=[alignment("u32", a)], data=bytes(data))


CASES = [
    # Header.
    ("header_bad_magic", b"GGML" + gguf_bytes({}, [])[4:], 65, "GGML"),
    ("header_bad_version_0", header(0, 0, 0), 69, "version"),
    ("header_bad_version_1", header(0, 0, 1), 69, "version"),
    ("header_bad_version_future", header(0, 0, 4), 69, "version"),
    ("header_bad_n_tensors", header(U64_MAX, 0), 65, "n_tensors"),
    ("header_bad_n_kv", header(0, U64_MAX), 65, "n_kv"),
    ("header_empty", header(0, 0), 0, ""),
    # Metadata.
    ("kv_bad_key_size", kv(struct.pack("<Q", U64_MAX) + b"key" + bytes(8)), 65, "key 0"),
    ("kv_empty_key", kv(key_value("", "u32", 1)), 65, "key 0"),
    ("kv_bad_type", raw_kv("some.key", 13, bytes(8)), 65, "some.key"),
    (
        "kv_duplicate_key",
        kv(key_value("some.key", "u32", 1), key_value("some.key", "u32", 1)),
        65,
        "some.key",
    ),
    ("kv_bad_align", kv(alignment("u32", 13)), 65, "general.alignment"),
    ("kv_wrong_type_align", kv(alignment("i32", 32)), 65, "general.alignment"),
    ("kv_success", gguf_bytes(EVERY_KIND, []), 0, ""),
    # Tensors.
    (
        "tensors_bad_name_size",
        tensors(struct.pack("<Q", U64_MAX) + bytes(40)),
        65,
        "tensor 0: name",
    ),
    ("tensors_bad_n_dims", dims(5, 1, 1, 1, 1, 1), 65, "n_dims"),
    ("tensors_bad_shape", one(shape=(U64_MAX,)), 65, "tensor t: dimension"),
    # llama.cpp takes it; no model has one
    ("tensors_zero_dim", one(shape=(32, 0)), 65, "tensor t: dimension"),
    ("tensors_ne_too_big", one(shape=(1 << 40,) * 4), 65, "tensor t: dimensions"),
    ("tensors_nbytes_too_big", one(shape=(1 << 40, 1 << 22)), 65, "tensor t: dimensions"),
    (
        "tensors_nbytes_pad_wrap",
        one(type_number=24, shape=(7 * 7 * 73 * 127, 337 * 92737, 649657)),
        65,
        "tensor t: ends at",
    ),  # 2^63 - 1 bytes
    ("tensors_bad_type", one(type_number=U64_MAX >> 32), 69, "tensor t: type"),
    ("tensors_bad_offset", one(offset=U64_MAX), 65, "tensor t: offset"),
    (
        "tensors_duplicate_name",
        tensors(tensor_info("t", F32, (32,), 0), tensor_info("t", F32, (32,), 128), data=ROW * 2),
        65,
        "tensor t: the name",
    ),
    ("tensors_bad_align", aligned(13, (0,)), 65, "general.alignment"),
    ("tensors_inconsistent_align", aligned(64, (0, 32)), 65, "tensor t1: offset"),
    ("tensors_success", gguf_bytes(GOOD_KV, TWO), 0, ""),
    ("tensors_custom_align", gguf_bytes(GOOD_KV, TWO, alignment=64), 0, ""),
    # Data.
    ("data_not_enough_data", gguf_bytes(GOOD_KV, TWO[:1])[:-1], 65, "tensor a.weight: ends at"),
    ("data_bad_align", aligned(48, (0, 48)), 65, "general.alignment"),
    ("data_inconsistent_align", aligned(16, (0, 32)), 65, "tensor t1: offset"),
    (
        "data_mem_size_overflow",
        tensors(
            tensor_info("t0", F32, (1 << 40, 1 << 20), 0),
            tensor_info("t1", F32, (1 << 40, 1 << 20), 1 << 62),
            data=ROW,
        ),
        65,
        "tensor t0: ends at",
    ),
    ("data_success", gguf_bytes(GOOD_KV, TWO + [("c", F16, (4, 4, 2, 2), bytes(128))]), 0, ""),
    ("data_custom_align", gguf_bytes(GOOD_KV, TWO, alignment=4096), 0, ""),
    # File and header again.
    ("file_empty", b"", 65, "is empty"),
    ("file_one_byte", b"G", 65, "G"),
    ("file_magic_only", b"GGUF", 65, "too short"),
    ("file_header_cut", header(0, 0)[:23], 65, "too short"),
    ("file_text", b"Dear Sir or Madam, this is no model.\n", 65, "Dear"),
    ("header_other_byte_order", struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), 69, "byte order"),
    ("header_version_2", gguf_bytes(GOOD_KV, TWO, version=2), 0, ""),
    ("header_n_kv_over_limit", header(0, 65_537) + bytes(1 << 20), 65, "n_kv"),
    ("header_n_tensors_over_limit", header(65_537, 0) + bytes(3 << 20), 65, "n_tensors"),
    ("header_n_kv_minimum_does_not_fit", header(0, 3) + bytes(41), 65, "n_kv"),
    ("header_n_tensors_minimum_does_not_fit", header(3, 0) + bytes(98), 65, "n_tensors"),
    ("header_n_kv_one_more", kv(key_value("a.key", "string", "x" * 40), n=2), 65, "key 1"),
    (
        "header_n_tensors_one_more",
        tensors(tensor_info("t", F32, (32,), 0), data=ROW, n=2),
        65,
        "tensor 1: name",
    ),
    # Keys and values.
    ("key_too_long", kv(key_value("k" * 65_536, "u32", 1)), 65, "key 0"),
    ("key_longest", kv(key_value("k" * 65_535, "u32", 1)), 0, ""),
    ("key_longest_wrong", raw_kv("k" * 65_535, 99, bytes(8)), 65, "kkkk"),
    ("key_with_nul", kv(key_value("a\0b", "u32", 1)), 65, "key 0"),
    ("key_with_escape", kv(key_value("\x1b[2J", "u32", 1)), 65, "key 0"),
    ("key_not_ascii", kv(key_value("schlüssel", "u32", 1)), 65, "key 0"),
    ("key_not_utf8", kv(key_value(b"\xff\xfe", "u32", 1)), 65, "key 0"),
    ("key_with_space", kv(key_value("a key", "u32", 1)), 65, "key 0"),
    ("key_past_end", kv(struct.pack("<Q", 64) + b"short" + bytes(8)), 65, "key 0"),
    ("value_type_huge", raw_kv("a.key", 0xFFFFFFFF, bytes(8)), 65, "a.key"),
    ("value_past_end", raw_kv("a.key", 10, bytes(7)), 65, "a.key"),
    ("bool_2", raw_kv("a.flag", 7, b"\x02"), 65, "a.flag"),
    ("string_negative_length", raw_kv("a.text", 8, struct.pack("<q", -1) + bytes(8)), 65, "a.text"),
    ("string_wrapping_length", raw_kv("a.text", 8, struct.pack("<q", -8) + bytes(8)), 65, "a.text"),
    (
        "string_over_limit",
        kv(key_value("tokenizer.chat_template", "string", bytes((1 << 20) + 1))),
        65,
        "tokenizer.chat_template",
    ),
    (
        "string_at_limit",
        kv(key_value("tokenizer.chat_template", "string", b" " * (1 << 20))),
        0,
        "",
    ),
    (
        "string_nobody_needs",
        kv(key_value("a.text", "string", b" " * (3 << 20)), key_value("b", "u8", 1)),
        0,
        "",
    ),
    (
        "string_nobody_needs_cut",
        raw_kv("a.text", 8, struct.pack("<Q", 3 << 20) + bytes((3 << 20) - 1)),
        65,
        "a.text",
    ),
    (
        "string_nobody_needs_wraps",
        raw_kv("a.text", 8, struct.pack("<Q", (1 << 64) - 40) + bytes(1 << 20)),
        65,
        "a.text",
    ),
    ("string_past_end", raw_kv("a.text", 8, struct.pack("<Q", 100) + bytes(99)), 65, "a.text"),
    ("array_of_unknown", raw_kv("a.list", 9, struct.pack("<IQ", 13, 0)), 65, "a.list"),
    (
        "array_of_arrays",
        raw_kv("a.list", 9, struct.pack("<IQ", 9, 1) + value("[u8]", [1])),
        69,
        "a.list",
    ),
    (
        "array_negative_count",
        raw_kv("a.list", 9, struct.pack("<Iq", 4, -1) + bytes(16)),
        65,
        "a.list",
    ),
    (
        "array_wrapping_count",
        raw_kv("a.list", 9, struct.pack("<IQ", 10, 1 << 61) + bytes(16)),
        65,
        "a.list",
    ),
    ("array_one_too_many", raw_kv("a.list", 9, struct.pack("<IQ", 4, 5) + bytes(16)), 65, "a.list"),
    (
        "array_bool_3",
        raw_kv("a.list", 9, struct.pack("<IQ", 7, 4) + b"\0\1\3\1"),
        65,
        "a.list: element 2",
    ),
    (
        "array_strings_past_end",
        raw_kv("a.list", 9, struct.pack("<IQ", 8, 2) + string("abc") + string("de")[:-1]),
        65,
        "a.list: string 1",
    ),
    (
        "array_strings_length_cut",
        raw_kv("a.list", 9, struct.pack("<IQ", 8, 2) + string("abcdefgh") + bytes(7)),
        65,
        "a.list: string 1",
    ),
    (
        "array_string_negative",
        raw_kv("a.list", 9, struct.pack("<IQQ", 8, 1, U64_MAX) + bytes(8)),
        65,
        "a.list: string 0",
    ),
    (
        "array_string_over_limit",
        raw_kv(
            "tokenizer.ggml.tokens",
            9,
            struct.pack("<IQ", 8, 2) + string("a") + string(bytes((1 << 20) + 1)),
        ),
        65,
        "tokens: string 1",
    ),
    (
        "array_string_nobody_needs",
        raw_kv(
            "a.list",
            9,
            struct.pack("<IQ", 8, 3) + string("a") + string(bytes(1 << 21)) + string("b"),
        ),
        0,
        "",
    ),
    (
        "array_string_nobody_needs_cut",
        raw_kv("a.list", 9, struct.pack("<IQ", 8, 2) + string("a") + string(bytes(1 << 21))[:-1]),
        65,
        "a.list: string 1",
    ),
    (
        "array_nobody_needs_cut",
        raw_kv("a.list", 9, struct.pack("<IQ", 4, 1 << 18) + bytes((1 << 20) - 4)),
        65,
        "a.list",
    ),
    (
        "array_many",
        raw_kv("a.list", 9, struct.pack("<IQ", 8, 30_000) + string("abcd") * 29_999 + string("")),
        0,
        "",
    ),
    (
        "array_many_one_missing",
        raw_kv("a.list", 9, struct.pack("<IQ", 8, 30_000) + string("abcd") * 29_999),
        65,
        "a.list: string 29999",
    ),
    # Alignment.
    ("alignment_0", kv(alignment("u32", 0)), 65, "general.alignment"),
    ("alignment_1", kv(alignment("u32", 1)), 65, "general.alignment"),
    ("alignment_4", kv(alignment("u32", 4)), 65, "general.alignment"),
    ("alignment_8", aligned(8, (0, 8)), 0, ""),
    ("alignment_2_mib", kv(alignment("u32", 2 << 20)), 65, "general.alignment"),
    ("alignment_u64", kv(alignment("u64", 32)), 65, "general.alignment"),
    ("alignment_string", kv(alignment("string", "32")), 65, "general.alignment"),
    ("alignment_array", kv(alignment("[u32]", [32])), 65, "general.alignment"),
    # Tensors.
    ("name_empty", one(name=b""), 65, "tensor 0: name"),
    ("name_65_bytes", one(name=b"n" * 65), 65, "tensor 0: name"),
    ("name_64_bytes", one(name=b"n" * 64), 0, ""),
    ("name_with_nul", one(name=b"a\0"), 65, "tensor 0: name"),
    ("name_with_escape", one(name=b"\x1b]0;x\x07"), 65, "tensor 0: name"),
    ("name_not_utf8", one(name=b"\xc3"), 65, "tensor 0: name"),
    ("name_not_ascii", one(name="größe".encode()), 65, "tensor 0: name"),
    ("n_dims_0", dims(0, 32), 65, "tensor t: n_dims"),
    ("n_dims_huge", dims(0xFFFFFFFF, 32), 65, "tensor t: n_dims"),
    ("dimension_0_first", one(shape=(0,)), 65, "tensor t: dimension"),
    ("dimension_over_limit", one(shape=((1 << 40) + 1,)), 65, "tensor t: dimension"),
    ("dimensions_wrap_to_little", one(shape=(1 << 32, 1 << 32)), 65, "tensor t: dimensions"),
    ("dimensions_wrap_to_zero_bytes", one(shape=(1 << 31, 1 << 31)), 65, "tensor t: dimensions"),
    ("type_withdrawn", one(type_number=4), 69, "tensor t: type"),
    ("type_of_activations", one(type_number=15), 69, "tensor t: type"),
    ("type_next_to_come", one(type_number=43), 69, "tensor t: type"),
    ("type_bit_31", one(type_number=1 << 31), 69, "tensor t: type"),
    ("row_not_a_multiple", one(type_number=Q4_0, shape=(33,)), 65, "tensor t: row"),
    ("row_not_a_multiple_256", one(type_number=12, shape=(128,)), 65, "tensor t: row"),
    ("k_quant_is_listed", one(type_number=12, shape=(256,), data=bytes(144)), 0, ""),
    ("offset_unaligned", one(offset=8), 65, "tensor t: offset"),
    ("offset_gap", one(offset=32, data=ROW + ROW), 65, "tensor t: offset"),
    (
        "offsets_overlap",
        tensors(tensor_info("a", F32, (32,), 0), tensor_info("b", F32, (32,), 96), data=ROW * 2),
        65,
        "tensor b: offset",
    ),
    (
        "offsets_swapped",
        tensors(tensor_info("a", F32, (32,), 128), tensor_info("b", F32, (32,), 0), data=ROW * 2),
        65,
        "tensor a: offset",
    ),
    (
        "directory_cut_in_dims",
        header(1, 0) + tensor_info("name", BF16, (8, 8, 8, 8), 0)[:40],
        65,
        "tensor name",
    ),
    (
        "directory_cut_in_type",
        header(1, 0) + tensor_info("name", BF16, (8, 8), 0)[:-9],
        65,
        "tensor name",
    ),
    ("data_missing", one(data=b""), 65, "tensor t: ends at"),
    (
        "data_padding_missing",
        (header(1, 0) + tensor_info("t", F32, (32,), 0)),
        65,
        "tensor t: ends at",
    ),
    ("data_last_padding_missing", gguf_bytes({}, [("t", F32, (3,), bytes(12))])[:-20], 0, ""),
    ("data_longer_than_needed", one() + bytes(1000), 0, ""),
]
