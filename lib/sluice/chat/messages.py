"""Read and write conversations: messages with role (system, user, assistant or tool) and content.

JSON lines, one object per line, or an array:   or, if the name ends in .yaml or .yml, a list:

    {"role": "user", "content": "Hello"}            - role: user
    {"role": "assistant", "content": "Hi"}            content: Hello

Content is a string, null (no text), or a list of parts {"type": "text", "text": ...}, which are
joined by newlines, as in llama.cpp and vLLM. An answer may have "tool_calls", calls of tools in
OpenAI's shape, and no content; the result of a call has role tool, and "tool_call_id", "name" or
neither, as results in the order of the calls need no names. Other keys must be empty or null, but
for "tokens", which talk.py writes and others ignore. DataError names the line or message at fault,
UnsupportedError a part of another type.
"""

import io
import json

from .. import jsonl, stream, yamlfile
from ..faults import NO_OUTPUT, data_error, printable, unsupported_error
from . import tools
from .message import ROLES, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MAX_BYTES = 16 << 20
# for files written by hand: parsing YAML of MAX_BYTES takes a minute
MAX_YAML_BYTES = 1 << 20
MAX_MESSAGES = 10000
KEYS = {"role", "content", "tokens"}
OWN_KEYS = {"assistant": {"tool_calls"}, "tool": {"tool_call_id", "name"}}  # of a role
VALUES = 16  # names and values of a message in an array
BOM = "\ufeff".encode()


def read(
    path: str, own: "Callable[[Any, Message], list[int] | None] | None" = None
) -> "list[Message]":
    """Read the messages of the file `path`, at least one. Raises DataError or OSError.

    own: called with the value of "tokens" and the message; returns the tokens of the model in use,
    or None. Raises ValueError with what is wrong.
    """
    as_yaml = path.endswith((".yaml", ".yml"))
    data = stream.read_file(path, MAX_YAML_BYTES if as_yaml else MAX_BYTES)
    if as_yaml:
        entries = _numbered(yamlfile.parse(data, path), path)
    elif data.removeprefix(BOM).lstrip()[:1] == b"[":
        entries = _numbered(
            _json(data.removeprefix(BOM), path, max_values=VALUES * MAX_MESSAGES), path
        )
    else:
        lines = enumerate(io.BytesIO(data.removeprefix(BOM)), 1)
        entries = (
            (f"line {n}", _json(line, path, f"line {n}")) for n, line in lines if line.strip()
        )
    return _checked(entries, path, own)


def of_list(entries: "list[Any]", name: str) -> "list[Message]":
    """Check a list of dicts and return its messages, at least one. Raises DataError.

    name: the list's name in messages.
    """
    return _checked(_numbered(entries, name), name)


def _checked(entries, path, own=None):
    """Check (place, dict) pairs and return their messages."""
    found = []
    for place, entry in entries:
        if len(found) == MAX_MESSAGES:
            raise data_error(path, f"{place}: more than {MAX_MESSAGES} messages")
        message = _message(entry, path, place)
        if message.role == "tool" and not _follows_call(found):
            raise data_error(path, f"{place}: role tool: there is no call whose result it could be")
        if own and entry.get("tokens"):
            try:
                message.tokens = own(entry["tokens"], message)
            except ValueError as e:
                raise data_error(path, f"{place}: tokens: {e}") from None
        found.append(message)
    if not found:
        raise data_error(path, "has no messages")
    return found


def _numbered(found, path):
    if not isinstance(found, list):
        raise data_error(path, "is not a list of messages")
    return ((f"message {n}", entry) for n, entry in enumerate(found, 1))


def _json(data, path, place=None, max_values=jsonl.MAX_VALUES):
    try:
        return jsonl.load(data, _keys, max_values)
    except jsonl.BadLine as e:
        what = str(e).replace("line", place, 1) if place else str(e).removeprefix("line ")
        raise data_error(path, what) from None


