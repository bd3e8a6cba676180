"""What a chat template is shown of a message: random words in the place of its text.

See template.py for the rules.
"""

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .call_form import Form
    from .message import Message
    from .tools import Call

THINKING = re.compile("(<think>|</think>|<\\|channel>|<channel\\|>)")


def joined(parts: "list[tuple[str, str, Any]]", with_space: bool) -> str:
    """Return the text of a message for the template, with or without the white space in it."""
    return "".join(text for kind, text, _ in parts if kind != "space" or with_space)


def answered(message: "Message", before: "list[Message]") -> "Call | None":
    """Return the call whose result `message` is: the one with its ID, or else of its place; None
    if there is none.
    """
    n = 0
    for m in reversed(before):
        if m.role != "tool":
            for call in m.calls:
                if message.call_id and call.id == message.call_id:
                    return call
            return m.calls[n] if not message.call_id and n < len(m.calls) else None
        n += 1
    return None


def unquoted(part: str, slots: "dict[str, Any]", messages: "list[Message]") -> str:
    """Return the placeholder that stands as in a JSON string if it is a tool's result, and as it is
    if not; else "".
    """
    try:
        plain = json.loads(f'"{part}"') if "\\" in part else part
    except ValueError:
        return ""
    slot = slots.get(plain)
    is_result = slot and messages[slot[0][0]].role == "tool"
    return plain if slot and is_result == (plain != part) else ""


def without(cut: str, segments: "Iterable[tuple[str, str, Any]]") -> "list[tuple[str, str, Any]]":
    """Return `segments` split at the word `cut`."""
    out = []
    for kind, text, i in segments:
        if kind == "template" and cut in text:
            out += [(kind, part, i) for part in text.split(cut) if part]
        else:
            out.append((kind, text, i))
    return out


def split(
    message: "Message", i: int, nonce: str, letter: str, form: "Form | None" = None
) -> "list[tuple[str, str, Any]]":
    """Split message `i`: [(kind, text, slot)]. form: a call_form.Form, or None.

    kind: "space", "mark" (a thinking marker), or "slot" for a placeholder.
    slot: ((i, j), white space before, text, white space after) of a placeholder, else None.
    """
    if message.role == "tool" and form and form.quoted:
        text = json.dumps(message.content, ensure_ascii=False)[1:-1]
        return [("slot", f"{nonce}{i}x0{letter}", ((i, 0), "", text, ""))] if text else []
    out: list[tuple[str, str, Any]] = []
    j = 0
    for part in (
        THINKING.split(message.content) if message.role == "assistant" else [message.content]
    ):
        if THINKING.fullmatch(part) and message.role == "assistant":
            out.append(("mark", part, None))
            continue
        text, start = part.strip(), len(part) - len(part.lstrip())
        before, after = part[:start], part[start + len(text) :]
        out.append(("space", before, None))
        if text:
            out += [
                ("slot", f"{nonce}{i}x{j}{letter}", ((i, j), before, text, after)),
                ("space", after, None),
            ]
            j += 1
    return out
