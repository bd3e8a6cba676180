"""Declare options and arguments of a command, with their place in the manual and in completion."""

import functools
import re
from typing import Any

import click

from .. import faults

# metavars of values that name one file
FILE_METAVARS = ("FILE", "FILE|NAME", "BASE", "SNAPSHOT", "SOURCE", "IN")


class Option(click.Option):
    """click.Option with its place in the manual and the completion of its value.

    group     heading of its group in the manual
    aliases   further spellings, which the help lists last and messages do not show
    files     suffixes (without the dot) of the files that complete a value; (): any file
    words     words that complete a value, besides those of a click.Choice
    last_wins whether a further value replaces the one before, so that the options of a script
              can be overridden: numbers, choices, and what says so. Other values name an input, an
              output or a text; given twice, they are a usage error.
    """

    def __init__(
        self,
        decls: "tuple[str, ...]",
        *,
        last_wins: bool = False,
        group: str = "General",
        aliases: "tuple[str, ...]" = (),
        files: "tuple[str, ...]" = (),
        words: "tuple[str, ...]" = (),
        **attributes: Any,
    ) -> None:
        self.group, self.aliases, self.files, self.words = group, aliases, files, words
        super().__init__([*decls, *aliases], **attributes)
        is_text = isinstance(self.type, click.types.StringParamType)
        self.last_wins = last_wins or self.multiple or self.is_flag or self.count or not is_text

    @property
    def names(self) -> list[str]:
        """The spellings that help and messages show, the short one first."""
        return [name for name in self.opts if name not in self.aliases]

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the name of the option in messages: "-m/--model"."""
        return "/".join(self.names)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value. Raises Error 66 for an empty file name."""
        _refuse_empty_name(self, ctx, value)
        return super().type_cast_value(ctx, value)


class Argument(click.Argument):
    """click.Argument with the completion of its value: files and words as for Option."""

    def __init__(
        self,
        decls: "tuple[str, ...]",
        *,
        files: "tuple[str, ...]" = (),
        words: "tuple[str, ...]" = (),
        **attributes: Any,
    ) -> None:
        self.files, self.words = files, words
        super().__init__(decls, **attributes)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the name of the argument in messages: "SNAPSHOT"."""
        return (self.metavar or self.name or "").strip("[]")

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value. Raises Error 66 for an empty file name."""
        _refuse_empty_name(self, ctx, value)
        return super().type_cast_value(ctx, value)


def _refuse_empty_name(param, ctx, value):
    if value == "" and (param.metavar or "").strip("[]") in FILE_METAVARS:
        raise faults.Error(
            faults.NO_INPUT,
            f"{param.get_error_hint(ctx)}: empty file name; is the shell variable set?",
        )


option: Any = functools.partial(click.option, cls=Option)
argument: Any = functools.partial(click.argument, cls=Argument)


class Command(click.Command):
    """click.Command whose --help is its manual."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the manual."""
        from . import manual

        # "sluice classify" has the manual of classify
        name = (ctx.info_name or "").split()[-1]
        formatter.write(manual.text(manual.of_command(name, self)))

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option -h, --help."""
        found = super().get_help_option(ctx)
        if found:
            found.help = "Print this text."
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises UsageError; one for a surplus word has a remedy."""
        try:
            self._refuse_twice(ctx, args)
            return super().parse_args(ctx, args)
        except click.UsageError as e:
            found = re.match(r"Got unexpected extra arguments? \((.*)\)", e.message)
            if not found or type(e) is not click.UsageError:
                raise
            raise click.UsageError(self._surplus(found[1]), ctx) from None

    def _refuse_twice(self, ctx, args):
        """Raise UsageError for an option with one value that is given twice."""
        if ctx.resilient_parsing:
            return
        given = self.make_parser(ctx).parse_args(list(args))[2]
        for param in given:
            if isinstance(param, Option) and not param.last_wins and given.count(param) > 1:
                raise click.UsageError(
                    f"{param.get_error_hint(ctx)}: given twice: it takes one value", ctx
                )

    def _surplus(self, words):
        """The message for surplus words on the command line."""
        first = words.split(" ")[0]
        remedy = ""
        if any("--file" in param.opts for param in self.params):
            remedy = f"; to read a file, use -f {first}"
        elif not any(isinstance(param, click.Argument) for param in self.params) and (
            " <" in (self.help or "").partition("DESCRIPTION")[0]
        ):
            remedy = f"; to read a file, use <{first}"
        return f"{faults.printable(first)}: unexpected argument{remedy}"
