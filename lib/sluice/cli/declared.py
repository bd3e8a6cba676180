"""Options and arguments as commands declare them: with what the manual and completion need."""

import functools

import click


class Option(click.Option):
    """click.Option that also knows its place in the manual and what completes its value.

    group     heading of its group in the manual
    aliases   further spellings, which help and messages do not show
    files     suffixes, without the dot, of the files that a value is completed with; () is any
    words     values that complete it, beside those of a click.Choice
    """

    def __init__(self, decls, *, group="General", aliases=(), files=(), words=(), **attributes):
        self.group, self.aliases, self.files, self.words = group, aliases, files, words
        super().__init__([*decls, *aliases], **attributes)

    @property
    def names(self):
        """The spellings that are shown, the short one first."""
        return [name for name in self.opts if name not in self.aliases]

    def get_error_hint(self, ctx):
        hint = super().get_error_hint(ctx)
        for alias in self.aliases:
            hint = hint.replace(f" / '{alias}'", "")
        return hint


class Argument(click.Argument):
    """click.Argument that also knows what completes it, as Option."""

    def __init__(self, decls, *, files=(), words=(), **attributes):
        self.files, self.words = files, words
        super().__init__(decls, **attributes)


option = functools.partial(click.option, cls=Option)
argument = functools.partial(click.argument, cls=Argument)


class Command(click.Command):
    """click.Command whose --help is its manual."""

    def format_help(self, ctx, formatter):
        from . import manual

        name = ctx.info_name.split()[-1]  # "sluice classify" has the manual of classify
        formatter.write(manual.text(manual.of_command(name, self)))

    def get_help_option(self, ctx):
        found = super().get_help_option(ctx)
        if found:
            found.help = "Print this text."
        return found
