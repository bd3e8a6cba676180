"""Strict YAML reader: dicts, lists, str, int, float, bool and None, and nothing else.

It reads the events of PyYAML's safe loader; no object is constructed from a tag. DataError with the
line for aliases, anchors and tags (a few bytes could mean gigabytes, or code), duplicate keys, a
second document, and more than MAX_DEPTH levels. Plain scalars follow YAML 1.2's JSON schema: `yes`,
`no`, `on` and `1:30` are strings, and keys are always strings.
"""

import re

from .faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 8
CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}
INTEGER = r"-?(0|[1-9][0-9]{0,17})"
NUMBER = re.compile(INTEGER + r"(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?")


def parse(data: bytes, name: str, lines: "dict[tuple[str | int, ...], int] | None" = None) -> "Any":
    """Return the content of `data` (bytes of bounded size). DataError names `name` and the line.

    lines: gets {keys and indices that lead to a value: its line}; () leads to the whole.
    """
    import yaml

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise data_error(name, f"byte {e.start} is not UTF-8") from None
    try:
        return _document(
            yaml,
            yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)),
            name,
            {} if lines is None else lines,
        )
    except yaml.MarkedYAMLError as e:
        mark, problem = e.problem_mark or e.context_mark, e.problem or e.context or ""
        # libyaml reads ahead of its events, and has its own, higher limit
        if "nesting depth" in problem:
            problem = f"nested more than {MAX_DEPTH} deep"
        raise data_error(name, f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except yaml.YAMLError as e:  # of the reader: a character that YAML excludes
        raise data_error(name, str(e).splitlines()[0]) from None


def _document(yaml, events, name, lines):
    value, n_documents = None, 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            n_documents += 1
            if n_documents > 1:
                raise _data_error(name, event, "a second document")
            value = _value(yaml, events, next(events), name, (), lines)
    return value


def _value(yaml, events, event, name, at, lines):
    """Return the value that begins with `event`. Recursion is at most MAX_DEPTH deep.

    at: the keys and indices that lead to it.
    """
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise _data_error(name, event, "aliases and anchors are not read")
    if event.tag is not None:
        raise _data_error(name, event, f"the tag {printable(event.tag)} is not read")
    lines[at] = event.start_mark.line + 1
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if len(at) == MAX_DEPTH:
        raise _data_error(name, event, f"nested more than {MAX_DEPTH} deep")
    if isinstance(event, yaml.SequenceStartEvent):
        out = []
        for item in iter(events.__next__, None):
            if isinstance(item, yaml.SequenceEndEvent):
                return out
            out.append(_value(yaml, events, item, name, (*at, len(out)), lines))
    out = {}
    for key in iter(events.__next__, None):
        if isinstance(key, yaml.MappingEndEvent):
            return out
        if not isinstance(key, yaml.ScalarEvent) or key.anchor or key.tag:
            raise _data_error(name, key, "a key that is not a word")
        if key.value in out:
            raise _data_error(name, key, f"the key {printable(key.value)} appears twice")
        out[key.value] = _value(yaml, events, next(events), name, (*at, key.value), lines)


def _scalar(event):
    if not event.implicit[0]:  # quoted, or a block of text
        return event.value
    if event.value in CONSTANTS:
        return CONSTANTS[event.value]
    if NUMBER.fullmatch(event.value):
        return int(event.value) if re.fullmatch(INTEGER, event.value) else float(event.value)
    return event.value


def _data_error(name, event, problem):
    return data_error(name, f"line {event.start_mark.line + 1}: {problem}")
