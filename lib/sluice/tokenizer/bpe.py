"""BPE merges and pre-tokenizers of byte-level vocabularies.

GGUF keys, under `tokenizer.ggml.`:

    pre      pre-tokenizer: how text is cut into words (csrc/tokenizer/pretokenize.c). A name that
             is not in PRE is refused. Not read for model "gemma4"
    merges   [string] "left right", in order of priority. Each makes a token of type normal, and
             none appears twice. May be absent if all normal tokens are single characters

Names and their side effects are those of llama.cpp: with some, a word that is a token is never
merged (`ignore_merges`, which has no key), and with some, BOS is added if `add_bos_token` is
absent.
"""

from ..faults import data_error, printable, unsupported_error
from ..gguf.metadata import STRING, Array
from ..kernels import ffi, lib
from .pieces import KEY, NORMAL, new_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

MAX_MERGES = 1 << 22  # eight times the largest known
# (names, rule, ignore_merges, whether BOS is added if no key says so)
_PRE = (
    (
        "gpt-2 phi-2 olmo mpt jais trillion exaone4 gigachat a.x-4.0 mellum modern-bert"
        " granite-docling jina-es jina-de jina-v2-es jina-v2-de",
        lib.PRE_GPT2,
        False,
        False,
    ),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        lib.PRE_LLAMA3,
        True,
        True,
    ),
    ("smaug-bpe dbrx glm4 chatglm-bpe", lib.PRE_LLAMA3, False, False),
    (
        "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2",
        lib.PRE_QWEN2,
        False,
        False,
    ),
    ("qwen35", lib.PRE_QWEN35, False, False),
    ("tekken", lib.PRE_TEKKEN, True, True),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", lib.PRE_GPT4O, False, False),
    (
        "starcoder smollm refact codeshell command-r exaone minerva-7b mellum2",
        lib.PRE_STARCODER,
        False,
        False,
    ),
    ("deepseek-llm", lib.PRE_DEEPSEEK_LLM, False, False),
)
# name: rule, ignore_merges, whether BOS is added
PRE = {name: tuple(values) for names, *values in _PRE for name in names.split()}
WRONG_MERGE = {  # by the result of vocab_index_merges
    1: lambda clash: "is not two texts with a space between",
    2: lambda clash: "makes no token of type normal",
    3: lambda clash: f"is merge {clash.other} again",
}


def choose_words(file: "File", index: "Any") -> bool:
    """Set the rules of `index` (a C vocab *) from the key `pre` of a gguf.File.

    Returns whether BOS is added if no key says so. UnsupportedError.
    """
    name = file.get(KEY + "pre", "string", None)
    if name is None:
        raise unsupported_error(file.path, f"{KEY}pre is missing: the pre-tokenizer is unknown")
    if name not in PRE:
        raise unsupported_error(
            file.path, f"{KEY}pre {printable(name)}; this build has {', '.join(PRE)}"
        )
    index.pre, index.ignore_merges, add_bos = PRE[name]
    return add_bos


def read_merges(file: "File", index: "Any") -> "tuple[Any, ...]":
    """Check the merges of a gguf.File and enter them into `index`, which has the tokens
    already.

    Returns the objects that must live as long as `index`. A file without merges is accepted if
    all normal tokens are single characters. DataError, UnsupportedError.
    """
    merges = file.get(KEY + "merges", "[string]", None)
    if merges is None:
        _refuse_longer(file, index)
        merges = Array(STRING, 0, bytes(1))
    n = merges.n
    if n > MAX_MERGES:
        raise unsupported_error(file.path, f"{KEY}merges: {n}, more than {MAX_MERGES}")
    raw, last = ffi.from_buffer("uint8_t[]", merges.raw), ffi.new("uint32_t[]", index.n_vocab)
    n_left, before = new_raw("uint16_t[]", n + 1), new_raw("uint32_t[]", n + 1)
    index.merges, index.merges_bytes, index.n_merge = raw, len(raw), n
    index.n_left, index.last_merge, index.merge_before = n_left, last, before
    clash = ffi.new("vocab_clash *")
    status = lib.vocab_index_merges(clash, index)
    if status:
        raise data_error(
            file.path,
            f"{KEY}merges: merge {clash.id}, {printable(nth(raw, clash.id))},"
            f" {WRONG_MERGE[status](clash)}",
        )
    return raw, last, n_left, before


def _refuse_longer(file, index):
    """DataError if a normal token has more than one character: only merges make such tokens."""
    for i in range(index.n_vocab):
        piece = index.piece[i]
        text = bytes(ffi.buffer(index.tokens + piece.at, piece.n_bytes))
        if piece.kind == NORMAL and len(text.decode("utf-8", "replace")) > 1:
            raise data_error(
                file.path,
                f"{KEY}merges is missing, and token {i}, {printable(text)}, is made by merges only",
            )


def nth(raw: bytes, i: int) -> bytes:
    """Return string `i` of an array of GGUF strings."""
    scan = ffi.new("gguf_scan *")
    lib.gguf_skip_strings(scan, raw, len(raw), 0, i, len(raw))
    at = scan.at + 8
    return bytes(ffi.buffer(raw + at, int.from_bytes(ffi.buffer(raw + scan.at, 8)[:], "little")))


def encode(index: "Any", source: "Any", n_bytes: int, user: int) -> list[int]:
    """Return the tokens (list of int) of a text in a byte-level vocabulary.

    source: uint8_t * [n_bytes]. user: the sets of user defined pieces that text may become.
    """
    text = new_raw("uint8_t[]", 3 * n_bytes)
    n_bytes = lib.utf8_repair(text, source, n_bytes)
    n = lib.bpe_longest(index, user, text, n_bytes)
    tokens, letters = new_raw("int32_t[]", n_bytes), new_raw("uint8_t[]", 2 * n + 1)
    symbols, pairs = new_raw("merge_symbol[]", n + 1), new_raw("merge_pair[]", 2 * n + 1)
    n_tokens = lib.bpe_encode(tokens, text, n_bytes, index, user, letters, symbols, pairs)
    return ffi.unpack(tokens, n_tokens)


def letters(data: bytes) -> bytes:
    """Return `data` (bytes) in the byte-level alphabet (bytes), in which normal tokens are
    stored.
    """
    out = new_raw("uint8_t[]", 2 * len(data) + 1)
    return bytes(
        ffi.buffer(out, lib.alphabet_encode(out, ffi.from_buffer("uint8_t[]", data), len(data)))
    )
