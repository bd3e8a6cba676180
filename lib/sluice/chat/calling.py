"""Answers that may call tools: their grammar, and the calls in their text.

The grammar allows a text, or calls in the form of the template (call_form.py) whose arguments
satisfy the schemas of the tools. What begins a call, its mark, stands in no text: `<tool_call>`, or
a control token. If calls are bare JSON the mark is the bracket at the begin of an answer. No text
begins with a bracket, so the output of a command tells which of both it is.
"""

import hashlib
import re

from ..faults import data_error, unsupported_error
from ..generate.generation import Answer
from ..grammar.building import Builder
from ..grammar.charset import complement, merge, without_surrogates
from ..grammar.matcher import Grammar
from ..grammar.schema import compiler
from . import tools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..tokenizer.vocabulary import Vocab
    from .call_form import Form

MAX_CALLS = 16  # of an answer
MAX_BLANKS = 8  # white space before an answer
SPACE, BRACKETS = "\t\n\r ", "{["
MARK = re.compile(r"[^\s{\[]*")
ID_CLASS = ((48, 57), (65, 90), (97, 122))
ID_LETTERS = "".join(chr(c) for lo, hi in ID_CLASS for c in range(lo, hi + 1))
N_ID = 9


class Calling:
    """The calls that an answer may have.

    form: of the template, with the name `name`. its_tools: the tools. choice: "auto", "required",
    "none", or the name of the tool that must be called.

    grammar: the Grammar of an answer. note: as of grammar.schema.compiler.compile.

    UnsupportedError for a schema that cannot be honoured, and DataError for one that is wrong, or
    that no object satisfies; both name the tool and the place.
    """

    def __init__(
        self,
        form: "Form",
        name: str,
        its_tools: "list[tools.Tool]",
        choice: str,
        vocab: "Vocab",
        note: "Callable[[str], object] | None" = None,
    ) -> None:
        self.form, self.tools, self.vocab = form, its_tools, vocab
        lead = form.before.lstrip()
        parts = self._parts(lead)
        self.token = parts[0] if parts and isinstance(parts[0], int) else None
        self.mark = ""
        self.is_bare = lead[:1] in tuple(BRACKETS)
        if self.token is None and not self.is_bare:
            self.mark = MARK.match(lead)[0]  # type: ignore[index]
        if not (self.token is not None or self.is_bare or self.mark):
            raise unsupported_error(name, "calls begin with the name of a tool, as a text may")
        self.grammar = Grammar(self._syntax(choice, note), "--tools")

    def answer(self, stops: "Iterable[bytes]" = (), echo: "Iterable[int]" = ()) -> "CallAnswer":
        """Return the text of an answer, as generation.Answer does."""
        return CallAnswer(self, stops, echo)

    # the grammar

    def _syntax(self, choice, note):
        first = self.tools[0]
        builder = Builder(first.place.removesuffix(f": {first.name}"))  # the file of tools
        root = builder.fresh("root")
        named = [t for t in self.tools if choice in ("auto", "required", t.name)]
        rules = [(t, compiler.compile_object(builder, t.schema, _place(t), note)) for t in named]
        answers = _Answers(self, builder, self._calls_rule(builder, rules) if rules else None)
        builder.rule(root, answers.whole(choice in ("auto", "none")))
        syntax = builder.finish()
        for tool, rule in rules:
            if syntax is None or rule not in syntax.rules:
                raise data_error(_place(tool), "the schema allows no object")
        return syntax

    def _calls_rule(self, b, rules):
        """Return the rule of the calls behind their mark."""
        form = self.form
        alternatives = []
        for tool, rule in rules:
            nodes = []
            for slot, part in zip(form.slots, (*form.parts, "")):
                nodes += self._slot(b, slot, tool, rule) + self.literal(b, part)
            alternatives.append(b.sequence(nodes))
        call = b.fresh("call")
        b.rule(call, b.choice(alternatives))
        nodes = [*self.literal(b, self._behind_mark()), b.name(call)]
        if form.between:
            more = b.sequence([*self.literal(b, form.between), b.name(call)])
            nodes.append(b.repeat(more, 0, MAX_CALLS - 1))
        nodes += self.literal(b, form.after)
        calls = b.fresh("calls")
        b.rule(calls, b.sequence(nodes))
        return calls

    def _behind_mark(self):
        lead = self.form.before.lstrip()
        if self.token is not None:
            return lead[len(self.text_of(self.token)) :]
        return lead[len(self.mark) :]

    def _slot(self, b, slot, tool, rule):
        if slot == "name":
            return [b.text(tool.name.encode())]
        if slot == "arguments":
            return [b.name(rule)]
        return [b.repeat(b.characters(ID_CLASS), N_ID, N_ID)]

    def text_of(self, token: int) -> str:
        """Return the text of a control token."""
        return self.vocab.bytes_of(token, special=True).decode("utf-8", "replace")

    def _parts(self, text):
        """Return `text` as texts and control tokens (int), up to the first that ends an answer."""
        v, out = self.vocab, []
        tokens = v.encode(text.encode(), bos=False, eos=False, special=True, prefix=False)
        for token in filter(v.is_control, tokens):
            before, mark, text = text.partition(self.text_of(token))
            if before:
                out.append(before)
            if token in v.eog:
                return out
            out.append(token)
        return [*out, text] if text else out

    def literal(self, b: Builder, text: str) -> "list[int]":
        """Return the nodes of a fixed text, with its control tokens."""
        nodes = []
        for part in self._parts(text):
            if isinstance(part, int):
                nodes.append(b.token(part))
            elif nodes and self.vocab.add_prefix:  # the blank of a text behind a control token
                nodes += [b.repeat(b.text(b" "), 0, 1), b.text(part.encode())]
            else:
                nodes.append(b.text(part.encode()))
        return nodes

    # the text

    def calls(self, text: str, n_before: int) -> "list[tools.Call] | None":
        """Return the calls in `text`, from their mark on; None if they are not whole.

        n_before: number of messages before the answer, from which IDs are made.
        """
        form, found = self.form, []
        at = _after(text, 0, form.before)
        while at is not None:
            values: dict[str, str] = {}
            for slot, part in zip(form.slots, (*form.parts, None)):
                end = self._slot_end(text, at, slot)
                if end is None:
                    return None
                values[slot] = text[at:end]
                at = end if part is None else _after(text, end, part)
                if at is None:
                    return None
            id = values.get("id") or _id(n_before, len(found), values)
            found.append(tools.Call(id, values["name"], values["arguments"]))
            end, at = at, form.between and _after(text, at, form.between)
            if at is None and _after(text, end, _without_end(form.after, self)) is not None:
                return found
        return None

    def _slot_end(self, text, at, slot):
        if slot == "name":
            names = [t.name for t in self.tools if text.startswith(t.name, at)]
            return at + max(map(len, names)) if names else None
        if slot == "id":
            return at + N_ID if len(text) >= at + N_ID else None
        return _json_end(text, at)


