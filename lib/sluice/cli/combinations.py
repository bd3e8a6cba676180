"""Which options of a command go together, as a table of rules; the first that is broken is said.

A rule is a function of Given that returns a message, or None. Names are those of parameters:
`as_json` stands for --json, as the option's declaration says.
"""

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Rule = Callable[["Given"], str | None]


class Given:
    """The parameters of a command line. values: {name: value}."""

    def __init__(self, ctx: click.Context) -> None:
        self.values: dict[str, Any] = ctx.params
        self._spellings = {p.name: _spelling(p) for p in ctx.command.params}

    def __contains__(self, name: str) -> bool:
        value = self.values[name]
        return value is not None and value is not False and value != ()

    def of(self, names: "Iterable[str]") -> list[str]:
        """Those of `names` that are given, in their order."""
        return [name for name in names if name in self]

    def spelt(self, names: "Iterable[str]") -> list[str]:
        """Return options as messages show them: ["--json", "FILE"]."""
        return [self._spellings[name] for name in names]


def _spelling(parameter):
    if isinstance(parameter, click.Argument):
        return "FILE"
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def check(rules: "Iterable[Rule]") -> None:
    """Raise UsageError for the first rule that the present command line breaks."""
    given = Given(click.get_current_context())
    for rule in rules:
        if message := rule(given):
            raise click.UsageError(message)


def one_of(*names: str) -> "Rule":
    """At most one of these is given."""

    def rule(given: Given) -> str | None:
        some = given.spelt(given.of(names))
        return f"{some[0]} and {some[1]} exclude each other" if len(some) > 1 else None

    return rule


def without(name: str, *others: str) -> "Rule":
    """`name` goes with none of the others, which may go together."""

    def rule(given: Given) -> str | None:
        return next(filter(None, (one_of(name, other)(given) for other in others)), None)

    return rule


def excludes(name: str, *others: str, unless: "Any" = None) -> "Rule":
    """As `without`, and the message lists all others. unless: a value of `name` that may be."""

    def rule(given: Given) -> str | None:
        if name not in given or given.values[name] == unless or not given.of(others):
            return None
        return f"{given.spelt([name])[0]} excludes {_list(given.spelt(others), 'and')}"

    return rule


def not_with(names: "Iterable[str]", other: str) -> "Rule":
    """None of `names` goes with `other`."""
    names = tuple(names)

    def rule(given: Given) -> str | None:
        if other not in given or not given.of(names):
            return None
        return f"{_list(given.spelt(names), 'and')}: not with {given.spelt([other])[0]}"

    return rule


def need(names: "Iterable[str]", *any_of: str) -> "Rule":
    """Each of `names` needs one of `any_of`."""
    names = tuple(names)

    def rule(given: Given) -> str | None:
        if not given.of(names) or given.of(any_of):
            return None
        return _sentence(given, names, "need", _list(given.spelt(any_of), "or"))

    return rule


def need_one_question(*names: str) -> "Rule":
    """None of `names` is given with several questions."""

    def rule(given: Given) -> str | None:
        is_wrong = len(given.values["asked"]) > 1 and given.of(names)
        return _sentence(given, names, "need", "one question") if is_wrong else None

    return rule


def take_no_file(*names: str) -> "Rule":
    """None of `names` is given with a FILE."""

    def rule(given: Given) -> str | None:
        is_wrong = "files" in given and given.of(names)
        return _sentence(given, names, "take", "no FILE") if is_wrong else None

    return rule


def need_files(name: str, what: str) -> "Rule":
    """`name` needs FILE arguments. what: how the manual calls them."""

    def rule(given: Given) -> str | None:
        is_wrong = name in given and "files" not in given
        return _sentence(given, [name], "need", what) if is_wrong else None

    return rule


def _sentence(given, names, verb, object):
    verb += "s" * (len(names) == 1)
    return f"{_list(given.spelt(names), 'and')}: {verb} {object}"


def _list(words, last):
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end
