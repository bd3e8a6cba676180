"""A vocabulary: text to ids and ids to text (the work is in csrc/text/vocab.c, spm.c, bpe.c,
merge.c).

GGUF keys, all under `tokenizer.ggml.`; those of byte-pair lists, `pre` and `merges`, are in bpe.py:

    model                     "llama": SentencePiece BPE; "gpt2": byte-level BPE; "gemma4":
                              SentencePiece's texts, with a list of merges; any other is refused by
                              name
    tokens                    [string], n_vocab of them; llama, gemma4: a blank written U+2581;
                              gpt2: in the byte-level alphabet
    scores                    [f32], as many, finite; of llama only; where absent 0 each
    token_type                [i32], as many; where absent see usual_types(): 1 normal, 2 unknown, 3
                              control, 4 user defined, 5 unused, 6 byte
    {bos,eos,eot,eom,unknown}_token_id   u32 below n_vocab, 4294967295 for none
    add_bos_token             where absent: whether there is a begin id; gpt2: as `pre` says.
                              add_eos_token: false
    add_space_prefix          llama: true where absent: text begins with a blank that is not written
                              by the user
    remove_extra_whitespaces  llama: false where absent. gpt2 and gemma4 have neither, whatever the
                              file says, as in llama.cpp

Rules where references or files leave a choice:

- Text is never a control token, except on request (`special`). The ids of bos, eos, eot and eom are
  control tokens
  whatever their type, and so are user defined pieces that end a turn (END_MARKS but `</s>`, which
  is HTML, too).
- User defined pieces are matched in every text before anything else: the leftmost first, of these
  the longest. In llama
  and gemma4 a blank in one is the same as U+2581. Those of the form of a mark (`<think>`, `[INST]`,
  see csrc/text/vocab.c) can be left out (`marks`).
- Where text begins with a blank of its own, SentencePiece's pieces are matched behind it, as
  SentencePiece does, and
  those that transformers added split text, each part with its blank, as there. llama.cpp splits at
  both, and not at the leftmost piece first, but at all places of the longest, then at those of the
  next.
- Some control tokens take the white space beside them along: takes.py.
- Two tokens of the same text are an error, as in SentencePiece, unless one of them
  is control, unknown or byte (gpt2, gemma4: or user defined) and the other is not: then text gets
  the other. In llama text gets a user defined piece, not a normal one.
- Each byte that is not UTF-8 becomes U+FFFD. U+2581 in a text is a blank afterwards, but for gpt2.
- Text is not normalised (NFC, NFKC), as in llama.cpp.
- A token without text is never produced, and writes nothing.
"""

import os
from array import array

from ..faults import UNSUPPORTED, Fault, bad, printable, unsupported
from ..kernels import ffi, lib
from ..limits import MAX_TEXT_BYTES, MAX_VOCAB
from . import bpe, whitespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File

NONE = 0xFFFFFFFF
MAX_TRIE_BYTES = 1 << 22  # of all control and user defined texts
MAX_SPELT = 3 * 1024  # bytes of one user defined text
UNKNOWN, CONTROL, MARKER, BYTE = (
    lib.PIECE_UNKNOWN,
    lib.PIECE_CONTROL,
    lib.PIECE_MARKER,
    lib.PIECE_BYTE,
)
NORMAL, ADDED, ADDED_MARKER = lib.PIECE_NORMAL, lib.PIECE_ADDED, lib.PIECE_ADDED_MARKER
TEXT_KINDS = (NORMAL, lib.PIECE_USER, MARKER, ADDED, ADDED_MARKER)
BLANK = "\u2581".encode()
KEY = "tokenizer.ggml."
MODELS = {"llama": lib.VOCAB_SPM, "gpt2": lib.VOCAB_BYTES, "gemma4": lib.VOCAB_MERGES}
WRONG_TOKEN = {  # by what vocab_scan returns: key, reason
    1: ("scores", "its score is not finite"),
    2: ("token_type", "its type is not one of 1 to 6"),
    3: ("tokens", "is of type byte but not of the form <0x41>"),
    6: ("token_type", "its type is byte, but every token of model gpt2 is bytes"),
    7: ("tokens", "is of type user defined and not UTF-8"),
}
END_MARKS = (  # tokens that end a turn, whatever the metadata says of them
    b"</s>",
    b"<eos>",
    b"<|eot_id|>",
    b"<|eom_id|>",
    b"<|im_end|>",
    b"<|end|>",
    b"<|end_of_text|>",
    b"<|endoftext|>",
    b"<end_of_turn>",
    b"<turn|>",
    b"<|return|>",
    b"<|call|>",
    b"<end_of_utterance>",
    b"<EOT>",
    b"_<EOT>",
    b"[EOT]",
)
# work space: pages that are not used cost nothing
new_raw = ffi.new_allocator(should_clear_after_alloc=False)