class CallAnswer(Answer):
    """As generation.Answer, of an answer that may call tools: its text ends where a call begins.

    `stops` are looked for in the text alone. called: whether a call has begun. calls(n_before): the
    calls, None if there are none, or if they are not whole.
    """

    def __init__(
        self, calling: Calling, stops: "Iterable[bytes]" = (), echo: "Iterable[int]" = ()
    ) -> None:
        super().__init__(calling.vocab, stops, echo)
        self._calling, self._vocab = calling, calling.vocab
        self._mark = calling.mark.encode()
        self._held, self._is_at_start, self._called = b"", True, None

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        return self._called is not None

    def calls(self, n_before: int) -> "list[tools.Call] | None":
        """Return the calls; see Calling.calls."""
        if self._called is None:
            return None
        return self._calling.calls(self._called.decode("utf-8", "replace"), n_before)

    def add(self, token: int) -> bytes:
        """Return the text (bytes) that is complete with `token`."""
        if self._called is not None:
            if token not in self._vocab.eog:
                self._joiner.add(token)
                self._called += self._joiner.fetch() or self._control(token)
            return b""
        if token == self._calling.token:
            data = super().remainder() + self._held
            self._pending, self._held, self._called = b"", b"", self._control(token)
            return data
        return self._before_mark(super().add(token))

    def remainder(self) -> bytes:
        """Return the text left at the end."""
        return b"" if self._called is not None else self._held + super().remainder()

    def _control(self, token):
        return self._vocab.bytes_of(token, special=True) if self._vocab.is_control(token) else b""

    def _before_mark(self, data):
        """Return the part of `data` that is text, and begin the call behind it."""
        data, self._held = self._held + data, b""
        if self._is_at_start and data.strip():
            self._is_at_start = False
            if self._calling.is_bare and data.lstrip()[:1] in (b"{", b"["):
                return self._begin(data, 0)
        if self._mark and self._mark in data:
            return self._begin(data, data.index(self._mark))
        n = min(len(data), max(len(self._mark) - 1, 0))
        while n and not self._mark.startswith(data[len(data) - n :]):
            n -= 1
        self._held = data[len(data) - n :]
        return data[: len(data) - n]

    def _begin(self, data, at):
        self._called, self._pending = data[at:] + self._pending, b""
        return data[:at]


