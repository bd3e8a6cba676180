"""Vocabulary: text to tokens, and tokens to text (csrc/tokenizer).

index.py reads the tokens, special.py finds BOS, EOS and EOG, bpe.py has the keys `pre` and
`merges`.

GGUF keys, all under `tokenizer.ggml.`:

    model                     "llama": SentencePiece BPE; "gpt2": byte-level BPE; "gemma4":
                              SentencePiece's texts with a list of merges; others are refused by
                              name
    tokens                    [string], n_vocab of them. llama, gemma4: a space is U+2581; gpt2: in
                              the byte-level alphabet
    scores                    [f32], parallel to tokens, finite; llama only; default 0 each
    token_type                [i32], parallel to tokens; default: usual_types(). 1 normal, 2
                              unknown, 3 control, 4 user defined, 5 unused, 6 byte
    {bos,eos,eot,eom,unknown}_token_id   u32 below n_vocab, 4294967295 for none
    suppress_tokens           [i32], tokens that are never sampled; default: none
    add_bos_token             default: whether there is a BOS token; gpt2: as `pre` says
    add_eos_token             default: false
    add_space_prefix          llama: default true: a space is put before a text
    remove_extra_whitespaces  llama: default false. gpt2 and gemma4 have neither key, whatever the
                              file says, as in llama.cpp

Rules where references or files leave a choice:

- Text never becomes a control token, except on request (`special`). The tokens of bos, eos, eot and
  eom are control tokens whatever their type, and so are user defined pieces that end a turn
  (END_MARKS except `</s>`, which is also HTML).
- User defined pieces are matched in every text first: the leftmost, and of several at one place the
  longest. In llama and gemma4 a space in a piece equals U+2581. Pieces of the form of a mark
  (`<think>`, `[INST]`, see csrc/tokenizer/marks.c) can be excluded (`marks`).
- If text begins with a space of its own, SentencePiece's pieces are matched behind it, as in
  SentencePiece. Pieces that transformers added split text, and each part gets a space, as there.
  llama.cpp splits at both, and at all places of the longest piece first, then of the next.
- Some control tokens absorb the white space next to them: whitespace.py.
- Two tokens of the same text are an error, as in SentencePiece, unless exactly one of them is
  control, unknown or byte (gpt2, gemma4: or user defined): then text becomes the other one. In
  llama text becomes a user defined piece rather than a normal one.
- Each byte that is not UTF-8 becomes U+FFFD. U+2581 in a text becomes a space, except in gpt2.
- Text is not normalized (NFC, NFKC), as in llama.cpp.
- A token without text is never produced, and gives no text.
"""

from ..faults import UNSUPPORTED, Error, data_error, printable, unsupported_error
from ..kernels import ffi, lib
from ..limits import MAX_TEXT_BYTES
from . import bpe, special, spm, whitespace
from .index import check_sizes, enter, text_of
from .pieces import ADDED, ADDED_MARKER, CONTROL, KEY, MARKER, TEXT_KINDS, new_raw, wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

MODELS = {"llama": lib.VOCAB_SPM, "gpt2": lib.VOCAB_BYTES, "gemma4": lib.VOCAB_MERGES}


