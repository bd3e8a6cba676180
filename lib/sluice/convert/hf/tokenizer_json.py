"""tokenizer.json reader (byte-level BPE or SentencePiece BPE): keys of tokenizer.ggml."""

from __future__ import annotations

from ...faults import data_error, printable, unsupported_error
from ...limits import MAX_VOCAB, MAX_VOCAB_FILE_BYTES
from ..reader import read_json
from ..tensor import Metadata
from . import pretokenizers

MAX_TOKEN_BYTES = 1 << 16
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"
BYTES = {f"<0x{b:02X}>" for b in range(256)}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Prepend", "prepend": SPACE}


class File:
    """A tokenizer.json. Error 65 or 69 names the field.

    model        "gpt2", "llama", or merges_model of the family (architecture.HuggingFace)
    ids          dict token -> token ID;  added: dict token ID -> entry
    merges       list of pairs of str
    add_prefix   bool
    bos_first, eos_last    tokens (str) that post-processing puts first and last; None: none; ...:
                 unknown
    """

    def __init__(self, path: str, merges_model: str = "") -> None:
        self.path, whole = path, read_json(path, MAX_VOCAB_FILE_BYTES)
        m = whole.get("model")
        if not isinstance(m, dict):
            raise self._data_error("model", "is missing")
        kind = m.get("type", "BPE" if "merges" in m else None)
        if kind != "BPE":
            raise unsupported_error(path, f"model.type {printable(str(kind))}, not BPE")
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if m.get(key):
                raise unsupported_error(path, f"model.{key}")
        self.ids, self.unknown = self._vocab(m.get("vocab")), m.get("unk_token")
        self.merges = self._merges(m.get("merges"))
        self.added = self._added(whole.get("added_tokens") or [])
        pre, normalizer = whole.get("pre_tokenizer"), whole.get("normalizer")
        self.model = "gpt2" if pretokenizers.has_bytes(pre) else merges_model or "llama"
        if self.model == "gpt2":
            self.pre = pretokenizers.recognise(path, pre, normalizer, m.get("ignore_merges", False))
        else:
            if not m.get("byte_fallback") or not BYTES <= self.ids.keys():
                raise unsupported_error(
                    path,
                    f"pre_tokenizer {printable(str(pre), 120)}: neither on bytes nor SentencePiece"
                    " with bytes to fall back on",
                )
            self.pre, self.add_prefix = "default", self._prefix(pre, normalizer)
        post = whole.get("post_processor")
        self.bos_first, self.eos_last = _token_at(post, 0), _token_at(post, -1)

    def _data_error(self, field, problem):
        return data_error(self.path, f"{field}: {problem}")

    def _vocab(self, vocab):
        if not isinstance(vocab, dict) or not vocab:
            raise self._data_error("model.vocab", "is not an object of tokens and IDs")
        if len(vocab) > MAX_VOCAB or not all(
            type(i) is int and 0 <= i < MAX_VOCAB for i in vocab.values()
        ):
            raise self._data_error("model.vocab", f"more than {MAX_VOCAB} tokens, or an invalid ID")
        if len(set(vocab.values())) < len(vocab):
            raise self._data_error("model.vocab", "two tokens have the same ID")
        return vocab

    def _merges(self, merges):
        if not isinstance(merges, list) or len(merges) > 4 * MAX_VOCAB:
            raise self._data_error("model.merges", "is not a list of pairs")
        out = []
        for i, pair in enumerate(merges):
            pair = pair.split(" ") if isinstance(pair, str) else pair
            if not (
                isinstance(pair, list)
                and len(pair) == 2
                and all(isinstance(p, str) and p for p in pair)
            ):
                raise self._data_error("model.merges", f"entry {i} is not a pair of tokens")
            if not (pair[0] in self.ids and pair[1] in self.ids and pair[0] + pair[1] in self.ids):
                raise self._data_error(
                    "model.merges",
                    f"entry {i}: {printable(' '.join(pair), 40)} is not made of tokens into a"
                    " token",
                )
            out.append(tuple(pair))
        return out

    def _added(self, entries):
        out = {}
        for i, e in enumerate(entries if isinstance(entries, list) else [None]):
            if not (
                isinstance(e, dict)
                and type(e.get("id")) is int
                and 0 <= e["id"] < MAX_VOCAB
                and isinstance(e.get("content"), str)
            ):
                raise self._data_error("added_tokens", f"entry {i} lacks id or content")
            if self.ids.get(e["content"], e["id"]) != e["id"]:
                raise self._data_error(
                    "added_tokens",
                    f"{printable(e['content'], 40)} has two IDs, {self.ids[e['content']]} and"
                    f" {e['id']}",
                )
            out[e["id"]] = e
        return out

    def _prefix(self, pre, normalizer):
        """Whether a text gets a leading space; only forms that mean SentencePiece are
        accepted.
        """
        steps = (
            normalizer.get("normalizers")
            if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence"
            else [normalizer]
        )
        meta = pre if isinstance(pre, dict) and pre.get("type") == "Metaspace" else None
        if (
            meta
            and steps in ([None], [])
            and meta.get("replacement") == SPACE
            and meta.get("split", True) is False
        ):
            scheme = meta.get(
                "prepend_scheme", "always" if meta.get("add_prefix_space", True) else "never"
            )
            if scheme in ("first", "always", "never"):
                return scheme != "never"
        parts = {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
        if pre in (None, parts) and steps in ([PREPEND, REPLACE], [REPLACE]):
            return len(steps) == 2
        raise unsupported_error(
            self.path,
            f"normalizer {printable(str(normalizer), 80)} with pre_tokenizer"
            f" {printable(str(pre), 80)}: not SentencePiece's",
        )

    def metadata(self, n_vocab: int) -> Metadata:
        """Return the tokenizer.ggml keys for a model of `n_vocab` rows: dict key -> (kind,
        value).

        Rows without a token get [PADi]; tokens beyond the rows are left out.
        """
        tokens, types = [f"[PAD{i}]" for i in range(n_vocab)], [UNUSED] * n_vocab
        for token, i in self.ids.items():
            if i >= n_vocab:
                raise self._data_error(
                    "model.vocab", f"token ID {i}, but the model has {n_vocab} rows"
                )
            is_byte = self.model != "gpt2" and token in BYTES
            tokens[i], types[i] = (
                token,
                (
                    BYTE
                    if is_byte
                    else UNKNOWN
                    if token == self.unknown and self.model != "gpt2"
                    else NORMAL
                ),
            )
        for i, e in self.added.items():
            if i < n_vocab and types[i] != UNKNOWN:
                tokens[i], types[i] = e["content"], CONTROL if e.get("special") else USER_DEFINED
        key = "tokenizer.ggml."
        out: Metadata = {
            key + "model": ("string", self.model),
            key + "pre": ("string", self.pre),
            key + "tokens": ("[string]", tokens),
        }
        if self.model not in ("gpt2", "llama"):
            del out[key + "pre"]
        if self.model == "llama":
            out[key + "scores"] = ("[f32]", self._scores(n_vocab))
        out[key + "token_type"] = ("[i32]", types)
        if self.model == "gpt2":
            out[key + "merges"] = ("[string]", list(map(" ".join, self.merges)))
        elif self.model != "llama":  # text never holds what is an added token
            given = {e["content"] for e in self.added.values()}
            merges = [" ".join(pair) for pair in self.merges if "".join(pair) not in given]
            out[key + "merges"] = ("[string]", merges)
        if self.model != "gpt2":
            out[key + "add_space_prefix"] = ("bool", self.add_prefix)
            if isinstance(self.unknown, str) and self.unknown in self.ids:
                out[key + "unknown_token_id"] = ("u32", self.ids[self.unknown])
        return out

    def _scores(self, n_vocab):
        """Return a score for each token such that SentencePiece makes the merges of this
        file, in their order.

        SentencePiece joins the pair that makes the token of the best score. So all pairs
        that make one token must be adjacent in the list, and no pair that makes a token of
        several characters may be absent. Both are checked; a score is minus the place in
        that order.
        """
        rank, n_pairs, last = {}, {}, None
        given = {e["content"] for e in self.added.values()}
        for a, b in self.merges:
            made = a + b
            if made in given:
                continue
            if made != last and made in rank:
                raise unsupported_error(
                    self.path,
                    f"model.merges: those that make {printable(made, 40)} stand apart: not"
                    " SentencePiece's",
                )
            rank.setdefault(made, len(rank))
            n_pairs[made], last = n_pairs.get(made, 0) + 1, made
        scores = [0.0] * n_vocab
        for token, i in self.ids.items():
            if token in given or token in BYTES:
                continue
            possible = sum(
                token[:at] in self.ids and token[at:] in self.ids for at in range(1, len(token))
            )
            if possible != n_pairs.get(token, 0):
                raise unsupported_error(
                    self.path,
                    f"model.merges: {printable(token, 40)} is made of {n_pairs.get(token, 0)}"
                    f" pairs, not {possible}: not SentencePiece's",
                )
            scores[i] = -float(rank.get(token, 0))
        return scores


def _token_at(post, at):
    """Return the token (str) that post-processing puts before a text (at 0) or after it (at -1);
    None if it puts none; ... without a template.
    """
    if not isinstance(post, dict):
        return ...
    if post.get("type") == "Sequence":
        parts = post.get("processors")
        found = [_token_at(p, at) for p in parts] if isinstance(parts, list) else []
        return next((f for f in found if f is not ...), ...)
    single = post.get("single")
    if (
        post.get("type") != "TemplateProcessing"
        or not isinstance(single, list)
        or not single
        or not isinstance(single[at], dict)
    ):
        return ...
    special = single[at].get("SpecialToken")
    return special.get("id") if isinstance(special, dict) else None
