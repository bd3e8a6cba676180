"""How a chat template writes calls of tools: found by what it prints for a call.

    Qwen, Hermes <tool_call>\\n{"name": "weather", "arguments": {"city": "Rome"}}\\n</tool_call>
    Llama 3      {"name": "weather", "parameters": {"city": "Rome"}}
    Mistral      [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}, "id": "a1b2c3d4e"}]

A template is rendered for a conversation whose last message calls a tool, and for one whose last
message is a text. The call is what is different. It consists of fixed texts and of slots: the name,
the arguments as a JSON object, and perhaps an ID. Templates differ in what they want to get, so
some variants are tried (`VARIANTS`); of those that give such a call the shortest counts. A template
that prints tools but has no place for calls gets the calls as content, in the form that its text
announces (SmolLM3).
"""

import json
import os.path
import re
from typing import NamedTuple

from ..faults import unsupported_error
from . import tools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

USER, TEXT, RESULT = "sluiceprobeuser", "sluiceprobetext", 'sluiceprobe"result'
TOOL, NAME, KEY, VALUE = "sluice_tool", "sluice_called", "sluiceprobekey", "sluiceprobevalue"
IDS = "Sl1ceId0a", "Sl1ceId0b"  # nine characters of A-Z a-z 0-9, as Mistral's must be
ARGUMENTS = re.compile(r'\{\s*"' + KEY + r'"\s*:\s*"' + VALUE + r'"\s*\}')
ENTRY = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "d"}},
            "required": ["x"],
        },
    },
}
# (arguments as a text, None in place of an empty content)
VARIANTS = (False, False), (True, False), (False, True), (True, True)
HERMES = "<tool_call>"  # announces the form of the templates that have no place for calls


class Form(NamedTuple):
    """How a template writes calls.

    variables: names of the template's variables that get the tools. as_text: arguments are passed
    as a text; without_content: an empty content is passed as None; in_content: calls are passed in
    the content. before, parts, after: the fixed texts; slots: "name", "arguments" and "id", with
    `parts` between them. between: the text from the last slot of a call to the first one of the
    next; None: an answer has one call at most. after_text: calls may follow a text. quoted: the
    template writes a tool's result as a JSON string. in_thought: answers begin within a thought.
    """

    variables: tuple[str, ...]
    as_text: bool
    without_content: bool
    in_content: bool
    before: str
    slots: tuple[str, ...]
    parts: tuple[str, ...]
    after: str
    between: str | None
    after_text: bool
    quoted: bool
    in_thought: bool


def find(
    source: str,
    name: str,
    rendered: "Callable[[list[dict[str, Any]]], Sequence[str | None]]",
) -> Form:
    """Return the Form of a template.

    name: the template's, for messages. rendered: returns the text of the template for each dict of
    variables, None for those that it refuses. UnsupportedError if the template knows no tools, or
    writes calls in another way.
    """
    named = [("tools",), *([("tools", "xml_tools")] if "xml_tools" in source else [])]
    wanted, keys = [], []
    for variables in named:
        for key, messages, prompt in _probes():
            keys.append((variables, key))
            wanted.append(
                {
                    **dict.fromkeys(variables, [ENTRY]),
                    "messages": messages,
                    "add_generation_prompt": prompt,
                }
            )
    texts = dict(zip(keys, rendered(wanted)))
    for variables in named:
        if TOOL not in (texts[variables, "asked"] or ""):
            continue
        of = {key: text for (v, key), text in texts.items() if v == variables}
        forms = [form for v in VARIANTS if (form := _form(variables, v, of))]
        if forms:  # an empty content may be printed as a message of its own behind the call
            return min(forms, key=lambda form: len(form.before + form.after))
        form = _in_content(variables, of)
        if form:
            return form
        raise unsupported_error(
            name, "writes calls of tools in a form that is not supported: not as JSON objects"
        )
    raise unsupported_error(name, "does not know tools; choose another one by --template")


def _probes():
    """Yield (key, messages, whether a prompt follows)."""
    user = {"role": "user", "content": USER}
    yield "asked", [user], True
    yield "text", [user, {"role": "assistant", "content": TEXT}], False
    yield "result", [user, _calling((False, False), 1, TEXT), _result()], False
    for v in VARIANTS:
        yield (v, 1), [user, _calling(v, 1)], False
        yield (v, 2), [user, _calling(v, 2)], False
        yield (v, "text"), [user, _calling(v, 1, TEXT)], False
        yield (v, "result"), [user, _calling(v, 1), _result()], False