def _keys(pairs):
    """Return the dict of an object. Raises ValueError for a duplicate key: readers differ in which
    of the two counts.
    """
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("a key appears twice")
    return out


def _follows_call(before):
    """Whether the next message may be the result of a call."""
    n = 0
    for message in reversed(before):
        if message.role != "tool":
            return n < len(message.calls)
        n += 1
    return False


def _message(entry, path, place):
    calls = entry.get("tool_calls") if isinstance(entry, dict) else None
    needed = {"role"} if calls else {"role", "content"}
    keys = KEYS | OWN_KEYS.get(str(entry.get("role")), set()) if isinstance(entry, dict) else KEYS
    if (
        not isinstance(entry, dict)
        or needed - set(entry)
        or any(value for key, value in entry.items() if key not in keys)
    ):
        raise data_error(path, f"{place} is not an object with role and content and no other keys")
    role, content = entry["role"], _content(entry.get("content"), path, place)
    if role not in ROLES:
        raise data_error(
            path, f"{place}: role {printable(str(role))} is not one of " + ", ".join(ROLES)
        )
    try:
        content.encode()
    except UnicodeEncodeError as e:
        raise data_error(
            path, f"{place}: character {e.start} of content is half of a surrogate pair"
        ) from None
    try:
        found = tools.calls_of(calls) if calls else []
    except ValueError as e:
        raise data_error(path, f"{place}: tool_calls {e}") from None
    if role != "tool":
        return Message(role, content, None, tuple(found))
    call_id, name = entry.get("tool_call_id") or "", entry.get("name") or ""
    for key, value, form in (("tool_call_id", call_id, tools.ID), ("name", name, tools.NAME)):
        if value and not (isinstance(value, str) and form.fullmatch(value)):
            raise data_error(path, f"{place}: {key} is not that of a call")
    return Message(role, content, None, (), call_id, name)


def as_dict(message: Message) -> "dict[str, Any]":
    """Return the object of a message."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [tools.as_dict(call) for call in message.calls]
    for key, value in (("tool_call_id", message.call_id), ("name", message.name)):
        if value:
            fields[key] = value
    return fields


def _content(content, path, place):
    """Return the text of a value of the key content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise data_error(path, f"{place}: content is not a text")
    for n, part in enumerate(content, 1):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise data_error(path, f"{place}: part {n} of content is not an object with a type")
        if part["type"] != "text":
            raise unsupported_error(
                path,
                f"{place}: part {n} of content is of type "
                f"{printable(part['type'])}; only text is supported",
            )
        if not isinstance(part.get("text"), str):
            raise data_error(path, f"{place}: part {n} of content: text is missing or not a text")
    return "\n".join(part["text"] for part in content)


def write(path: str, messages: "Iterable[Message]") -> None:
    """Write `messages` as JSON lines to `path`, as `replace`."""
    import os

    os.close(replace(path, messages))


def replace(
    path: str,
    messages: "Iterable[Message]",
    more: "Callable[[Message], dict[str, Any]]" = lambda message: {},
) -> int:
    """Write `messages` as JSON lines to `path`, atomically, with mode 0600. Return the descriptor
    of the new file, which has a lock (flock) since before it got its name.

    more: further keys of a message. Raises Error 73, 74 or 75.
    """
    import os

    from ..system import files

    lines = "".join(json.dumps({**as_dict(m), **more(m)}) + "\n" for m in messages)
    try:
        fd, name = files.nameless(os.path.dirname(path) or ".")
    except OSError as e:
        raise files.write_error(path, e, NO_OUTPUT) from None
    try:
        with open(fd, "wb", closefd=False) as f:
            f.write(lines.encode())
        os.fsync(fd)
        files.publish(fd, name, path)
    except BaseException as e:
        os.close(fd)
        if name:
            files.unlink(name)
        if isinstance(e, OSError):
            raise files.write_error(path, e) from None
        raise
    return fd
