"""Tools that a model may call: functions with a JSON Schema of their arguments, and calls of them.

A file of tools has the list that OpenAI's API calls "tools", as JSON:

    [{"type": "function", "function": {"name": "weather", "description": "Weather of a city",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                     "required": ["city"]}}}]

Nothing here runs a function. DataError names the file and the tool.
"""

import json
import re
from typing import NamedTuple

from .. import jsonl, stream
from ..faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 1 << 20
MAX_TOOLS = 128
MAX_DEPTH = 100  # of a tool; the schema of its arguments has the same limit
NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
NO_ARGUMENTS: "dict[str, Any]" = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
# keywords that allow further properties, or that may name some
OPEN = {
    "additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "$ref",
    "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
    "minProperties",
}  # fmt: skip


class Tool(NamedTuple):
    """A function. entry: its object in the file. schema: of the arguments, as JSON.

    place: its name in messages.
    """

    name: str
    entry: "dict[str, Any]"
    schema: bytes
    place: str


class Call(NamedTuple):
    """A call of a tool. arguments: a JSON object, as the model wrote it."""

    id: str
    name: str
    arguments: str


def read(path: str) -> "list[Tool]":
    """Return the tools in the file `path`, at least one. Raises DataError or OSError."""
    data = stream.read_file(path, MAX_BYTES)
    try:
        value = jsonl.load(data.removeprefix(b"\xef\xbb\xbf"), _unique)
    except jsonl.BadLine as e:
        raise data_error(path, str(e).removeprefix("line ")) from None
    return of_list(value, path)


def of_list(value: "Any", name: str) -> "list[Tool]":
    """Return the tools of a list of objects, at least one. Raises DataError.

    name: the list's name in messages.
    """
    if not isinstance(value, list) or not value:
        raise data_error(name, 'is not a list of tools such as [{"type": "function", ...}]')
    if len(value) > MAX_TOOLS:
        raise data_error(name, f"{len(value)} tools, more than {MAX_TOOLS}")
    found: dict[str, Tool] = {}
    for n, entry in enumerate(value, 1):
        tool = _tool(entry, name, f"tool {n}")
        if tool.name in found:
            raise data_error(name, f"tool {n}: {tool.name} is the name of an earlier tool")
        found[tool.name] = tool
    return list(found.values())


def _tool(entry, file, place):
    if _depth(entry) > MAX_DEPTH:
        raise data_error(file, f"{place}: nested more than {MAX_DEPTH} levels deep")
    if not isinstance(entry, dict) or not isinstance(entry.get("function"), dict):
        raise data_error(file, f'{place}: is not an object with "type" and "function"')
    if entry.get("type") != "function":
        raise data_error(file, f'{place}: type is not "function"')
    function = entry["function"]
    name, text = function.get("name"), function.get("description", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise data_error(
            file, f"{place}: name is not 1 to 64 of the characters A-Z a-z 0-9 _ . : / -"
        )
    if not isinstance(text, str):
        raise data_error(file, f"{place}: {name}: description is not a text")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = NO_ARGUMENTS
    if not isinstance(parameters, dict):
        raise data_error(file, f"{place}: {name}: parameters is not a JSON Schema, an object")
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise data_error(file, f"{place}: {name}: has half of a surrogate pair") from None
    return Tool(name, entry, json.dumps(_closed(parameters)).encode(), f"{file}: {name}")


def _closed(schema):
    """Return a schema that allows no property but those which it names, unless it says more."""
    if not schema:
        return NO_ARGUMENTS
    if "properties" not in schema or OPEN & set(schema):
        return schema
    return {**schema, "additionalProperties": False}


def _depth(value):
    """Return how deep a value of JSON is nested, up to MAX_DEPTH + 1."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        level = [
            x
            for v in level
            if isinstance(v, (dict, list))
            for x in (v.values() if isinstance(v, dict) else v)
        ]
        depth += 1
    return depth


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def choice_of(text: str, tools: "list[Tool]") -> str:
    """Return `text`, the value of --tool-choice, if it is one. Raises ValueError."""
    if text not in ("auto", "required", "none") and text not in {t.name for t in tools}:
        raise ValueError(f"{printable(text)} is not auto, required, none or the name of a tool")
    return text


# Calls in messages --------------------------------------------------------------------------------


def calls_of(value: "Any") -> "list[Call]":
    """Return the calls of the key "tool_calls" of a message. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("is not a list")
    if len(value) > MAX_TOOLS:
        raise ValueError(f"has more than {MAX_TOOLS} calls")
    return [_call(entry, n) for n, entry in enumerate(value, 1)]


def _call(entry, n):
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or entry.get("type", "function") != "function":
        raise ValueError(f"call {n} is not an object with id, type and function")
    id, name, arguments = entry.get("id", ""), function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"call {n}: name is not that of a tool")
    if not isinstance(id, str) or id and not ID.fullmatch(id):
        raise ValueError(f"call {n}: id is not 1 to 128 of the characters A-Z a-z 0-9 _ . : -")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    arguments = arguments or "{}"
    try:
        arguments_of(arguments)
        arguments.encode()
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"call {n}: arguments is not a JSON object, or the text of one") from None
    return Call(id, name, arguments)


def arguments_of(text: str) -> "dict[str, Any]":
    """Return the object that a call's arguments are. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict) or _depth(value) > MAX_DEPTH:
        raise ValueError("not an object, or nested too deeply")
    return value


def _refuse(word):
    raise ValueError(f"{word} is not a number")


def _whole(digits):
    return int(digits) if len(digits) <= 1000 else float(digits)  # int(): quadratic time


def as_dict(call: Call) -> "dict[str, Any]":
    """Return the object of a call in a message, of OpenAI's shape."""
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
