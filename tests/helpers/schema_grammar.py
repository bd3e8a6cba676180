"""A JSON Schema as a grammar, and JSON texts against it."""

import json

from sluice.faults import DataError
from sluice.grammar import sources
from sluice.grammar.matcher import Grammar, Matcher


def grammar_of(schema, **options):
    """The Grammar of a schema (a value of json); None if it allows no value."""
    try:
        source = json.dumps(schema).encode()
        return Grammar(sources.of_schema(source, "schema", **options), "schema")
    except DataError as e:
        if "allows no value" not in str(e):
            raise
        return None


def accepts(grammar, text):
    """Whether the grammar matches a text to its end."""
    if grammar is None:
        return False
    matcher = Matcher(grammar)
    return matcher.feed(text.encode()) and matcher.complete


def spellings(value):
    """The usual texts of a value, as json.dumps writes it with its options."""
    return dict.fromkeys(
        [
            json.dumps(value),
            json.dumps(value, ensure_ascii=False),
            json.dumps(value, separators=(",", ":")),
        ]
    )
