"""A conversation as a file: messages, each with role (system, user or assistant) and content, in their order.

JSON lines, one object a line:              or, where the name ends in .yaml or .yml, a list:

    {"role": "user", "content": "Hello"}        - role: user
    {"role": "assistant", "content": "Hi"}        content: Hello

Every line and key is checked; 65 names the line or message that is wrong.
"""
import io
import json

from .. import jsonl, stream, yamlfile
from ..faults import NO_OUTPUT, bad, printable
from .template import ROLES, Message

MAX_BYTES = 16 << 20
MAX_YAML_BYTES = 1 << 20  # what somebody writes by hand: its parser takes a minute for the other limit
MAX_MESSAGES = 10000


def read(path):
    """The Messages in the file `path`, at least one. Fault 65; OSError."""
    as_yaml = path.endswith((".yaml", ".yml"))
    data = stream.read_file(path, MAX_YAML_BYTES if as_yaml else MAX_BYTES)
    if as_yaml:
        found = yamlfile.parse(data, path)
        if not isinstance(found, list):
            raise bad(path, "is not a list of messages")
        entries = [(f"message {n}", entry) for n, entry in enumerate(found, 1)]
    else:
        entries = ((f"line {n}", _json(line, path, n)) for n, line in enumerate(io.BytesIO(data), 1) if line.strip())
    found = []
    for place, entry in entries:
        if len(found) == MAX_MESSAGES:
            raise bad(path, f"{place}: more than {MAX_MESSAGES} messages")
        found.append(_message(entry, path, place))
    if not found:
        raise bad(path, "has no messages")
    return found


def _json(line, path, n):
    try:
        return jsonl.load(line, pairs=_keys)
    except jsonl.BadLine as e:
        raise bad(path, str(e).replace("line", f"line {n}", 1)) from None


def _keys(pairs):
    """The dict of the pairs of an object; ValueError where a key comes twice: readers differ in which one counts."""
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("a key appears twice")
    return out


def _message(entry, path, place):
    if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
        raise bad(path, f"{place} is not an object with role and content, and these alone")
    role, content = entry["role"], entry["content"]
    if role not in ROLES:
        raise bad(path, f"{place}: role {printable(str(role))} is not one of " + ", ".join(ROLES))
    if not isinstance(content, str):
        raise bad(path, f"{place}: content is not a text")
    try:
        content.encode()
    except UnicodeEncodeError as e:
        raise bad(path, f"{place}: character {e.start} of content is half of a surrogate pair") from None
    return Message(role, content)


def write(path, messages):
    """Write `messages` as JSON lines to `path`, mode 0600: they are private. Fault 73, 74 or 75 with `path` as it was."""
    import os
    from .. import newfile
    lines = "".join(json.dumps({"role": m.role, "content": m.content}) + "\n" for m in messages)
    try:
        fd, name = newfile.nameless(os.path.dirname(path) or ".")
    except OSError as e:
        raise newfile.write_fault(path, e, NO_OUTPUT) from None
    try:
        with open(fd, "wb", closefd=False) as f:
            f.write(lines.encode())
        os.fsync(fd)
    except OSError as e:
        raise newfile.write_fault(path, e) from None
    newfile.publish(fd, name, path)