class _Answers:
    """Rules of answers. calls: the rule of what follows the mark, or None if nothing may call."""

    def __init__(self, calling: Calling, builder: Builder, calls: "str | None") -> None:
        self._b, self._calls, self._calling = builder, calls, calling
        self._after_text = bool(calls) and calling.form.after_text and not calling.is_bare

    def whole(self, may_be_text: bool) -> int:
        """Return the node of an answer. may_be_text: it need not have calls."""
        b, vocab = self._b, self._calling.vocab
        begin = self._text() if may_be_text else self._call()
        if not self._calling.form.in_thought:
            return b.name(begin)
        behind, end = b.fresh("behind"), vocab.control_token("</think>")
        b.rule(behind, b.sequence([self._blanks(), b.name(begin)]))
        if end is not None and vocab.is_control(end):
            return b.name(_Text(b, "", behind, end, may_be_text).states[0])
        return b.name(_Text(b, "</think>", behind, None, may_be_text).states[0])

    def _blanks(self):
        return self._b.repeat(self._b.characters(_ranges(SPACE)), 0, MAX_BLANKS)

    def _call(self):
        """Return the rule of an answer that is a call."""
        b, calling = self._b, self._calling
        nodes = [self._blanks()]
        nodes += [b.token(calling.token)] if calling.token is not None else []
        nodes += [b.text(calling.mark.encode())] if calling.mark else []
        begin = b.fresh("begin")
        b.rule(begin, b.sequence([*nodes, b.name(self._calls)]))
        return begin

    def _text(self):
        """Return the rule of an answer that may be a text: white space, then neither bracket nor,
        if no call may follow a text, the mark.
        """
        b, calling, calls = self._b, self._calling, self._calls
        mark, then = calling.mark, calls if self._after_text else None
        text = _Text(b, mark, then, calling.token if then else None, True)
        begin = b.fresh("begin")
        others = _others(set(SPACE + BRACKETS + mark))
        parts = [
            b.empty(),
            b.sequence([b.characters(_ranges(SPACE)), b.name(begin)]),
            b.sequence([b.characters(others), b.name(text.states[0])]),
        ]
        for c in sorted(set(mark)):
            if c == mark[0] and calls and not then:
                parts.append(b.name(self._mark_first(text, 0)))
            else:
                parts += text.arc(0, c)
        if calls and calling.token is not None:
            parts.append(b.sequence([b.token(calling.token), b.name(calls)]))
        elif calls and calling.is_bare:
            parts.append(b.name(calls))
        b.rule(begin, b.choice(parts))
        return begin

    def _mark_first(self, text, i):
        """Return the rule of an answer that has begun with mark[:i], where no call may follow a
        text.
        """
        b, mark = self._b, self._calling.mark
        name = b.fresh("first")
        then = self._calls if i + 1 == len(mark) else self._mark_first(text, i + 1)
        parts = [b.sequence([b.text(mark[i].encode()), b.name(then)])]
        if i:
            others = _others(set(mark))
            parts += [b.empty(), b.sequence([b.characters(others), b.name(text.states[0])])]
            for c in sorted(set(mark) - {mark[i]}):
                parts += text.arc(i, c)
        b.rule(name, b.choice(parts))
        return name


