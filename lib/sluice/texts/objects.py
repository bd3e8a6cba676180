"""A text as a line of JSON: {"id": ..., "text": ...}, of --jsonl and of labelled texts.

Other keys are ignored. "id" is a string, an integer or null; a missing one counts as null. Invalid
is JSON that jsonl.load refuses, no text, or half of a surrogate pair.
"""

from ..jsonl import BadLine, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ID_CHARACTERS = 1000


def parse(line: bytes | None, charset: str) -> tuple[str | int | None, bytes]:
    """Parse an input line into (id, text in `charset`). Raises BadLine."""
    return fields(load(line), charset)


def fields(found: "Any", charset: str) -> tuple[str | int | None, bytes]:
    """Return (id, text in `charset`) of a parsed line. Raises BadLine."""
    if not isinstance(found, dict):
        raise BadLine("line is not an object")
    id = found.get("id")
    if not (id is None or type(id) is int or isinstance(id, str) and len(id) <= MAX_ID_CHARACTERS):
        raise BadLine("id is not a whole number or a string of at most 1000 characters")
    if not isinstance(found.get("text"), str):
        raise BadLine("text is missing or not a string", id)
    try:
        return id, found["text"].encode(charset)
    except UnicodeEncodeError as e:
        what = (
            "is not a byte; give the bytes of a message as characters of Latin-1"
            if charset == "latin-1"
            else "is half of a surrogate pair"
        )
        raise BadLine(f"text: character {e.start} {what}", id) from None