class Vocab:
    """The vocabulary of a gguf.File.

    n_vocab     number of tokens
    bos, eos    tokens, or None
    eog         frozenset of the tokens that end a generation
    suppressed  frozenset of the tokens that are never sampled
    add_bos, add_eos, add_prefix, remove_extra   the model's own rules, bool
    strips_before   whether some tokens absorb the white space before them (whitespace.py)

    Error 65 names the key and the token. Error 69: a vocabulary of another kind.
    """

    def __init__(self, file: "File") -> None:
        self._file = file
        model = file.get(KEY + "model", "string")
        if model not in MODELS:
            raise unsupported_error(
                file.path,
                f'{KEY}model {printable(model)}; this build reads "llama" (SentencePiece BPE),'
                ' "gpt2" (byte-level BPE) and "gemma4"',
            )
        spm.refuse_other_rules(file)
        self._index = index = ffi.new("vocab *")
        index.model = self._model = MODELS[model]
        self.add_prefix, self.remove_extra = spm.choose_spaces(file, index)
        begins = self._model != lib.VOCAB_BYTES or bpe.choose_words(file, index)
        tokens = file.get(KEY + "tokens", "[string]")
        self.n_vocab = tokens.n
        check_sizes(file, self.n_vocab)
        of_keys = [special.named(file, self.n_vocab, name) for name in special.NAMES]
        self._alive = enter(file, index, tokens, of_keys)
        self.strips_before = bool(whitespace.apply(file, index) & lib.PIECE_LSTRIP)
        if self._model != lib.VOCAB_SPM:
            self._alive += bpe.read_merges(file, index)
        chosen = special.choose(file, index, of_keys, begins)
        self.bos, self.eos, self.eog, self.unknown, self.add_bos, self.add_eos = chosen
        self.suppressed = special.suppressed(file, self.n_vocab)
        self._table: tuple[Any, Any] | None = None

    def encode(
        self,
        data: bytes,
        bos: bool | None = None,
        eos: bool | None = None,
        special: bool = False,
        prefix: bool = True,
        marks: bool = True,
        after: int | None = None,
    ) -> list[int]:
        """Return the tokens (list of int) of a text (bytes, at most MAX_TEXT_BYTES).

        bos, eos: add this token at the start or end; None: as the metadata say. special:
        texts of control tokens in `data` become these tokens, the longest at each place.
        The text between them is encoded as if each part stood alone, with its own prefix.
        prefix: False: without the model's space prefix. marks: False: user defined pieces
        of the form of a mark stay text, for input that must not forge marks. after: the
        token before the text, or None; white space that this token absorbs is left out.
        DataError: the text is too long, or the vocabulary lacks the BOS or EOS that was
        requested.
        """
        if len(data) > MAX_TEXT_BYTES:
            raise data_error("text", f"{len(data)} bytes, more than {MAX_TEXT_BYTES >> 20} MiB")
        tokens = []
        if self.add_bos if bos is None else bos:
            tokens.append(self._need(self.bos, "bos"))
        source, n = ffi.from_buffer("uint8_t[]", data), len(data)
        user = lib.SET_USER | (lib.SET_MARKER if marks else 0)
        at = self._behind(after, source, 0, n)
        for begin, end, i in self._cuts(source, at, n, special, user):
            until = (
                lib.white_space_begin(source, at, begin)
                if self._strips(i, lib.PIECE_LSTRIP)
                else begin
            )
            if at < until:
                tokens += self._encode_text(source + at, until - at, prefix, user)
            tokens.append(i)
            at = max(at, self._behind(i, source, end, n))
        if at < n:
            tokens += self._encode_text(source + at, n - at, prefix, user)
        if self.add_eos if eos is None else eos:
            tokens.append(self._need(self.eos, "eos"))
        return tokens

    def _cuts(self, source, at, n, special, user):
        """Return (begin, end, token) of the control tokens and added tokens that split
        source[at:n] before it is encoded.
        """
        sets = lib.SET_CONTROL if special else 0
        if self._index.has_added:
            sets |= lib.SET_ADDED | (lib.SET_ADDED_MARKER if user & lib.SET_MARKER else 0)
        cut = ffi.new("vocab_cut *")
        while sets and at < n:
            lib.vocab_next_cut(cut, self._index, source, n, at, sets, user)
            if cut.at == n:
                return
            yield cut.at, cut.end, cut.id
            at = cut.end

    def _strips(self, i, flag):
        return i is not None and self._index.piece[i].flags & flag

    def _behind(self, i, source, at, n):
        """Return where text continues at source[at:n] after token `i` (or None)."""
        return lib.white_space_end(source, at, n) if self._strips(i, lib.PIECE_RSTRIP) else at

    def begins_stripping(self, data: bytes) -> bool:
        """Whether `data` (bytes), tokenized with `special`, begins with a token that
        absorbs the white space at the end of the text before it.
        """
        source, n = ffi.from_buffer("uint8_t[]", data), len(data)
        at = lib.white_space_end(source, 0, n)
        begin, _, i = next(self._cuts(source, at, n, True, 0), (n, n, None))
        return begin == at and bool(self._strips(i, lib.PIECE_LSTRIP))

    def _need(self, i, name):
        if i is None:
            raise wrong(self._file, f"{name}_token_id", "this vocabulary has no such token")
        return i

    def _encode_text(self, source, n_bytes, prefix, user):
        if self._model == lib.VOCAB_BYTES:
            return bpe.encode(self._index, source, n_bytes, user)
        prefix = prefix and self.add_prefix
        return spm.encode(self._index, source, n_bytes, user, prefix, self.remove_extra)

    def table(self) -> "tuple[Any, Any]":
        """Return (text, offset): const uint8_t *, const uint32_t * [n_vocab + 1].

        Token i has the text text[offset[i]:offset[i + 1]], which is empty for control,
        unknown and unused tokens. Both pointers live as long as this Vocab.
        """
        if self._table is None:
            text, offset = (
                new_raw("uint8_t[]", self._index.text_bytes + 1),
                new_raw("uint32_t[]", self.n_vocab + 1),
            )
            lib.vocab_table(text, offset, self._index)
            self._table, self._written = (text, offset), ffi.buffer(text, offset[self.n_vocab])
        return self._table

    def bytes_of(self, i: int, special: bool = False) -> bytes:
        """Return the text (bytes) of token `i`; b"" for control, unknown and unused, unless
        `special`.
        """
        if special and self.is_control(i):
            return text_of(self._index, i)
        _, offset = self._table or self.table()
        return self._written[offset[i] : offset[i + 1]]

    def control_token(self, text: str) -> int | None:
        """Return the control token, or user defined mark, of this text (str), or None."""
        data = text.encode()
        i = lib.vocab_find(
            self._index, data, len(data), 1 << CONTROL | 1 << MARKER | 1 << ADDED_MARKER
        )
        return i if i >= 0 else None

    def tokens_writing(self, data: bytes) -> list[int]:
        """Return the tokens (ascending) whose text is exactly `data` (bytes, not empty), in
        all forms that a file may have, byte tokens included.
        """
        forms = {
            data,
            bpe.letters(data) if self._model == lib.VOCAB_BYTES else data.replace(b" ", spm.SPACE),
        }
        found = {
            lib.vocab_find(self._index, form, len(form), 1 << kind)
            for form in forms
            for kind in TEXT_KINDS
        }
        if len(data) == 1 and self._index.has_bytes:
            found.add(self._index.byte_id[data[0]])
        return sorted(i for i in found if i >= 0 and self.bytes_of(i) == data)

    def is_control(self, i: int) -> bool:
        """Whether token `i` is a control token."""
        return self._index.piece[i].kind == CONTROL

    def is_mark(self, i: int) -> bool:
        """Whether token `i` is a control token or a user defined mark: no token of plain text."""
        return self._index.piece[i].kind in (CONTROL, MARKER, ADDED_MARKER)

    def splits(self, i: int) -> bool:
        """Whether token `i` splits text, so that the next part begins with a space prefix
        of its own.
        """
        return self._index.piece[i].kind in (CONTROL, ADDED, ADDED_MARKER)


def end_tokens(file: "File") -> frozenset[int]:
    """Return the tokens (frozenset) that end a generation, even if this build cannot tokenize
    with the vocabulary of `file`.
    """
    try:
        return Vocab(file).eog
    except Error as e:
        if e.code != UNSUPPORTED:
            raise
    tokens = (file.get(f"{KEY}{name}_token_id", "u32", special.NONE) for name in special.NAMES[1:])
    return frozenset(i for i in tokens if i != special.NONE)
