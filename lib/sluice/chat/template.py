"""Apply a chat template to messages; text in a message never becomes a control token or a turn.

The template is a Jinja program that comes with the model (`tokenizer.chat_template`). It never sees
the text of messages. sandbox.py renders it with placeholders in their place. The rendered text is
split at the placeholders, and the parts are tokenized one by one: parts of the template with
control tokens, messages without.

A placeholder is a random word, so a template can trim, join, split and test it like any text
without special markers. Three properties of a message stay visible to the template:

- White space around a message stands around its placeholder, so `| trim` works.
- An empty message is empty.
- The thinking markers in an assistant's message (`THINKING`) stay, so a template can drop earlier
  thoughts. Markers that the template keeps become control tokens, as when the model generated them.

The template is rendered twice with different placeholders. The second rendering has no white space
around messages, and its placeholders have characters that quoting and escaping change (SPECIMEN).
Apart from placeholders both results must be equal. If they are not, the template computes something
from the text (its length, its first letter, upper case, a JSON string) and is refused (65), as for
any other error in it.

Tools and calls of tools are shown to the template as they are, since it makes JSON of them. Control
tokens in their texts are cut (`_without_marks`): a random word stands within each, which is removed
from what the template prints, and the parts around it are tokenized one by one.
"""

import json
import os
import re
from typing import NamedTuple

from .. import stream
from ..faults import UNSUPPORTED, USAGE, Error, data_error, printable
from ..limits import MAX_TEXT_BYTES
from . import placeholders, sandbox
from .message import Message
from .tools import Call, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab
    from .call_form import Form
    from .calling import Calling
    from .renderings import Renderings

CONFIGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs")
KEY = "tokenizer.chat_template"
MAX_BYTES = 1 << 20
SPECIMEN = "\"<&'"
WHITE_SPACE = (
    "\t\n\v\f\r"
    " \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
RESERVED = ("messages", "add_generation_prompt", "bos_token", "eos_token")
MAX_CALLINGS = 16  # that are kept
MAX_CUTS = 100  # different control tokens in texts of tools and calls


class Prompt(NamedTuple):
    """tokens: of a conversation. dropped: indices of the messages that the template drops.
    stable: the number of tokens before the last message, those that a later prompt may share.
    """

    tokens: list[int]
    dropped: list[int]
    stable: int


class Template:
    """A chat template with the vocabulary of a model.

    source: str, Jinja. name: the template's name in messages.
    variables: {name: value}, more variables for the template.
    renderings: a Renderings, or None; may be set. tools: list of Tool, may be set.
    """

    renderings: "Renderings | None" = None
    tools: "list[Tool]" = []

    def __init__(
        self, source: str, name: str, vocab: "Vocab", variables: "Mapping[str, Any] | None" = None
    ) -> None:
        self.source, self.name, self._vocab = source, name, vocab
        self._form: Form | None = None
        token = lambda i: (
            "" if i is None else vocab.bytes_of(i, special=True).decode("utf-8", "replace")
        )
        self._variables = {
            "tools": None,
            "documents": None,
            **(variables or {}),
            "bos_token": token(vocab.bos),
            "eos_token": token(vocab.eos),
        }

    @property
    def form(self) -> "Form":
        """How the template writes calls of tools. Raises UnsupportedError if it does not, or in a
        way that cannot be followed.
        """
        if self._form is None:
            from . import call_form

            self._form = call_form.find(self.source, self.name, self._rendered_any)
        return self._form

    def with_tools(
        self,
        its_tools: "list[Tool]",
        choice: str,
        note: "Callable[[str], object] | None" = None,
    ) -> "Calling | None":
        """Take `its_tools`; return the Calling of answers, or None without tools.

        Arguments and errors as of calling.Calling and of `form`.
        """
        self.tools = its_tools
        if not its_tools:
            return None
        from .calling import Calling

        return Calling(self.form, self.name, its_tools, choice, self._vocab, note)

    def _rendered_any(self, variables):
        """Render the template once for each of `variables`; None for each text that it refuses."""
        shape = ["calls", variables, self.source, self._variables]
        known = self.renderings.get(shape) if self.renderings else None
        if known:
            return known[1]
        found = self._asked([{**self._variables, **v} for v in variables], _now(), True)
        if self.renderings:
            self.renderings.put(shape, ([], found))
        return found

    def tokens(self, messages: "list[Message]", prompt: bool = True) -> tuple[list[int], list[int]]:
        """Tokenize a conversation: (tokens, dropped).

        prompt: add the tokens that precede the assistant's next message.
        dropped: indices of the messages that the template drops.
        Raises DataError if the template fails or cannot be followed, or Error 69 without Jinja2.
        """
        found = self.prompt(messages, prompt)
        return found.tokens, found.dropped

    def prompt(self, messages: "list[Message]", prompt: bool = True) -> "Prompt":
        """Tokenize a conversation as `tokens` does: a Prompt."""
        return self._prompt(self.segments(messages, prompt), messages)

    def before(self, messages: "list[Message]", role: str) -> "Prompt":
        """Tokenize `messages`, and the template's text before the next message, of role `role`."""
        segments = self.segments([*messages, Message(role, "x")], False)
        ends = [n for n, (_, _, i) in enumerate(segments) if i == len(messages)]
        if len(ends) != 1:
            raise data_error(
                self.name, f"does not print a last message of role {role} exactly once"
            )
        return self._prompt(segments[: ends[0]], messages)

    def continuing(self, messages: "list[Message]") -> "Prompt":
        """Tokenize `messages` up to the end of the last one's text, which the model goes on with.

        White space at its end stays even if the template drops it there. DataError if the template
        does not print the message.
        """
        last = len(messages) - 1
        # behind a thinking marker at the end there is no text that shows where the message ends
        *marks, end = placeholders.THINKING.split(messages[last].content)
        more = "x" if marks and not end.strip() else ""
        shown = Message(messages[last].role, messages[last].content + more, messages[last].tokens)
        segments = self.segments([*messages[:last], shown] if more else messages, False)
        places = [n for n, (_, _, i) in enumerate(segments) if i == last]
        if not places:
            raise data_error(self.name, "does not print the last message, which is to go on")
        segments = segments[: places[-1] + 1]
        content, text = messages[last].content, segments[-1][1]
        if more:
            segments[-1] = ("message", text[: -len(more)], last)
            return self._prompt(segments, messages)
        if content.strip() == text.strip():  # else the template took a part of it, such as thoughts
            text = text.rstrip() + content[len(content.rstrip()) :]
            segments[-1] = ("message", text, last)
            if messages[last].tokens is not None:
                messages = [*messages[:last], Message("", text, messages[last].tokens)]
        return self._prompt(segments, messages)

    def _prompt(self, segments, messages):
        """Return the Prompt of `segments`."""
        shown = {i for kind, _, i in segments if kind == "message"}
        dropped = [
            i
            for i, m in enumerate(messages)
            if m.content.strip() and i not in shown and not m.calls
        ]
        starts = []
        tokens = self._join(segments, messages, starts)
        last = next((n for n, s in enumerate(segments) if s[2] == len(messages) - 1), None)
        return Prompt(tokens, dropped, len(tokens) if last is None else starts[last])

    def segments(
        self, messages: "list[Message]", prompt: bool = True
    ) -> list[tuple[str, str, int | None]]:
        """Render a conversation as segments, [(kind, text, index)].

        kind: "template" (index None), or "message" for messages[index]. The joined texts are the
        text of the conversation.
        """
        form = self._form_for(messages)
        known, shape = None, None
        if self.renderings:
            shape = self._shape(messages, prompt, form)
            known = self.renderings.get(shape)
        nonces, texts = known or ([f"c{os.urandom(14).hex()}c"], [])
        cut = nonces[0]
        found, made = [], []
        for n, (letter, size, specimen) in enumerate((("q", 12, ""), ("z", 17, SPECIMEN)), 1):
            if not known:
                nonces.append(letter + os.urandom(size).hex() + specimen)
            nonce = nonces[n]
            slots = [placeholders.split(m, i, nonce, letter, form) for i, m in enumerate(messages)]
            if not known:
                made.append(
                    [
                        self._shown(
                            m, messages[:i], placeholders.joined(parts, letter == "q"), form, cut
                        )
                        for i, (m, parts) in enumerate(zip(messages, slots))
                    ]
                )
            pattern = re.escape(nonce)
            if form and form.quoted and specimen:
                pattern = f"(?:{pattern}|{re.escape(json.dumps(nonce)[1:-1])})"
            found.append(
                (
                    re.compile(f"({pattern}[0-9]+x[0-9]+{letter})"),
                    {mark: real for parts in slots for _, mark, real in parts if real},
                )
            )
        if not known:
            texts = self._render(made, prompt, form, cut)
        if self.renderings and not known:
            self.renderings.put(shape, (nonces, texts))
        a, b = ([part for part in found[n][0].split(texts[n])] for n in (0, 1))
        if form and form.quoted:
            b[1::2] = [placeholders.unquoted(part, found[1][1], messages) for part in b[1::2]]
        return placeholders.without(cut, self._matched(a, b, found[0][1], found[1][1]))

    def _form_for(self, messages):
        """Return the Form that `messages` and the tools need, or None."""
        if self.tools or any(m.calls or m.role == "tool" for m in messages):
            return self.form
        return None

    def _shown(self, message, before, content, form, cut):
        """Return a message for the template. before: the messages before it. content: its text,
        with placeholders.
        """
        shown = {"role": message.role, "content": content}
        if message.calls:
            calls = [
                Call(c.id, self._cut(c.name, cut), self._cut(c.arguments, cut))
                for c in message.calls
            ]
            self._add_calls(shown, calls, form)
        if message.role == "tool":
            call = placeholders.answered(message, before)
            name = message.name or (call.name if call else "")
            id = message.call_id or (call.id if call else "")
            shown.update({k: v for k, v in (("name", name), ("tool_call_id", id)) if v})
        return shown

    def _add_calls(self, shown, calls, form):
        from . import call_form

        try:
            call_form.add(shown, calls, form)
        except ValueError as e:
            raise data_error("messages", f"arguments of a call: {e}") from None

    def _cut(self, text, cut):
        """Return `text` with the word `cut` within the text of each control token and mark."""
        for _ in range(MAX_CUTS):
            data = text.encode("utf-8", "replace")
            tokens = self._vocab.encode(data, bos=False, eos=False, special=True, prefix=False)
            marks = {i for i in tokens if self._vocab.is_mark(i)}
            if not marks:
                return text
            for i in marks:
                mark = self._vocab.bytes_of(i, special=True).decode("utf-8", "replace")
                if len(mark) < 2 or mark not in text:
                    break
                text = text.replace(mark, mark[0] + cut + mark[1:])
        raise data_error(self.name, "too many control tokens in the texts of tools or calls")

    def _cut_all(self, value, cut):
        if isinstance(value, str):
            return self._cut(value, cut)
        if isinstance(value, list):
            return [self._cut_all(v, cut) for v in value]
        if isinstance(value, dict):
            return {self._cut(k, cut): self._cut_all(v, cut) for k, v in value.items()}
        return value

    def _shape(self, messages, prompt, form):
        """Return all on which a rendering depends, without the text of messages; None if that is
        the time, or the calls of tools, which the rendering would have.
        """
        now = _now()
        if now is None and "strftime_now" in self.source or any(m.calls for m in messages):
            return None
        seen = [
            (
                [m.role, m.name, m.call_id],
                [
                    (kind, "" if slot else text)
                    for kind, text, slot in placeholders.split(m, 0, "", "", form)
                ],
            )
            for m in messages
        ]
        return [self.source, self._variables, [t.entry for t in self.tools], now, seen, prompt]

    def _matched(self, a, b, slots, other_slots):
        """Return the segments. a, b: parts of both renderings, template and placeholder in turn."""
        # a template can change the numbers in a placeholder
        known = all(x in slots for x in a[1::2]) and all(y in other_slots for y in b[1::2])
        same = (
            known
            and len(a) == len(b)
            and all(slots[x][0] == other_slots[y][0] for x, y in zip(a[1::2], b[1::2]))
        )
        if not (
            same and all("".join(x.split()) == "".join(y.split()) for x, y in zip(a[::2], b[::2]))
        ):
            raise data_error(
                self.name, "changes the text of a message in a way that cannot be followed"
            )
        if (
            sum(len(slots[part][2]) if n % 2 else len(part) for n, part in enumerate(a))
            > MAX_TEXT_BYTES
        ):
            raise data_error(
                self.name,
                f"prints more than {MAX_TEXT_BYTES >> 20} Mi characters for the conversation",
            )
        out, lead = [], ""
        for n, part in enumerate(a):
            if n % 2:
                (i, _), _, text, _ = slots[part]
                out.append(["message", lead + text, i])
                continue
            extra = max(0, len(part) - len(b[n]))  # white space of the messages
            head = min(extra, len(part) - len(part.lstrip()), len(slots[a[n - 1]][3]) if n else 0)
            tail = min(
                extra - head,
                len(part) - len(part.rstrip()),
                len(slots[a[n + 1]][1]) if n + 1 < len(a) else 0,
            )
            if head:
                out[-1][1] += part[:head]
            lead = part[len(part) - tail :]
            out.append(["template", part[head : len(part) - tail], None])
        return [tuple(s) for s in out if s[1]]

    def _join(self, segments, messages, starts=None):
        """Tokenize segments and join the tokens. starts: a list, to which the number of tokens
        before each segment is appended.

        A message with known tokens keeps them if the template prints it unchanged.
        """
        tokens = []
        for n, (kind, text, i) in enumerate(segments):
            if starts is not None:
                starts.append(len(tokens))
            after = tokens[-1] if tokens else None
            first = after is None or self._vocab.splits(after)
            taken = self._vocab.strips_before and self._white_space_is_taken(segments[n + 1 :])
            data = (text.rstrip(WHITE_SPACE) if taken else text).encode("utf-8", "replace")
            if kind == "template":
                tokens += self._encode_template(data, first, after)
            elif messages[i].tokens is not None and messages[i].content == text:
                tokens += messages[i].tokens
            else:
                tokens += self._vocab.encode(
                    data, bos=False, eos=False, prefix=first, marks=False, after=after
                )
        return tokens

    def _white_space_is_taken(self, segments):
        """Whether the next template segment with text begins with a token that takes white space
        before it along.
        """
        for kind, text, _ in segments:
            if text.strip(WHITE_SPACE):
                return kind == "template" and self._vocab.begins_stripping(
                    text.encode("utf-8", "replace")
                )
        return False

    def _encode_template(self, text, first, after):
        """Tokenize a part of the template, with control tokens.

        first: whether it begins a text, which gets the vocabulary's space. after: the token before
        it, or None.
        """
        v = self._vocab
        if first or not v.add_prefix:
            return v.encode(text, bos=False, eos=False, special=True, after=after)
        tokens = v.encode(text, bos=False, eos=False, special=True, prefix=False)
        control = next((i for i in tokens if v.splits(i)), None)
        if control is None:
            return tokens
        # the text after the first control token is tokenized as the begin of a text
        at = text.find(v.bytes_of(control, special=True))
        return v.encode(text[:at], bos=False, eos=False, prefix=False) + v.encode(
            text[at:], bos=False, eos=False, special=True
        )

    def _render(self, conversations, prompt, form, cut):
        """Render each of `conversations`, lists of {role, content}; return the texts."""
        names = {**self._variables, "add_generation_prompt": prompt}
        if form and self.tools:
            entries = self._cut_all([t.entry for t in self.tools], cut)
            names.update(dict.fromkeys(form.variables, entries))
        return self._asked([{**names, "messages": c} for c in conversations], _now())

    def _asked(self, variables, now, each=False):
        """Return the texts of the template for each of `variables`; with `each` None for those
        that the template refuses.
        """
        request = {"template": self.source, "now": now, "variables": variables}
        answer = sandbox.ask({**request, **({"each": True} if each else {})}, self.name)
        if "missing" in answer:
            raise Error(
                UNSUPPORTED, f"chat templates need {answer['missing']}, which is not installed"
            )
        if "error" in answer:
            raise data_error(
                self.name,
                re.sub(
                    f"[qz][0-9a-f]{{24,34}}({SPECIMEN})?[0-9]+x[0-9]+[qz]", "...", answer["error"]
                ),
            )
        return answer["texts"]


class Callings:
    """The Callings made last: the masks of a grammar are kept with it."""

    def __init__(self) -> None:
        self._made: dict[Any, Calling] = {}

    def of(
        self, template: Template, choice: str, note: "Callable[[str], object] | None" = None
    ) -> "Calling":
        """Return the Calling of the template's tools. Errors as of Template.with_tools."""
        key = template.source, choice, json.dumps([tool.entry for tool in template.tools])
        if key not in self._made:
            while len(self._made) >= MAX_CALLINGS:
                del self._made[next(iter(self._made))]
            found = template.with_tools(template.tools, choice, note)
            assert found is not None
            self._made[key] = found
        return self._made[key]


def _now():
    """Return $SOURCE_DATE_EPOCH, the date that templates print, in seconds, or None. Error 64."""
    now = os.environ.get("SOURCE_DATE_EPOCH", "")
    if now and not (now.isascii() and now.isdigit() and len(now) < 12):
        raise Error(
            USAGE,
            f"SOURCE_DATE_EPOCH: {printable(now)} is not a number of seconds from 0 to 99999999999",
        )
    return int(now) if now else None


def of(
    file: "File",
    vocab: "Vocab",
    path: str | None = None,
    variables: "Mapping[str, Any] | None" = None,
) -> "Template":
    """Return the template of the model `file`, or the one that `path` names.

    path: a file, or the name of a bundled template (configs/*.jinja). None: the model's template.
    Raises UnsupportedError (69) if the model has no template, DataError, or OSError.
    """
    if path is None:
        source = file.get(KEY, "string", None)
        if not source:
            names = ", ".join(sorted(n[:-6] for n in os.listdir(CONFIGS) if n.endswith(".jinja")))
            raise Error(
                UNSUPPORTED,
                f"{file.path}: has no chat template ({KEY}); give one by --template: {names}, or a"
                " file",
            )
        return Template(source, f"{file.path}: {KEY}", vocab, variables)
    bundled = os.path.join(CONFIGS, f"{path}.jinja")
    if os.sep not in path and not os.path.exists(path) and os.path.exists(bundled):
        path = bundled
    try:
        return Template(stream.read_file(path, MAX_BYTES).decode(), path, vocab, variables)
    except UnicodeDecodeError as e:
        raise data_error(path, f"byte {e.start} is not UTF-8") from None


def parse_variable(text: str) -> "tuple[str, Any]":
    """Parse NAME=VALUE: (name, value). value: parsed JSON, else a string. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier() and not name.startswith("_")):
        raise ValueError(f"{printable(text)} is not of the form NAME=VALUE")
    if name in RESERVED:
        raise ValueError(f"{name} is reserved")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
