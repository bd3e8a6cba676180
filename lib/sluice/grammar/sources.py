"""A grammar from any of its sources: GBNF, a regular expression, a JSON Schema."""

import os

from .. import messages, stream
from ..faults import data_error, unsupported_error
from . import gbnf
from .matcher import Grammar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .syntax import Syntax


class Source:
    """Where a grammar comes from: the values of the options, of which at most one is given.

    path: file of GBNF. text: GBNF. regex: regular expression. schema: JSON Schema, as a file, as
    "-" (stdin), or as the text itself, which begins with "{". lax: leave out keywords that cannot
    be honoured, and say so. indent: blanks of a level of JSON, or None for one line.
    """

    def __init__(
        self,
        path: str | None = None,
        text: str | None = None,
        regex: str | None = None,
        schema: str | None = None,
        lax: bool = False,
        indent: int | None = None,
    ) -> None:
        self.path, self.text, self.regex, self.schema = path, text, regex, schema
        self.lax, self.indent = lax, indent

    @property
    def n_given(self) -> int:
        """Number of sources that are given."""
        return sum(x is not None for x in (self.path, self.text, self.regex, self.schema))

    def grammar(self, reads: bool = False) -> "Grammar | None":
        """Return the Grammar, or None if no source is given. OSError; an Error names the place.

        reads: it reads texts that others wrote, so that JSON on one line may have blanks or not.
        """
        syntax = self.syntax(reads)
        return None if syntax is None else Grammar(syntax, syntax.name)

    def syntax(self, reads: bool = False) -> "Syntax | None":
        """Return the Syntax, as `grammar`."""
        if self.path is not None:
            return gbnf.parse(stream.read_file(self.path, gbnf.MAX_SOURCE_BYTES), self.path)
        if self.text is not None:
            return gbnf.parse(os.fsencode(self.text), "--grammar-text")
        if self.regex is not None:
            return of_regex(self.regex, "--regex")
        return None if self.schema is None else self._of_schema(self.schema, reads)

    def _of_schema(self, schema, reads):
        from .schema import document

        if schema.lstrip().startswith("{") or schema.strip() in ("true", "false"):
            source, name = os.fsencode(schema), "--json-schema"
        elif schema == "-":
            source, name = stream.read_text(0), "standard input"
        else:
            source, name = stream.read_file(schema, document.MAX_BYTES), schema
        return of_schema(source, name, self.lax, self.indent, not reads)


def of_schema(
    source: bytes, name: str, lax: bool = False, indent: int | None = None, fixed: bool = False
) -> "Syntax":
    """Return the Syntax of a JSON Schema (bytes). fixed: blanks behind `:` and `,` stand always, as
    in texts that a model writes; else they may. DataError, UnsupportedError.
    """
    from .schema import compiler

    return compiler.compile(source, name, messages.say if lax else None, indent, fixed)


def of_regex(expression: str, name: str) -> "Syntax":
    """Return the Syntax of a regular expression, which matches from end to end. DataError,
    UnsupportedError.
    """
    from . import regex
    from .building import Builder

    builder = Builder(name)
    try:
        tree = regex.whole(expression)
    except regex.BadPattern as e:
        raise data_error(name, str(e)) from None
    except regex.Unsupported as e:
        raise unsupported_error(name, str(e)) from None
    builder.rule(builder.fresh("root"), builder.tree(tree, builder.plain_character))
    syntax = builder.finish()
    if syntax is None:
        raise data_error(name, "the expression matches no text")
    return syntax
