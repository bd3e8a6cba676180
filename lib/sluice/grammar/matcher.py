"""Grammar matcher: which bytes, and which tokens of a vocabulary, may come next.

A grammar (gbnf.py) becomes an automaton over bytes (automaton.py). csrc/grammar/grammar.c runs it,
and csrc/grammar/mask.c runs it over the vocabulary.
"""

import itertools
import weakref

from .. import stream
from ..faults import data_error, printable, unsupported_error
from ..kernels import ffi, lib
from . import automaton, gbnf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .syntax import Syntax

MAX_TEXT_BYTES = 32 << 20  # of a vocabulary, as in csrc/grammar/trie.c
MAX_FORCED = 1024  # bytes that are looked at for one token
MAX_SHORTEST = 1 << 20  # bytes
FAILURES = {
    lib.GRAMMAR_WIDE: "too ambiguous: more than 4096 live stacks",
    lib.GRAMMAR_SLOW: "too ambiguous: more than 4 million steps for one token",
    lib.GRAMMAR_DEEP: "nested too deeply: the stacks need more than 1 million frames",
}


_tries: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


class Grammar:
    """A compiled grammar.

    source  bytes, GBNF; or a Syntax, from GBNF, a regular expression or a JSON Schema
    name    for messages, usually the path
    """

    def __init__(self, source: "bytes | Syntax", name: str) -> None:
        self.name = name
        syntax = gbnf.parse(source, name) if isinstance(source, bytes) else source
        program = automaton.Program(syntax)
        self.node = ffi.new("grammar_node[]", program.node)
        self.arc = ffi.new("grammar_arc[]", program.arc)
        self.target = ffi.new("int32_t[]", program.target)
        self.loop = ffi.new("grammar_loop[]", program.loop)
        self.exception = ffi.new("grammar_exception[]", program.exception)
        ends = [0]
        for word in program.words:
            ends.append(ends[-1] + len(word))
        self.word_end = ffi.new("int32_t[]", ends)
        self.words = ffi.from_buffer("uint8_t[]", b"".join(program.words) + b"\0")
        self.program = ffi.new("grammar_program *")
        p = self.program
        p.node, p.arc, p.target, p.loop = self.node, self.arc, self.target, self.loop
        p.exception, p.word_end, p.words = self.exception, self.word_end, self.words
        p.n_node, p.n_arc, p.n_loop = len(self.node), len(self.arc), len(self.loop)
        p.start = program.start
        self.tokens = program.token