class Vocab:
    """The vocabulary of a gguf.File.

    n_vocab     number of ids
    bos, eos    ids, or None
    eog         frozenset of the ids that end a generation
    add_bos, add_eos, add_prefix, remove_extra   the model's own rules, bool
    takes_before   whether it has tokens that take along the white space before them (takes.py)

    Faults: 65 naming the key and the token, 69 for a vocabulary of another sort.
    """

    def __init__(self, file: "File") -> None:
        self._file = file
        model = file.get(KEY + "model", "string")
        if model not in MODELS:
            raise unsupported(
                file.path,
                f'{KEY}model {printable(model)}; this build reads "llama" (SentencePiece BPE),'
                ' "gpt2" (byte-level BPE) and "gemma4"',
            )
        self._refuse_other_rules()
        self._index = ffi.new("vocab *")
        self._index.model = self._model = MODELS[model]
        self._choose_blanks()
        begins = self._model != lib.VOCAB_BYTES or bpe.choose_words(file, self._index)
        tokens = file.get(KEY + "tokens", "[string]")
        self.n_vocab = tokens.n
        self._check_sizes()
        special = [self._special(name) for name in ("bos", "eos", "eot", "eom")]
        self._scan(tokens, special)
        self._enter()
        self.takes_before = bool(whitespace.apply(file, self._index) & lib.PIECE_TAKES_BEFORE)
        if self._model != lib.VOCAB_SPM:
            self._alive += bpe.read_merges(file, self._index)
        self._choose_ids(special)
        self._choose_rules(begins)
        self._table: tuple[Any, Any] | None = None

    def _bad(self, key, what):
        return bad(self._file.path, f"{KEY}{key}: {what}")

    def _refuse_other_rules(self):
        if self._file.get(KEY + "treat_whitespace_as_suffix", "bool", False):
            raise unsupported(self._file.path, f"{KEY}treat_whitespace_as_suffix")
        charsmap = self._file.metadata.get(KEY + "precompiled_charsmap")
        if charsmap is not None and getattr(charsmap, "n", 1):
            raise unsupported(
                self._file.path,
                f"{KEY}precompiled_charsmap: text normalisation other than identity",
            )

    def _choose_blanks(self):
        flag = lambda name, default: (
            self._model == lib.VOCAB_SPM and self._file.get(KEY + name, "bool", default)
        )
        self.add_prefix, self.remove_extra = (
            flag("add_space_prefix", True),
            flag("remove_extra_whitespaces", False),
        )
        self._index.add_prefix = self.add_prefix

    def _check_sizes(self):
        if not 1 <= self.n_vocab <= MAX_VOCAB:
            raise self._bad("tokens", f"{self.n_vocab} tokens, not 1 to {MAX_VOCAB}")
        for name in ("token_embd.weight", "output.weight"):
            tensor = self._file.tensors.get(name)
            if tensor and (
                len(tensor.shape) > 2 or len(tensor.dims) < 2 or tensor.dims[1] != self.n_vocab
            ):
                raise self._bad(
                    "tokens", f"{self.n_vocab} tokens, but {name} has the shape {list(tensor.dims)}"
                )

    def _special(self, name):
        """The id that a key names; None where the key is absent, -1 where it says that there is
        none.
        """
        key = f"{name}_token_id"
        value = self._file.get(KEY + key, "u32", None)
        if value is None or value == NONE:
            return None if value is None else -1
        if value >= self.n_vocab:
            raise self._bad(key, f"{value} is not below the vocabulary size {self.n_vocab}")
        return value

    def _same_length(self, key, kind, default):
        """The elements of an array that goes with the tokens, for C; where the file has none,
        `default`() of its bytes."""
        found = self._file.get(KEY + key, kind, None)
        if found is None:
            return ffi.from_buffer("uint8_t[]", default())
        if found.n != self.n_vocab:
            raise self._bad(key, f"{found.n} elements for {self.n_vocab} tokens")
        return ffi.from_buffer("uint8_t[]", found.raw)

    def _scan(self, tokens, special):
        index = self._index
        scores = ffi.NULL
        if self._model == lib.VOCAB_SPM:
            scores = self._same_length("scores", "[f32]", lambda: bytes(4 * self.n_vocab))
        types = self._same_length(
            "token_type", "[i32]", lambda: usual_types(self._file, tokens.values())
        )
        raw, pieces = (
            ffi.from_buffer("uint8_t[]", tokens.raw),
            new_raw("vocab_piece[]", self.n_vocab),
        )
        marks = ffi.from_buffer("uint8_t[]", b"\0" + b"\0".join(END_MARKS) + b"\0")
        respelt = new_raw("uint8_t[]", min(3 * len(raw), MAX_TRIE_BYTES + MAX_SPELT))
        self._alive = [raw, scores, types, pieces, marks, respelt]
        index.tokens, index.scores, index.types, index.piece, index.n_vocab = (
            raw,
            scores,
            types,
            pieces,
            self.n_vocab,
        )
        index.end_marks, index.end_marks_bytes, index.respelt, index.respelt_room = (
            marks,
            len(marks),
            respelt,
            len(respelt),
        )
        index.tokens_bytes, index.seed = len(raw), int.from_bytes(os.urandom(8), "little")
        clash = ffi.new("vocab_clash *")
        status = lib.vocab_scan(
            clash, index, [-1 if i is None else i for i in special], len(special)
        )
        if status == 4:
            raise unsupported(
                self._file.path, f"{KEY}tokens: token {clash.id} has more than 1024 bytes"
            )
        if status == 5:
            raise self._bad(
                "tokens", f"there are byte tokens, but <0x{clash.other:02X}> is missing"
            )
        if status:
            key, what = WRONG_TOKEN[status]
            raise self._bad(key, f"token {clash.id}: {what}")
        if index.trie_bytes > MAX_TRIE_BYTES:
            raise unsupported(
                self._file.path,
                f"{KEY}tokens: {index.trie_bytes} bytes of control and user defined tokens, "
                f"more than {MAX_TRIE_BYTES}",
            )

    def _enter(self):
        index, clash = self._index, ffi.new("vocab_clash *")
        n_slot, n_edge = power_of_two(2 * self.n_vocab), power_of_two(2 * index.trie_bytes + 2)
        slots, edges = ffi.new("uint32_t[]", n_slot), ffi.new("uint64_t[]", n_edge)
        self._alive += [slots, edges]
        index.slot, index.slot_mask, index.edge, index.edge_mask = (
            slots,
            n_slot - 1,
            edges,
            n_edge - 1,
        )
        if lib.vocab_index(clash, index):
            raise self._bad(
                "tokens",
                f"token {clash.id} has the same text as token {clash.other}, "
                f"{printable(self._text(clash.id))}",
            )

    def _choose_ids(self, special):
        """bos, eos, eog, and the unknown id (None if bytes write what has none). Where a key is
        absent, 1, 2 and 0 are tried, as is custom with SentencePiece.
        """
        is_control = lambda i: (
            self._model == lib.VOCAB_SPM
            and i < self.n_vocab
            and self._index.piece[i].kind == CONTROL
        )
        defaults = [1 if is_control(1) else -1, 2 if is_control(2) else -1, -1, -1]
        ids = [default if i is None else i for i, default in zip(special, defaults)]
        self.bos, self.eos = (i if i >= 0 else None for i in ids[:2])
        marks = (lib.vocab_find(self._index, m, len(m), 1 << CONTROL) for m in END_MARKS)
        self.eog = frozenset(i for i in (*ids[1:], *marks) if i >= 0)
        unknown = self._special("unknown")
        self._index.unknown = unknown = 0 if unknown is None else unknown
        has_bytes = self._index.has_bytes or self._model == lib.VOCAB_BYTES
        if not has_bytes and (unknown < 0 or self._index.piece[unknown].kind != UNKNOWN):
            raise self._bad(
                "unknown_token_id",
                "not a token of type unknown, and there are no byte tokens either: "
                "not every text has ids",
            )
        self.unknown = None if has_bytes else unknown

    def _choose_rules(self, begins):
        flag = lambda name, default: self._file.get(KEY + name, "bool", default)
        self.add_bos, self.add_eos = (
            flag("add_bos_token", begins and self.bos is not None),
            flag("add_eos_token", False),
        )
        for name, add, i in (("bos", self.add_bos, self.bos), ("eos", self.add_eos, self.eos)):
            if add and i is None:
                raise self._bad(f"{name}_token_id", f"there is none, but add_{name}_token is true")

    def _text(self, i):
        """The text of token `i` as the file has it (bytes), but U+2581 for the blanks of a user
        defined piece.
        """
        piece = self._index.piece[i]
        texts = self._index.respelt if piece.flags & lib.PIECE_RESPELT else self._index.tokens
        return bytes(ffi.buffer(texts + piece.at, piece.n_bytes))

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
        """The ids of a text (bytes, at most MAX_TEXT_BYTES): a list of int.

        bos, eos: put that id at the begin, the end; None: as the model's metadata says. special:
        texts of control tokens in `data` become these tokens, the longest at each place; the text
        between them is encoded as if each stood alone, with its own prefix. prefix: False leaves
        the model's space prefix out. marks: False leaves user defined pieces of the form of a mark
        as text: for a text that must not forge one. after: the id that the text follows, or None:
        what that token takes along of the white space behind it is left out.
        """
        if len(data) > MAX_TEXT_BYTES:
            raise bad("text", f"{len(data)} bytes, more than {MAX_TEXT_BYTES >> 20} MiB")
        ids = []
        if self.add_bos if bos is None else bos:
            ids.append(self._need(self.bos, "bos"))
        source, n = ffi.from_buffer("uint8_t[]", data), len(data)
        user = lib.SET_USER | (lib.SET_MARKER if marks else 0)
        at = self._behind(after, source, 0, n)
        for begin, end, i in self._cuts(source, at, n, special, user):
            until = (
                lib.white_space_begin(source, at, begin)
                if self._takes(i, lib.PIECE_TAKES_BEFORE)
                else begin
            )
            if at < until:
                ids += self._encode_text(source + at, until - at, prefix, user)
            ids.append(i)
            at = max(at, self._behind(i, source, end, n))
        if at < n:
            ids += self._encode_text(source + at, n - at, prefix, user)
        if self.add_eos if eos is None else eos:
            ids.append(self._need(self.eos, "eos"))
        return ids

    def _cuts(self, source, at, n, special, user):
        """(begin, end, id) of the tokens that split a text source[at:n] before it is encoded:
        control, and added ones.
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

    def _takes(self, i, flag):
        return i is not None and self._index.piece[i].flags & flag

    def _behind(self, i, source, at, n):
        """Where text goes on that follows the id `i` (or None) at source[at:n]."""
        return lib.white_space_end(source, at, n) if self._takes(i, lib.PIECE_TAKES_BEHIND) else at

    def begins_taking(self, data: bytes) -> bool:
        """Whether the white space that a text ends with goes to a token that `data` (bytes),
        tokenised with `special`, begins with.
        """
        source, n = ffi.from_buffer("uint8_t[]", data), len(data)
        at = lib.white_space_end(source, 0, n)
        begin, _, i = next(self._cuts(source, at, n, True, 0), (n, n, None))
        return begin == at and bool(self._takes(i, lib.PIECE_TAKES_BEFORE))

    def _need(self, i, name):
        if i is None:
            raise self._bad(f"{name}_token_id", "this vocabulary has none")
        return i

    def _encode_text(self, source, n_bytes, prefix, user):
        if self._model == lib.VOCAB_BYTES:
            return bpe.encode(self._index, source, n_bytes, user)
        text = new_raw("uint8_t[]", 3 * n_bytes + 3)
        n_bytes = lib.spm_normalize(
            text, self._index, user, source, n_bytes, prefix and self.add_prefix, self.remove_extra
        )
        n = lib.spm_longest(self._index, user, text, n_bytes)
        ids = new_raw("int32_t[]", n_bytes + 1)
        split = new_raw("uint32_t[]", self.n_vocab) if self._index.has_unused else ffi.NULL
        symbols, pairs = new_raw("merge_symbol[]", n), new_raw("merge_pair[]", 2 * n)
        n_ids = lib.spm_encode(ids, text, n_bytes, self._index, user, symbols, pairs, split)
        return ffi.unpack(ids, n_ids)

    def table(self) -> "tuple[Any, Any]":
        """(text, offset): const uint8_t *, const uint32_t * [n_vocab + 1]: id i writes
        text[offset[i]:offset[i + 1]].

        That is nothing for control tokens, unknown and unused. Both live as long as this Vocab.
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
        """The bytes that id `i` writes: b"" for control, unknown and unused, unless `special`: then
        their text.
        """
        if special and self.is_control(i):
            return self._text(i)
        _, offset = self._table or self.table()
        return self._written[offset[i] : offset[i + 1]]

    def control_id(self, text: str) -> int | None:
        """The id of the control token, or user defined mark, with this text (str), or None."""
        data = text.encode()
        i = lib.vocab_find(
            self._index, data, len(data), 1 << CONTROL | 1 << MARKER | 1 << ADDED_MARKER
        )
        return i if i >= 0 else None

    def ids_writing(self, data: bytes) -> list[int]:
        """The ids that write exactly `data` (non-empty bytes): the tokens of this text, in the
        forms that the file may have, and the byte token; ascending.
        """
        forms = {
            data,
            bpe.letters(data) if self._model == lib.VOCAB_BYTES else data.replace(b" ", BLANK),
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
        """Whether id `i` is a control token."""
        return self._index.piece[i].kind == CONTROL

    def splits(self, i: int) -> bool:
        """Whether id `i` splits the text that it is in, so that what follows begins with a prefix
        of its own.
        """
        return self._index.piece[i].kind in (CONTROL, ADDED, ADDED_MARKER)


def usual_types(file: "File", tokens: list[bytes]) -> bytes:
    """The bytes of an array of token types for a gguf.File that has none, of its `tokens` (list of
    bytes): the unknown token and those that end a turn are what they are, <0x00> to <0xFF> bytes if
    all are there, and all others normal."""
    types = array("i", [NORMAL]) * len(tokens)
    of_byte = {b"<0x%02X>" % b for b in range(256)}
    is_llama = file.get(KEY + "model", "string") == "llama"
    has_bytes = is_llama and of_byte <= set(tokens)
    for i, token in enumerate(tokens):
        if has_bytes and token in of_byte:
            types[i] = BYTE
        elif token in END_MARKS or is_llama and token == b"<s>":
            types[i] = CONTROL
    unknown = file.get(KEY + "unknown_token_id", "u32", 0)
    if is_llama and unknown < len(tokens):
        types[unknown] = UNKNOWN
    return types.tobytes()


def end_ids(file: "File") -> frozenset[int]:
    """The ids that end a generation (a frozenset), also where this build cannot tokenize with the
    vocabulary of `file`.
    """
    try:
        return Vocab(file).eog
    except Fault as e:
        if e.code != UNSUPPORTED:
            raise
    ids = (file.get(f"{KEY}{name}_token_id", "u32", NONE) for name in ("eos", "eot", "eom"))
    return frozenset(i for i in ids if i != NONE)


def power_of_two(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(n - 1, 1).bit_length()
