"""Read and check a request of `decide`, a line of JSON from anybody.

    {"state": "The lift is stuck again.",
     "questions": {
       "who": {"type": "choice", "instructions": "Who acts?",
               "criteria": {"janitor": "repairs", "nobody": null}},
       "bad": {"type": "score", "instructions": "How bad?", "criteria": ["mild", "bad", "worst"]},
       "late": {"type": "noul", "instructions": "Is it late?"}}}

This is the form of POST /v1/systemone. state and instructions: a string, or an object or array that
goes in as JSON. criteria: of a choice an object of 2 to 255 options with a description or null, or
an array of options; of a score an array of 2 to 10 levels, low to high; of a noul nothing, or an
object that describes true, false or both. `id` is repeated in the answer, `model` is ignored, as
are other names beside them; an `images` that is not empty is refused.
"""

import json

from ..jsonl import BadLine, load
from ..question import kinds
from ..question.question import MAX_SPELLING_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_QUESTIONS = 255
MAX_ID_CHARACTERS = 1000
TYPES = (kinds.CHOICE, kinds.SCORE, "noul")
NEEDED, OPTIONAL = ("type", "instructions"), ("criteria",)
TRUE, FALSE = "true", "false"


class Asked:
    """A question. kind: CHOICE, SCORE or YESNO of kinds. text: its instructions.

    options: {what the model writes: description or None}. names: of the options in the answer: of a
    choice the options, of a score "0", "1" ..., of a noul "true" and "false". legend: texts of the
    levels, or None.
    """

    __slots__ = ("kind", "legend", "names", "options", "text")

    def __init__(
        self,
        kind: str,
        text: str,
        options: "dict[str, str | None]",
        names: list[str],
        legend: list[str] | None = None,
    ) -> None:
        self.kind, self.text, self.options, self.names = kind, text, options, names
        self.legend = legend

    def key(self) -> "tuple[Any, ...]":
        """Equal for questions that are the same to the model."""
        return self.kind, self.text, tuple(self.options.items())


class Request:
    """id: of the line, or None if it has none. state: bytes. questions: {id: Asked}."""

    __slots__ = ("id", "questions", "state")

    def __init__(self, id: str | int | None, state: bytes, questions: dict[str, Asked]) -> None:
        self.id, self.state, self.questions = id, state, questions


def parse(line: bytes | None) -> Request:
    """Parse a line (bytes; None: it was too long). Raises BadLine naming the field at fault."""
    top = load(line, _unique)
    if not isinstance(top, dict):
        raise BadLine("the request is not an object")
    id = top.get("id")
    if not (id is None or type(id) is int or isinstance(id, str) and len(id) <= MAX_ID_CHARACTERS):
        raise BadLine("id: is not a whole number or a string of at most 1000 characters")
    try:
        if top.get("images") not in (None, [], {}):
            raise BadLine("images: not supported; give the state as text")
        return Request(id, _text(top, "state", "").encode(), _questions(top.get("questions")))
    except BadLine as e:
        raise BadLine(str(e), id) from None


def _unique(pairs):
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise BadLine(f"{_shown(name)} is given twice in one object")
        found[name] = value
    return found


def _questions(value):
    if not isinstance(value, dict) or not value:
        raise BadLine("questions: is missing, or not an object of at least one question")
    if len(value) > MAX_QUESTIONS:
        raise BadLine(f"questions: more than {MAX_QUESTIONS}")
    return {id: _question(question, f"questions.{_shown(id)}") for id, question in value.items()}


def _question(value, where):
    if not isinstance(value, dict):
        raise BadLine(f"{where}: is not an object")
    for name in value:
        if name not in (*NEEDED, *OPTIONAL):
            known = ", ".join((*NEEDED, *OPTIONAL))
            raise BadLine(f"{where}: there is no {_shown(name)}; use {known}")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise BadLine(f"{where}.type: is none of {', '.join(TYPES)}")
    text = _text(value, "instructions", where + ".")
    criteria, where = value.get("criteria"), where + ".criteria"
    if kind == kinds.CHOICE:
        options = _choice(criteria, where)
        return Asked(kind, text, options, list(options))
    if kind == kinds.SCORE:
        return _score(text, criteria, where)
    return Asked(kinds.YESNO, text, _noul(criteria, where), [TRUE, FALSE])


def _choice(value, where):
    if isinstance(value, list):
        if not all(isinstance(name, str) for name in value):
            raise BadLine(f"{where}: an option is not a string")
        pairs = [(name, None) for name in value]
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        raise BadLine(f"{where}: is not an object of options")
    if not 2 <= len(pairs) <= kinds.MAX_ANSWERS:
        raise BadLine(f"{where}: {len(pairs)} options; give 2 to {kinds.MAX_ANSWERS}")
    options: dict[str, str | None] = {}
    for name, about in pairs:
        _check(name, f"{where}.{_shown(name)}")
        if name != name.strip() or not name or not _is_one_line(name):
            raise BadLine(
                f"{where}: the option {_shown(name)} is empty, has space around it or a line break"
            )
        if len(name.encode()) > MAX_SPELLING_BYTES:
            raise BadLine(f"{where}: the option {_shown(name)} has more than 256 bytes")
        if name in options:
            raise BadLine(f"{where}: the option {_shown(name)} is given twice")
        options[name] = _description(about, f"{where}.{_shown(name)}")
    return options


def _score(text, value, where):
    if not isinstance(value, list):
        raise BadLine(f"{where}: is not an array of levels, low to high")
    if not 2 <= len(value) <= kinds.MAX_LEVELS:
        raise BadLine(f"{where}: {len(value)} levels; give 2 to {kinds.MAX_LEVELS}")
    legend = [_description(level, f"{where}.{i}") or "" for i, level in enumerate(value)]
    if not all(legend):
        raise BadLine(f"{where}: a level is empty")
    names = [str(i) for i in range(len(legend))]
    if len(set(legend)) == len(legend) and all(map(kinds.is_word, legend)):
        return Asked(kinds.SCORE, text, dict.fromkeys(legend), names, legend)
    # the model writes the number of a level that is more than a word
    return Asked(kinds.SCORE, text, dict(zip(names, legend)), names, legend)


def _noul(value, where):
    if value is None:
        value = {}
    if not isinstance(value, dict) or not set(value) <= {TRUE, FALSE}:
        raise BadLine(f"{where}: is not an object that describes true, false or both")
    return {
        word: _description(value.get(name), f"{where}.{name}")
        for word, name in (("yes", TRUE), ("no", FALSE))
    }


def _text(tree, name, where):
    """Return a string that is needed; of an object or array its JSON."""
    value = tree.get(name)
    where += name
    if not isinstance(value, (str, dict, list)):
        raise BadLine(f"{where}: is missing, or neither string, object nor array")
    if not value or isinstance(value, str) and not value.strip():
        raise BadLine(f"{where}: is empty")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    _check(text, where)
    return text


def _description(value, where):
    """Return a description, or None; of another value than a string its JSON."""
    if value is None or value == "":
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    _check(text, where)
    return text if text.strip() else None


def _check(text, where):
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadLine(f"{where}: has half of a surrogate pair") from None


def _is_one_line(text):
    return len(text.splitlines()) == 1 and not any(ord(c) < 32 or ord(c) == 127 for c in text)


def _shown(name):
    """Return a name for a message: itself if it is plain, else escaped."""
    return name if name.isprintable() and len(name) <= 80 else ascii(name[:80])
