"""A JSON Schema document: read within bounds, with the places of its schemas and its references.

A schema is the dict or bool of json.loads. `Document.path` names its place (`#/properties/a`),
`Document.target` follows a reference ($id, $anchor and JSON Pointer, RFC 6901). Other documents are
never read.
"""

import json
import urllib.parse
from decimal import Decimal

from ...faults import data_error, printable, unsupported_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...faults import Error

MAX_BYTES = 4 << 20
MAX_DEPTH = 100
MAX_DIGITS = 400  # of a number; the largest f64 has 309
MAX_VALUES = 500_000
IN_MAPS = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
IN_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SINGLE = (
    "items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not", "if",
    "then", "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip


class Document:
    """A schema and what is in it.

    root: the schema. name: for messages. note(message) is called in lax mode for each keyword that
    is left out; None: such a keyword is an error.
    """

    def __init__(self, source: bytes, name: str, note: "Any" = None) -> None:
        self.name, self.note = name, note
        self.root = read(source, name)
        if not isinstance(self.root, (dict, bool)):
            raise data_error(name, "a schema is an object, true or false")
        self._parent: dict[int, tuple[Any, str]] = {}
        self._kept: list[Any] = []  # schemas that were made, whose ids must stay theirs
        self._base: dict[int, str] = {}
        self._resources: dict[str, Any] = {"": self.root}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._has_ids = b'"$id"' in source or b'"id"' in source or b"nchor" in source
        self._walk(self.root, "")

    def _walk(self, top, base):
        """Note the parent, the base URI and the names of each schema in `top`."""
        todo = [(top, base)]
        parent = self._parent
        while todo:
            node, base = todo.pop()
            if not isinstance(node, dict):
                continue
            if self._has_ids:
                base = self._identify(node, base)
            for key, value in node.items():
                if key in IN_MAPS and isinstance(value, dict):
                    for k, v in value.items():
                        parent[id(v)] = (node, f"{key}/{_escaped(k)}")
                        todo.append((v, base))
                elif key in SINGLE and isinstance(value, dict):
                    parent[id(value)] = (node, key)
                    todo.append((value, base))
                elif key in IN_LISTS and isinstance(value, list):
                    for i, v in enumerate(value):
                        parent[id(v)] = (node, f"{key}/{i}")
                        todo.append((v, base))

    def _identify(self, node, base):
        for key in ("$id", "id"):
            own = node.get(key)
            if isinstance(own, str) and not own.startswith("#"):
                base = urllib.parse.urljoin(base, own).split("#")[0]
                self._resources.setdefault(base, node)
                break
            if isinstance(own, str):  # draft 4 to 7: a name within the document
                self._anchors.setdefault((base, own[1:]), node)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                self._anchors.setdefault((base, node[key]), node)
        self._base[id(node)] = base
        return base

    def made(self, node: "Any", origin: "Any") -> "Any":
        """Return `node`, a schema that was made from `origin`, and take its place."""
        self._kept.append(node)
        self._parent.setdefault(id(node), (origin, ""))
        if id(origin) in self._base:
            self._base[id(node)] = self._base[id(origin)]
        return node

    def path(self, node: "Any", *more: str) -> str:
        """Return the place of a schema, and of a keyword or a value within it."""
        parts = [_escaped(str(m)) for m in reversed(more) if m]
        while id(node) in self._parent and len(parts) < 2 * MAX_DEPTH:
            node, key = self._parent[id(node)]
            if key:
                parts.append(key)
        return "#" + "".join("/" + part for part in reversed(parts))

    def _subject(self, node, keywords):
        place = self.path(node, *keywords)
        shown = printable(place, 200)[1:-1]
        return f"{self.name}: {shown}"

    def invalid(self, node: "Any", keyword: str, problem: str) -> "Error":
        """The DataError of a keyword of a schema."""
        return data_error(self._subject(node, [keyword]), problem)

    def unsupported(self, node: "Any", keyword: str, problem: str) -> "Error":
        """The UnsupportedError of a keyword of a schema."""
        return unsupported_error(self._subject(node, [keyword]), problem)

    def skip(self, node: "Any", keyword: str, problem: str) -> None:
        """Report a keyword that cannot be honoured; UnsupportedError but in lax mode."""
        error = self.unsupported(node, keyword, problem)
        if self.note is None:
            raise self.unsupported(node, keyword, f"{problem} (--json-schema-lax leaves it out)")
        self.note(f"{error}; left out")

    def target(self, node: "Any", keyword: str) -> "Any":
        """Return the schema that the reference of `node` names. DataError, UnsupportedError."""
        reference = node[keyword]
        if not isinstance(reference, str):
            raise self.invalid(node, keyword, "a reference is a text")
        base = self._base.get(id(node), "") if self._has_ids else ""
        if reference.startswith("#"):
            url, fragment = base, reference[1:]
        else:
            url, _, fragment = urllib.parse.urljoin(base, reference).partition("#")
        resource = self._resources.get(url)
        if resource is None:
            raise self.unsupported(
                node, keyword, f"refers to another document, {printable(reference, 60)}"
            )
        fragment = urllib.parse.unquote(fragment)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((url, fragment))
        else:
            found = self._pointed(resource, fragment)
        if not isinstance(found, (dict, bool)):
            raise self.invalid(node, keyword, f"no schema at {printable(reference, 60)}")
        if isinstance(found, bool):
            return found
        if id(found) not in self._parent and found is not self.root:
            # a place that no keyword leads to, such as #/components/schemas/Pet
            self._walk(found, url)
            self._parent[id(found)] = (resource, fragment.lstrip("/"))
            self._base.setdefault(id(found), url)
        return found

    def _pointed(self, node, pointer):
        for part in pointer.split("/")[1:] if pointer else ():
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and part in node:
                node = node[part]
            elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            else:
                return None
        return node


def read(source: bytes, name: str) -> "Any":
    """Return the value of a JSON text, numbers with a fraction as Decimal. DataError."""
    if len(source) > MAX_BYTES:
        raise data_error(name, f"schema of more than {MAX_BYTES >> 20} MiB")
    if _depth(source) > MAX_DEPTH:
        raise data_error(name, f"schema nested more than {MAX_DEPTH} levels deep")
    if source.count(b",") + source.count(b":") > MAX_VALUES:
        raise data_error(name, f"schema of more than {MAX_VALUES} values")
    try:
        text = source.decode("utf-8-sig")
        return json.loads(
            text,
            parse_float=_decimal,
            parse_int=_whole,
            parse_constant=_refuse,
            object_pairs_hook=_unique,
        )
    except UnicodeDecodeError as e:
        raise data_error(name, f"not UTF-8 at byte {e.start}") from None
    except ValueError as e:
        raise data_error(name, f"not JSON: {e}"[:200]) from None


def _depth(source):
    """Return a bound of the depth of JSON: brackets within texts count, too, if it is large."""
    if source.count(b"[") + source.count(b"{") <= MAX_DEPTH:
        return 0
    bare = source.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    deep = most = 0
    for part in bare:
        for c in part:
            if c in b"[{":
                deep += 1
                most = max(most, deep)
            elif c in b"]}":
                deep -= 1
    return most


def _decimal(digits):
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    number = Decimal(digits)
    if number and not -400 < number.adjusted() < 400:
        raise ValueError("a number that is too large or too small")
    return number


def _whole(digits):
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = set()
        twice = next(k for k, _ in pairs if k in names or names.add(k))
        raise ValueError(f"{printable(twice, 60)} appears twice in an object")
    return found


def _refuse(word):
    raise ValueError(f"{word} is not a number")


def _escaped(key):
    return key.replace("~", "~0").replace("/", "~1")
