"""A conversation as a file: messages, each with role (system, user or assistant) and content, in their order.

JSON lines, one object a line:              or, where the name ends in .yaml or .yml, a list:

    {"role": "user", "content": "Hello"}        - role: user
    {"role": "assistant", "content": "Hi"}        content: Hello

Every line and key is checked; 65 names the line or message that is wrong.
"""
import json

from . import yamlfile
from .faults import NO_OUTPUT, bad, printable
from .template import ROLES, Message

MAX_BYTES = 16 << 20
MAX_MESSAGES = 10000


def read(path):
    """The Messages in the file `path`, at least one. Fault 65; OSError."""
    try:
        with open(path, "rb") as f:
            data = f.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise bad(path, "is a directory") from None
    if len(data) > MAX_BYTES:
        raise bad(path, f"more than {MAX_BYTES >> 20} MiB")
    if path.endswith((".yaml", ".yml")):
        found = yamlfile.parse(data, path)
        if not isinstance(found, list):
            raise bad(path, "is not a list of messages")
        entries = [(f"message {n}", entry) for n, entry in enumerate(found, 1)]
    else:
        entries = [(f"line {n}", _json(line, path, n)) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not 1 <= len(entries) <= MAX_MESSAGES:
        raise bad(path, f"{len(entries)} messages, not 1 to {MAX_MESSAGES}")
    return [_message(entry, path, place) for place, entry in entries]


def _json(line, path, n):
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as e:
        raise bad(path, f"line {n} is not UTF-8 at byte {e.start}") from None
    except (ValueError, RecursionError) as e:
        raise bad(path, f"line {n} is not JSON: {e}"[:200]) from None


def _message(entry, path, place):
    if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
        raise bad(path, f"{place} is not an object with role and content, and these alone")
    role, content = entry["role"], entry["content"]
    if role not in ROLES:
        raise bad(path, f"{place}: role {printable(str(role))} is not one of " + ", ".join(ROLES))
    if not isinstance(content, str):
        raise bad(path, f"{place}: content is not a text")
    return Message(role, content)


def write(path, messages):
    """Write `messages` as JSON lines to `path`, mode 0600: they are private. Fault 73, 74 or 75 with `path` as it was."""
    import os
    from . import newfile
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
