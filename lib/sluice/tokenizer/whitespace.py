"""White space that control tokens absorb: an attribute of tokens that GGUF does not store.

A tokenizer_config.json has it for each token (`lstrip`, `rstrip`): white space (Unicode's) before
or after the token belongs to the token and makes no tokens. For a GGUF the family of the model
decides:

    Phi-3     SentencePiece, of architecture phi3 or phimoe, or with that name: control tokens and
              `</s>` absorb white space after them; `<unk>`, `<s>` and `<|endoftext|>` do not. As
              llama.cpp, which uses the name only ("Phi-3", not "Phi 3") and ASCII only
    Phi-4     byte-level, of architecture phi3, with the control token `<|im_sep|>`: control tokens
              absorb white space on both sides. llama.cpp absorbs none

Other families with such tokens are encoders (`<mask>` of jina-v2 and ModernBERT), which this build
does not run.
"""

from ..faults import Error
from ..kernels import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

PHI_3 = ("phi3", "phimoe")
PHI_3_NAMES = ("phi-3", "phi3", "phi 3")
KEEPS = (b"<unk>", b"<s>", b"<|endoftext|>")
CONTROL = 1 << lib.PIECE_CONTROL


def apply(file: "File", index: "Any") -> int:
    """Set the flags of the tokens of `index` (a C vocab * with its texts entered) by the family
    of the model, a gguf.File. Returns the flags that were set.
    """
    arch, find = (
        _text(file, "general.architecture"),
        lambda text, kinds: lib.vocab_find(index, text, len(text), kinds),
    )
    if index.model == lib.VOCAB_SPM and (
        arch in PHI_3 or any(name in _text(file, "general.name").lower() for name in PHI_3_NAMES)
    ):
        lib.vocab_flag(index, CONTROL, lib.PIECE_RSTRIP)
        end = find(b"</s>", 0x3FF)
        if end >= 0:
            index.piece[end].flags |= lib.PIECE_RSTRIP
        for i in (find(text, CONTROL) for text in KEEPS):
            if i >= 0:
                index.piece[i].flags &= ~lib.PIECE_RSTRIP & 0xFF
        return lib.PIECE_RSTRIP
    if index.model == lib.VOCAB_BYTES and arch == "phi3" and find(b"<|im_sep|>", CONTROL) >= 0:
        lib.vocab_flag(index, CONTROL, lib.PIECE_LSTRIP | lib.PIECE_RSTRIP)
        return lib.PIECE_LSTRIP | lib.PIECE_RSTRIP
    return 0


def _text(file, key):
    """Return a string of the metadata; "" if the key is absent or not a string."""
    try:
        return file.get(key, "string", "")
    except Error:
        return ""
