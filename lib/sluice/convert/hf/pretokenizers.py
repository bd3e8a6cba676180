"""Pre-tokenizers of tokenizer.json: the value of tokenizer.ggml.pre, by exact comparison.

The patterns are those of the published tokenizer.json of the models named; llama.cpp uses the same
names.
"""

from __future__ import annotations

import json
from typing import Any

from ...faults import printable, unsupported_error

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
QWEN35 = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    + r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# One of these matches at every character, so to keep the matches alone removes nothing.
COMPLETE = (LLAMA3, QWEN2, QWEN35, TEKKEN, O200K)
# DeepSeek LLM lists its letters: those with case of Unicode 11 that are not circled or
# mathematical, as ranges of code points.
_LETTERS = (
    0x41,
    0x5A,
    0x61,
    0x7A,
    0xB5,
    0xB5,
    0xC0,
    0xD6,
    0xD8,
    0xF6,
    0xF8,
    0x1BA,
    0x1BC,
    0x1BF,
    0x1C4,
    0x293,
    0x295,
    0x2AF,
    0x370,
    0x373,
    0x376,
    0x377,
    0x37B,
    0x37D,
    0x37F,
    0x37F,
    0x386,
    0x386,
    0x388,
    0x38A,
    0x38C,
    0x38C,
    0x38E,
    0x3A1,
    0x3A3,
    0x3F5,
    0x3F7,
    0x481,
    0x48A,
    0x52F,
    0x531,
    0x556,
    0x10A0,
    0x10C5,
    0x13A0,
    0x13F5,
    0x13F8,
    0x13FD,
    0x1C90,
    0x1CBA,
    0x1CBD,
    0x1CBF,
    0x1D00,
    0x1D2B,
    0x1D6B,
    0x1D77,
    0x1D79,
    0x1D9A,
    0x1E00,
    0x1F15,
    0x1F18,
    0x1F1D,
    0x1F20,
    0x1F45,
    0x1F48,
    0x1F4D,
    0x1F50,
    0x1F57,
    0x1F59,
    0x1F59,
    0x1F5B,
    0x1F5B,
    0x1F5D,
    0x1F5D,
    0x1F5F,
    0x1F7D,
    0x1F80,
    0x1FB4,
    0x1FB6,
    0x1FBC,
    0x1FBE,
    0x1FBE,
    0x1FC2,
    0x1FC4,
    0x1FC6,
    0x1FCC,
    0x1FD0,
    0x1FD3,
    0x1FD6,
    0x1FDB,
    0x1FE0,
    0x1FEC,
    0x1FF2,
    0x1FF4,
    0x1FF6,
    0x1FFC,
    0x2102,
    0x2102,
    0x2107,
    0x2107,
    0x210A,
    0x2113,
    0x2115,
    0x2115,
    0x2119,
    0x211D,
    0x2124,
    0x2124,
    0x2126,
    0x2126,
    0x2128,
    0x2128,
    0x212A,
    0x212D,
    0x212F,
    0x2134,
    0x2139,
    0x2139,
    0x213C,
    0x213F,
    0x2145,
    0x2149,
    0x214E,
    0x214E,
    0x2183,
    0x2184,
    0x2C00,
    0x2C7B,
    0x2C7E,
    0x2CE4,
    0x2CEB,
    0x2CEE,
    0x2CF2,
    0x2CF3,
    0xA640,
    0xA66D,
    0xA680,
    0xA69B,
    0xA722,
    0xA76F,
    0xA771,
    0xA787,
    0xA78B,
    0xA78E,
    0xAB70,
    0xABBF,
    0xFB00,
    0xFB06,
    0xFB13,
    0xFB17,
    0xFF21,
    0xFF3A,
    0xFF41,
    0xFF5A,
    0x10400,
    0x1044F,
    0x104B0,
    0x104D3,
    0x104D8,
    0x104FB,
    0x10C80,
    0x10CB2,
    0x10CC0,
    0x10CF2,
    0x118A0,
    0x118DF,
    0x1E900,
    0x1E943,
)
DEEPSEEK = (
    "[\r\n]",
    r"\s?["
    + "".join(
        chr(a) if a == b else chr(a) + "-" * (b - a > 1) + chr(b)
        for a, b in zip(_LETTERS[::2], _LETTERS[1::2])
    )
    + "]+",
    r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
)


