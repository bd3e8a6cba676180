"""Small byte-level vocabularies for the tests."""

BYTE_TOKENS = 256


def alphabet():
    """The character of each byte: those that print in Latin-1 are themselves, the others U+0100 and
    on.
    """
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(b if b in prints else next(others)) for b in range(256))


LETTERS = alphabet()
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def letters(data):
    """Bytes in the byte-level alphabet."""
    return "".join(LETTERS[b] for b in data)


def bpe_metadata(made, added=(), rule="gpt-2", **more):
    """Metadata of a vocabulary of the 256 bytes, what the merges `made` [(bytes, bytes)] make, and
    `added` [(text, type)]; `more` adds or replaces keys of tokenizer.ggml (KEY=None leaves one
    out). Tokens: the bytes, the merges as they come, the added.
    """
    texts = [*LETTERS, *(letters(a + b) for a, b in made), *(text for text, _ in added)]
    types = [NORMAL] * (len(texts) - len(added)) + [kind for _, kind in added]
    keys = {
        "model": ("string", "gpt2"),
        "pre": ("string", rule),
        "tokens": ("[string]", texts),
        "token_type": ("[i32]", types),
        "merges": ("[string]", [f"{letters(a)} {letters(b)}" for a, b in made]),
        **more,
    }
    return {
        "general.architecture": ("string", "llama"),
        **{f"tokenizer.ggml.{k}": v for k, v in keys.items() if v is not None},
    }