class _Text:
    """Rules of texts without the word `mark`: states[i] is that in which mark[:i] was read last.

    then: the rule of what follows the mark, or the token `token`, if one is given; None: neither is
    allowed. may_end: whether a text may end without them.
    """

    def __init__(
        self, b: Builder, mark: str, then: "str | None", token: "int | None", may_end: bool
    ) -> None:
        self._b, self._mark, self._then = b, mark, then
        self.states = [b.fresh("text") for _ in mark or " "]
        for i, name in enumerate(self.states):
            others = _others(set(mark))
            parts = [b.sequence([b.characters(others), b.name(self.states[0])])]
            for c in sorted(set(mark)):
                parts += self.arc(i, c)
            if token is not None and then:
                parts.append(b.sequence([b.token(token), b.name(then)]))
            if may_end:
                parts.append(b.empty())
            b.rule(name, b.choice(parts))

    def arc(self, i: int, c: str) -> "list[int]":
        """Return the node of character `c` in state `i` with what follows it; [] if it is not
        allowed.
        """
        b, read = self._b, self._mark[:i] + c
        if read == self._mark:
            rule = self._then
        else:
            ends = (j for j in range(len(read), -1, -1) if read.endswith(self._mark[:j]))
            rule = self.states[next(ends)]
        return [b.sequence([b.text(c.encode()), b.name(rule)])] if rule else []


def _place(tool):
    return f"{tool.place}: parameters"


def _ranges(letters):
    return tuple(merge([(ord(c), ord(c)) for c in letters]))


def _others(letters):
    return without_surrogates(complement(_ranges(letters)))


def _after(text, at, literal):
    """Return where `text` goes on behind `literal` at text[at:], which may differ in the white
    space around it; None if it does not stand there.
    """
    want = literal.strip()
    start = at + len(text[at:]) - len(text[at:].lstrip()) if want else at
    if not text.startswith(want, start):
        return None
    end = start + len(want)
    return end + len(text[end:]) - len(text[end:].lstrip()) if literal != literal.rstrip() else end


def _without_end(text, calling):
    return "".join(p if isinstance(p, str) else calling.text_of(p) for p in calling._parts(text))


def _json_end(text, at):
    """Return the end of the JSON object at text[at:], or None if it is not whole."""
    depth, is_in_text, i = 0, False, at
    while i < len(text):
        c = text[i]
        if is_in_text:
            if c == "\\":
                i += 1
            is_in_text = c != '"'
        elif c == '"':
            is_in_text = True
        elif c in "{[":
            depth += 1
        elif c in "}]":
            depth -= 1
            if not depth:
                return i + 1
        i += 1
    return None


def _id(n_before, n, values):
    """Return an ID of a call: the same for the same call in the same place."""
    source = f"{n_before} {n} {values['name']} {values['arguments']}".encode()
    number = int.from_bytes(hashlib.sha256(source).digest()[:16], "big")
    out = ""
    for _ in range(N_ID):
        number, i = divmod(number, len(ID_LETTERS))
        out += ID_LETTERS[i]
    return out