def _bytes(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}


def _split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


DIGITS = {"type": "Digits", "individual_digits": True}
# (pre, pre_tokenizer, accepted types of normalizer, ignore_merges: None if either)
KNOWN = (
    ("gpt-2", _bytes(True), (None,), False),
    ("llama-bpe", _sequence(_split(LLAMA3), _bytes(False)), (None,), True),
    ("smaug-bpe", _sequence(_split(LLAMA3), _bytes(False)), (None,), False),
    ("qwen2", _sequence(_split(QWEN2), _bytes(False)), (None, "NFC"), False),
    ("qwen35", _sequence(_split(QWEN35), _bytes(False)), (None, "NFC"), False),
    ("tekken", _sequence(_split(TEKKEN), _bytes(False)), (None,), None),
    ("gpt-4o", _sequence(_split(O200K), _bytes(False)), (None,), False),
    # and of StarCoder, whose name means the same
    ("smollm", _sequence(DIGITS, _bytes(True)), (None,), False),
    ("deepseek-llm", _sequence(*map(_split, DEEPSEEK), DIGITS, _bytes(False)), (None,), False),
)


def plain(step: Any) -> Any:
    """Return a step with its defaults added, and without fields that affect offsets only."""
    if not isinstance(step, dict):
        return step
    step = {k: v for k, v in step.items() if k != "trim_offsets"}
    if step.get("type") == "ByteLevel":
        step = {"add_prefix_space": True, "use_regex": True, **step}
    if step.get("type") == "Split":
        step.setdefault("invert", False)
        pattern, way = step.get("pattern"), (step.get("behavior"), step["invert"])
        whole = isinstance(pattern, dict) and pattern.get("Regex") in COMPLETE
        if whole and way == ("Removed", True):
            step.update(behavior="Isolated", invert=False)
    if isinstance(step.get("pretokenizers"), list):
        step["pretokenizers"] = [plain(s) for s in step["pretokenizers"]]
    return step


def recognise(path: str, pre_tokenizer: Any, normalizer: Any, ignore_merges: bool) -> str:
    """Return the name of the pre-tokenizer. UnsupportedError describes an unknown one."""
    found, kind = plain(pre_tokenizer), _kind(normalizer)
    alike = [entry for entry in KNOWN if entry[1] == found]
    for name, _, normalizers, whole_words in alike:
        if whole_words is None or bool(ignore_merges) == whole_words:
            if kind not in normalizers:
                raise unsupported_error(
                    path, f"normalizer {printable(str(kind))} before the pre-tokenizer of {name}"
                )
            return name
    if alike:
        raise unsupported_error(
            path, f"model.ignore_merges with the pre-tokenizer of {alike[0][0]}"
        )
    names = ", ".join(name for name, *_ in KNOWN)
    raise unsupported_error(
        path, f"pre_tokenizer {printable(json.dumps(found), 120)}: is none of {names}"
    )


def _kind(normalizer):
    if (
        isinstance(normalizer, dict)
        and normalizer.get("type") == "Sequence"
        and normalizer.get("normalizers") == []
    ):
        return None
    return normalizer.get("type", "of no type") if isinstance(normalizer, dict) else None


def has_bytes(step: Any) -> bool:
    """Whether a pre-tokenizer turns bytes into characters (ByteLevel), at any level."""
    if not isinstance(step, dict):
        return False
    return step.get("type") == "ByteLevel" or any(map(has_bytes, step.get("pretokenizers") or []))
