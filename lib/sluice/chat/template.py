"""A chat template: from messages to tokens, in which no message can forge a control token or a
turn.

The template, a program in Jinja that comes with the model (`tokenizer.chat_template`), never sees
what messages say. It is rendered (renderer.py, in a process of its own, within limits) with
placeholders for them, the text that comes out is cut at the placeholders, and tokens are joined:
parts of the template tokenised with special matching, parts of messages without.

A placeholder is a random word, so a template may trim, join, split and test it like any text that
has none of the marks it looks for. Three things stay visible to it:

- Blanks and line ends around a message stand around its placeholder, so that `| trim` does what it
  does.
- An empty message is empty.
- In an assistant's message the marks of thinking (THINKING) stay, so that a template can leave
  earlier thoughts out. Where they
  come through, they are control tokens, as they were when the model wrote them.

The template is rendered twice, with different placeholders, the second time without the blanks
around messages and with characters in the words that quoting and escaping change (SPECIMEN). What
is left besides placeholders must be the same both times; if not, the template makes something of
the text itself (its length, its first letter, capitals, a string of JSON), and is refused: 65, as
is everything else that goes wrong in it.
"""

import json
import os
import re

from .. import stream
from ..faults import TRY_AGAIN, UNSUPPORTED, USAGE, Error, data_error, printable
from ..limits import MAX_TEXT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab

KEY = "tokenizer.chat_template"
MAX_BYTES = 1 << 20
SPECIMEN = "\"<&'"
WALL_SECONDS = 20  # beside the renderer's own limits: a machine that is busy
ROLES = ("system", "user", "assistant")
THINKING = re.compile("(<think>|</think>|<\\|channel>|<channel\\|>)")
WHITE_SPACE = (
    "\t\n\v\f\r"
    " \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
RESERVED = ("messages", "add_generation_prompt", "bos_token", "eos_token")
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from sluice.chat.renderer import main; main()"


class Message:
    """role: one of ROLES.
    content: str.
    tokens: of an answer that the model gave, the tokens it is written in; else None.
    """

    __slots__ = ("role", "content", "tokens")

    def __init__(self, role: str, content: str, tokens: list[int] | None = None) -> None:
        self.role, self.content, self.tokens = role, content, tokens


class Template:
    """source: str.
    name: what messages call it.
    vocab: a vocab.Vocab.
    variables: {name: value} that it finds beside its own.
    """

    def __init__(
        self, source: str, name: str, vocab: "Vocab", variables: "Mapping[str, Any] | None" = None
    ) -> None:
        self.source, self.name, self._vocab = source, name, vocab
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

    def tokens(self, messages: "list[Message]", prompt: bool = True) -> tuple[list[int], list[int]]:
        """(tokens, left_out) of a list of Messages; with `prompt` also what precedes the
        assistant's next one.

        left_out: the indices of messages of which the template writes nothing.
        """
        segments = self.segments(messages, prompt)
        shown = {i for kind, _, i in segments if kind == "message"}
        left_out = [i for i, m in enumerate(messages) if m.content.strip() and i not in shown]
        return self._join(segments, messages), left_out

    def tokens_before(self, messages: "list[Message]", role: str) -> list[int]:
        """The tokens of `messages` and of what precedes the text of one more, of `role`."""
        segments = self.segments([*messages, Message(role, "x")], False)
        ends = [n for n, (_, _, i) in enumerate(segments) if i == len(messages)]
        if len(ends) != 1:
            raise data_error(self.name, f"does not write the text of a last message of {role} once")
        return self._join(segments[: ends[0]], messages)

    def segments(
        self, messages: "list[Message]", prompt: bool = True
    ) -> list[tuple[str, str, int | None]]:
        """[(kind, text, index)]: kind "template" (index None) or "message", then of
        messages[index]; what is joined gives the text of the conversation.
        """
        found, made = [], []
        for letter, size, specimen in (("q", 12, ""), ("z", 17, SPECIMEN)):
            nonce = letter + os.urandom(size).hex() + specimen
            slots = [_split(m, i, nonce, letter) for i, m in enumerate(messages)]
            made.append(
                [
                    {
                        "role": m.role,
                        "content": "".join(
                            text if kind != "blank" or letter == "q" else ""
                            for kind, text, _ in parts
                        ),
                    }
                    for m, parts in zip(messages, slots)
                ]
            )
            found.append(
                (
                    re.compile(f"({nonce}[0-9]+x[0-9]+{letter})"),
                    {mark: real for parts in slots for _, mark, real in parts if real},
                )
            )
        texts = self._render(made, prompt)
        a, b = ([part for part in found[n][0].split(texts[n])] for n in (0, 1))
        return self._matched(a, b, found[0][1], found[1][1])

    def _matched(self, a, b, slots, other_slots):
        """Segments of the parts of both renderings: template and placeholder in turn."""
        # a template can change the numbers in one
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
                self.name, "makes something of the text of a message that cannot be followed"
            )
        if (
            sum(len(slots[part][2]) if n % 2 else len(part) for n, part in enumerate(a))
            > MAX_TEXT_BYTES
        ):
            raise data_error(
                self.name,
                f"makes more than {MAX_TEXT_BYTES >> 20} Mi characters of the conversation",
            )
        out, lead = [], ""
        for n, part in enumerate(a):
            if n % 2:
                (i, _), _, text, _ = slots[part]
                out.append(["message", lead + text, i])
                continue
            extra = max(0, len(part) - len(b[n]))  # blanks that were the messages' own
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

    def _join(self, segments, messages):
        """The tokens of segments. Of a message whose tokens are known these, where the template
        passes it on as it was.
        """
        tokens = []
        for n, (kind, text, i) in enumerate(segments):
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
        """Whether the first of a template's segments that is not white space begins with a token
        that takes along what is before it.
        """
        for kind, text, _ in segments:
            if text.strip(WHITE_SPACE):
                return kind == "template" and self._vocab.begins_stripping(
                    text.encode("utf-8", "replace")
                )
        return False

    def _encode_template(self, text, first, after):
        """The tokens of a part of the template, with special matching; a blank before it only where
        it is `first` of a text.

        after: the id that it follows, or None.
        """
        v = self._vocab
        if first or not v.add_prefix:
            return v.encode(text, bos=False, eos=False, special=True, after=after)
        tokens = v.encode(text, bos=False, eos=False, special=True, prefix=False)
        control = next((i for i in tokens if v.splits(i)), None)
        if control is None:
            return tokens
        # the first one: what follows it begins anew
        at = text.find(v.bytes_of(control, special=True))
        return v.encode(text[:at], bos=False, eos=False, prefix=False) + v.encode(
            text[at:], bos=False, eos=False, special=True
        )

    def _render(self, conversations, prompt):
        """The texts of conversations (lists of {role, content})."""
        answer = self._ask(
            {
                "template": self.source,
                "now": _now(),
                "variables": [
                    {**self._variables, "messages": c, "add_generation_prompt": prompt}
                    for c in conversations
                ],
            }
        )
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

    def _ask(self, request):
        """The renderer's answer to a request."""
        import signal
        import subprocess
        import sys

        try:
            data = json.dumps(request).encode()
        except RecursionError:
            raise data_error(self.name, "a variable is nested too deeply") from None
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        # inherited: Ctrl-C is for us, also before the new session
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-c", PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with child:
            try:
                out, _ = child.communicate(data, WALL_SECONDS)
            except subprocess.TimeoutExpired:
                raise data_error(self.name, f"took more than {WALL_SECONDS} s") from None
            finally:
                child.kill()
        try:
            return json.loads(out)
        except ValueError:
            raise self._ended(child.returncode) from None

    def _ended(self, code):
        import signal

        from .renderer import CPU_SECONDS

        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return data_error(self.name, f"took more than {CPU_SECONDS} s of processor time")
        if code >= 0:
            return Error(
                TRY_AGAIN, f"{self.name}: could not be rendered: its process ended with {code}"
            )
        return data_error(
            self.name, f"its process ended by signal {-code}: nested too deeply, or too large"
        )


