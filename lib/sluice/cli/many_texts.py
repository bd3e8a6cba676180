"""Commands that read many texts, of any form, and say something of each: embed and rerank.

@many_texts.options("embed COLUMN")
def main(reading): ...
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from ..classify.plan import STDIN, Texts
from ..messages import say
from .declared import argument, option
from .options import not_with_file, text_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..classify.many import Answering, Counts
    from ..classify.writers import Output
    from ..texts.sources import Item


class Reading:
    """The texts that options name. texts: their Texts. is_mail: they are messages (RFC 5322).

    is_asked: whether an option or a FILE says which they are, or what form they have.
    """

    def __init__(self, texts: Texts, is_mail: bool, is_asked: bool) -> None:
        self.texts, self.is_asked = texts, is_asked
        self.is_mail = is_mail or texts.are_messages()

    def source(self) -> "Iterable[list[Item]]":
        """The texts, in lists of those that may go through a model together."""
        from ..classify import many

        return many.plain_source(self.texts, self.is_mail, self.is_mail)

    def put(
        self, answering: "Answering", source: "Iterable[list[Item]]", writer: "Output"
    ) -> "Counts":
        """Give each text of `source`, and what `answering` finds of it, to `writer`, behind a bar
        on a terminal. Returns the numbers for many.outcome.
        """
        from ..classify import many
        from ..texts.one_file import called
        from .progress import Texts as Bar

        if len(self.texts.paths) < 2:
            writer.name = called(*self.texts.paths or [STDIN])
        with Bar(self.texts.count) as bar:
            return many.run_source(answering, source, writer, bar.say, progress=bar.advance)


def say_cut(n: int) -> None:
    """Say that `n` texts were longer than the context, if any were."""
    if n:
        say(f"{n} texts were longer than the context and lost their ends")


def options(
    column: str, each: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator for the texts: FILEs, -f, -r, --each, --csv, --jsonl, --text and --mail.
    The function gets a Reading as `reading`.

    column: what --csv does. each: what the input is if neither a FILE nor an option says it, a
    value of --each; None: one text.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_reading(
            *args: Any,
            paths: tuple[str, ...],
            recursive: bool,
            each_asked: str | None,
            column: str | None,
            jsonl: bool,
            as_text: bool,
            is_mail: bool,
            **values: Any,
        ) -> Any:
            form = each_asked or jsonl or column is not None
            its_each = each_asked or (None if paths or form else each)
            texts = Texts(paths, recursive, False, its_each, column, as_text, jsonl=jsonl)
            is_asked = bool(paths or form or recursive or is_mail)
            return function(*args, reading=Reading(texts, is_mail, is_asked), **values)

        for made in reversed(_options(column)):
            made(with_reading)
        return with_reading

    return decorate


def _options(column: str) -> list[Any]:
    return [
        argument("paths", nargs=-1, metavar="[FILE]...", callback=not_with_file),
        text_option("Read FILE as standard input."),
        option(
            "-r",
            "--recursive",
            is_flag=True,
            group="Input",
            help="Read folders below a folder, too.",
        ),
        option(
            "--each",
            "each_asked",
            type=click.Choice(["line"]),
            metavar="line",
            words=("line",),
            group="Input",
            help="Each line of the input is a text.",
        ),
        option(
            "--csv",
            "column",
            metavar="COLUMN",
            group="Input",
            help=f"Read a CSV or TSV with a header; {column} of each row.",
        ),
        option(
            "--jsonl",
            is_flag=True,
            group="Input",
            help="Read JSON objects with id and text, one per line.",
        ),
        option(
            "--text",
            "as_text",
            is_flag=True,
            group="Input",
            help="Each FILE is one text, even if it looks like a table, an mbox or binary.",
        ),
        option(
            "--mail",
            "is_mail",
            is_flag=True,
            group="Input",
            help="The texts are messages (RFC 5322).",
        ),
    ]