class Matcher:
    """State of a grammar after some text; the text is fed by bytes or, with a vocabulary, by
    tokens.

    vocab: an object with the `n_vocab`, `eog` and `table()` of vocabulary.Vocab, or None. Matchers
    of a vocabulary share its prefix tree, so they are used in turn, not in several threads at once.
    """

    def __init__(self, grammar: "Grammar", vocab: "Any" = None) -> None:
        self.grammar, self.vocab = grammar, vocab
        status = ffi.new("int32_t *")
        self._tokens = ffi.new("grammar_token[]", self._resolved())
        self._grammar = lib.grammar_new(status, grammar.program, self._tokens)
        self._check(status[0])
        self._grammar = ffi.gc(self._grammar, lib.grammar_free)
        if vocab is None:
            return
        self._text, self._offset = vocab.table()
        self._words = -(-vocab.n_vocab // 64)
        if vocab not in _tries:
            _tries[vocab] = self._new_trie()
        self._trie = _tries[vocab]
        self._allowed = ffi.new("uint64_t[]", self._words)
        self._last = ffi.new("int32_t *")
        self._out: Any = None
        self._forced = ffi.new("uint8_t[]", MAX_FORCED), ffi.new("uint8_t[]", MAX_FORCED)

    def _resolved(self):
        """Return the token terminals of the grammar, with the tokens' numbers."""
        out = []
        for negated, wanted, after in self.grammar.tokens:
            if self.vocab is None:
                raise unsupported_error(self.grammar.name, "token terminals need a model's tokens")
            token = wanted
            if isinstance(wanted, str):
                found = self.vocab.encode(wanted.encode(), special=True, bos=False, prefix=False)
                token = found[0] if len(found) == 1 else -1
            if not 0 <= token < self.vocab.n_vocab:
                shown = wanted if isinstance(wanted, str) else f"<[{wanted}]>"
                raise data_error(self.grammar.name, f"{printable(shown)} is no token of the model")
            if token in self.vocab.eog and not negated:
                raise unsupported_error(
                    self.grammar.name, f"token {token} ends the text, so no grammar can ask for it"
                )
            out.append((token, negated, after))
        return out

    def _new_trie(self):
        n_vocab = self.vocab.n_vocab
        skip = self._token_set(self.vocab.eog)
        trie = lib.trie_new(self._text, self._offset, skip, n_vocab)
        if not trie:
            if self._offset[n_vocab] > MAX_TEXT_BYTES:
                raise data_error("vocabulary", f"more than {MAX_TEXT_BYTES >> 20} MiB of text")
            raise MemoryError
        return ffi.gc(trie, lib.trie_free)

    @property
    def complete(self) -> bool:
        """Whether the text so far is a sentence of the grammar."""
        return bool(lib.grammar_state(self._grammar) & lib.GRAMMAR_COMPLETE)

    @property
    def open(self) -> bool:
        """Whether more bytes may follow."""
        return bool(lib.grammar_state(self._grammar) & lib.GRAMMAR_OPEN)

    def feed(self, data: bytes) -> bool:
        """Append `data` (bytes). False if no sentence continues like this; after False or
        an Error the matcher cannot be used.
        """
        return self._check(
            lib.grammar_feed(self._grammar, ffi.from_buffer("uint8_t[]", data), len(data))
        )

    def accept(self, token: int) -> bool:
        """Append the text of `token`. False as for `feed`."""
        start, end = self._offset[token], self._offset[token + 1]
        if token in self.vocab.eog:
            return False
        return self._check(
            lib.grammar_feed_token(self._grammar, token, self._text + start, end - start)
        )

    def allowed(self) -> "tuple[Any, bool]":
        """Return (set, last): the tokens that may come next, and whether each of them ends
        the text.

        set: uint64_t [(n_vocab + 63) / 64], one bit per token, valid until the next call.
        EOG tokens are in it exactly if the text is complete. last: after any of these
        tokens the text is complete and cannot continue. DataError if the grammar is too
        ambiguous.
        """
        status = lib.grammar_allowed(self._allowed, self._last, self._grammar, self._trie)
        if not self._check(status):
            return self._allowed, False
        complete = self.complete
        for token in self.vocab.eog:
            if complete:
                self._allowed[token // 64] |= 1 << token % 64
            else:  # a terminal of all other tokens
                self._allowed[token // 64] &= ~(1 << token % 64)
        return self._allowed, bool(self._last[0])

    def forced(self) -> tuple[bytes, bytes, bool]:
        """Return (text, open, last): the bytes that must come next, at most MAX_FORCED; for each
        whether a token that begins there may go on beyond them (1) or not (0); whether the text is
        complete behind them and cannot continue.
        """
        text, is_open = self._forced
        n = lib.grammar_forced(text, is_open, self._last, MAX_FORCED, self._grammar, self._trie)
        self._check(min(n, 0))
        return ffi.buffer(text, n)[:], ffi.buffer(is_open, n)[:], bool(self._last[0])

    def shortest(self) -> "list[bytes | tuple[int, bool]]":
        """Return the shortest text that makes a sentence of the text so far: bytes, and token
        terminals as (token, whether all others are meant). DataError if it is longer than
        MAX_SHORTEST, or if there is none.
        """
        out = ffi.new("int32_t[]", MAX_SHORTEST)
        n = lib.grammar_shortest(out, MAX_SHORTEST, self._grammar)
        if n == lib.GRAMMAR_DEEP:
            raise data_error(
                self.grammar.name, f"the shortest text is longer than {MAX_SHORTEST >> 10} KiB"
            )
        if not self._check(min(n, 0)):
            raise data_error(self.grammar.name, "no text can complete what has been written")
        parts: list[bytes | tuple[int, bool]] = []
        for is_text, values in itertools.groupby(ffi.unpack(out, n), lambda x: x < 256):
            if is_text:
                parts.append(bytes(values))
            else:
                chosen = (self._tokens[x - 256] for x in values)
                parts += [(terminal.id, bool(terminal.negated)) for terminal in chosen]
        return parts

    def narrow(self, record: "stream.Record", allowed: "Any") -> "stream.Record | None":
        """Return the part of `record` that is in the set `allowed`, as a C record without flags;
        None if there is none.
        """
        if record.narrow:
            return record.narrow(allowed)
        n_vocab = self.vocab.n_vocab
        if self._out is None:
            self._out = ffi.new("candidate[]", n_vocab)
        if record.kind == b"L":
            n = lib.candidates_of_dense(
                self._out, ffi.from_buffer("float[]", record.payload), allowed, n_vocab
            )
        else:
            candidates = ffi.from_buffer("candidate[]", record.payload)
            n = lib.candidates_of_candidates(self._out, candidates, allowed, len(candidates))
        payload = ffi.buffer(self._out, n * ffi.sizeof("candidate"))[:]
        return stream.Record(b"C", 0, record.pos, record.prev, payload) if n else None

    def _token_set(self, tokens):
        words = ffi.new("uint64_t[]", self._words)
        for token in tokens:
            words[token // 64] |= 1 << token % 64
        return words

    def _check(self, status):
        if status == lib.GRAMMAR_NO_MEMORY:
            raise MemoryError
        if status in FAILURES:
            raise data_error(self.grammar.name, FAILURES[status])
        return status == 0


def read(path: str) -> "Grammar":
    """Return the Grammar in the file `path`. OSError; an Error names line and column."""
    return Grammar(stream.read_file(path, gbnf.MAX_SOURCE_BYTES), path)


def of_options(path: str | None, text: str | None) -> "Grammar | None":
    """Return the Grammar of the options -g (`path`) and -e (`text`), or None."""
    if path is not None:
        return read(path)
    return (
        None if text is None else Grammar(text.encode("utf-8", "surrogateescape"), "--grammar-text")
    )