def _split(message, i, nonce, letter):
    """[(kind, text, slot)] of message `i`: kind "blank", "mark" (of thinking) or "slot", whose text
    is its placeholder; slot: ((i, j), blanks before, text, blanks after), or None.
    """
    out, j = [], 0
    for part in (
        THINKING.split(message.content) if message.role == "assistant" else [message.content]
    ):
        if THINKING.fullmatch(part) and message.role == "assistant":
            out.append(("mark", part, None))
            continue
        text, start = part.strip(), len(part) - len(part.lstrip())
        before, after = part[:start], part[start + len(text) :]
        out.append(("blank", before, None))
        if text:
            out += [
                ("slot", f"{nonce}{i}x{j}{letter}", ((i, j), before, text, after)),
                ("blank", after, None),
            ]
            j += 1
    return out


def _now():
    """The seconds of SOURCE_DATE_EPOCH, which the dates of a template are those of, or None. Error
    64."""
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
    """The Template of a gguf.File, or the one in the file `path` (a name of configs/*.jinja, or a
    path). Error 65, 69; OSError.
    """
    if path is None:
        source = file.get(KEY, "string", None)
        if not source:
            raise Error(
                UNSUPPORTED, f"{file.path}: has no chat template ({KEY}); --template gives one"
            )
        return Template(source, f"{file.path}: {KEY}", vocab, variables)
    shipped = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs", f"{path}.jinja"
    )
    if os.sep not in path and not os.path.exists(path) and os.path.exists(shipped):
        path = shipped
    try:
        return Template(stream.read_file(path, MAX_BYTES).decode(), path, vocab, variables)
    except UnicodeDecodeError as e:
        raise data_error(path, f"byte {e.start} is not UTF-8") from None


def parse_variable(text: str) -> "tuple[str, Any]":
    """(name, value) of NAME=VALUE: the value as JSON, or else a string; ValueError with what is
    wrong.
    """
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier() and not name.startswith("_")):
        raise ValueError(f"{printable(text)} is not of the form NAME=VALUE")
    if name in RESERVED:
        raise ValueError(f"{name} is the conversation's own")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