def _calling(variant, n, content=""):
    arguments: Any = {KEY: VALUE}
    if variant[0]:
        arguments = json.dumps(arguments)
    return {
        "role": "assistant",
        "content": None if variant[1] and not content else content,
        "tool_calls": [
            {"type": "function", "id": id, "function": {"name": NAME, "arguments": arguments}}
            for id in IDS[:n]
        ],
    }


def _result():
    return {"role": "tool", "content": RESULT, "tool_call_id": IDS[0], "name": NAME}


def _form(variables, variant, of):
    """Return the Form of one variant, or None. of: {key: text}."""
    plain, one, two = of["text"], of[variant, 1], of[variant, 2]
    cut = _cut(plain, one)
    if not cut:
        return None
    before, slots, parts, after = cut
    if sorted(slots) not in (["arguments", "name"], ["arguments", "id", "name"]):
        return None
    if "&#34;" in before:  # "safe" in a template makes HTML of what is joined to it
        return None
    between, double = None, _cut(plain, two)
    n = len(slots)
    if double and double[0] == before and double[1] == slots * 2 and double[3] == after:
        if double[2][: n - 1] == double[2][n:] == parts:
            between = double[2][n - 1]
    said = of[variant, "text"] or ""
    after_text = TEXT in said and said.partition(TEXT)[2].lstrip().startswith(before.strip())
    result = of[variant, "result"] or ""
    return Form(
        variables,
        *variant,
        False,
        before,
        tuple(slots),
        tuple(parts),
        after,
        between,
        after_text,
        RESULT not in result and json.dumps(RESULT) in result,
        _in_thought(of["asked"]),
    )


def _cut(plain, calling):
    """Return (before, slots, parts between them, after) of a text with calls; None if it has none.

    plain: the text of the same conversation with TEXT in place of the calls.
    """
    if not plain or not calling or plain.count(TEXT) != 1:
        return None
    head, _, tail = plain.partition(TEXT)
    start = len(os.path.commonprefix([head, calling]))
    if start < len(head.rstrip()):
        return None
    found = re.compile(f"({NAME})|({ARGUMENTS.pattern})|({'|'.join(IDS)})")
    matches = list(found.finditer(calling, start))
    if not matches:
        return None
    end = matches[-1].end()
    rest = calling[end:]
    if not rest.endswith(tail):
        return None
    slots = [("name", "arguments", "id")[(m.lastindex or 1) - 1] for m in matches]
    parts = [calling[a.end() : b.start()] for a, b in zip(matches, matches[1:])]
    return calling[start : matches[0].start()], slots, parts, rest[: len(rest) - len(tail)]


def _in_content(variables, of):
    """Return the Form of a template that has no place for calls, or None."""
    if HERMES not in (of["asked"] or "") or not of["text"]:
        return None
    before, after = HERMES + '\n{"name": "', "}\n</tool_call>"
    result = of["result"] or ""
    return Form(
        variables,
        False,
        False,
        True,
        before,
        ("name", "arguments"),
        ('", "arguments": ',),
        after,
        f"{after}\n{before}",
        True,
        RESULT not in result and json.dumps(RESULT) in result,
        _in_thought(of["asked"]),
    )


def _in_thought(text):
    return text.rfind("<think>") > text.rfind("</think>") and text.rstrip().endswith("<think>")


def add(shown: "dict[str, Any]", calls: "Sequence[tools.Call]", form: Form) -> None:
    """Add `calls` to a message for the template. Raises ValueError."""
    if form.in_content:
        text = written(calls, form)
        shown["content"] = "\n".join(filter(None, (shown["content"], text)))
        return
    if form.without_content and not shown["content"]:
        shown["content"] = None
    shown["tool_calls"] = [
        {
            **({"id": call.id} if call.id else {}),
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments if form.as_text else tools.arguments_of(call.arguments),
            },
        }
        for call in calls
    ]


def written(calls: "Sequence[tools.Call]", form: Form) -> str:
    """Return the text of `calls`, as an answer has them."""
    texts = []
    for call in calls:
        of = {"name": call.name, "arguments": call.arguments, "id": call.id}
        values = [of[slot] for slot in form.slots]
        texts.append("".join(v + p for v, p in zip(values, (*form.parts, ""))))
    return form.before + (form.between or "").join(texts) + form.after
