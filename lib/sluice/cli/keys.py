"""Options of a command as keys of a JSON object: max_tokens for --max-tokens."""

from typing import Any

import click

from ..faults import printable


class Keys:
    """The options of `command` whose parameters have `names`, or are in the group Sampling."""

    def __init__(self, context: click.Context, names: tuple[str, ...]) -> None:
        self._context = context
        self._by_key = {
            flag[2:].replace("-", "_"): option
            for option in context.command.params
            if option.expose_value
            and (getattr(option, "group", "") == "Sampling" or option.name in names)
            for flag in option.opts
            if flag.startswith("--")
        }

    def defaults(self) -> dict[str, Any]:
        """Return {parameter: value} of these options as the command line has them."""
        return {
            str(option.name): self._context.params[str(option.name)]
            for option in self._by_key.values()
        }

    def _of_letter(self, key):
        """What to use instead of the letter of an option, or None."""
        for name, option in self._by_key.items():
            if f"-{key}" in option.opts:
                return f"use {option.name if option.name in self._by_key else name}"
        return None

    def convert(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return {parameter: value} of an object. null is the command line's value.

        Raises ValueError naming the key: unknown, given in two spellings, or of a wrong value.
        """
        found: dict[str, Any] = {}
        for key, value in fields.items():
            option = self._by_key.get(key)
            if option is None:
                other = self._of_letter(key) or "keys are long options, such as max_tokens"
                raise ValueError(f"{printable(key)[:80]}: is no key of a request; {other}")
            if value is None:
                continue
            name = str(option.name)
            if name in found:
                raise ValueError(f"{key}: is given in two spellings")
            try:
                found[name] = self._value(option, value)
            except (click.UsageError, ValueError) as e:
                text = e.message if isinstance(e, click.UsageError) else str(e)
                raise ValueError(f"{key}: {text.rstrip('.')}") from None
        return found

    def _value(self, option, value):
        if option.multiple:
            values = value if isinstance(value, list) else [value]
            return self._parsed(option, tuple(self._one(option, x) for x in values))
        return self._parsed(option, self._one(option, value))

    def _parsed(self, option, value):
        parse = getattr(option.callback, "parse", None)  # of cli.sampling
        return parse(value) if parse else value

    def _one(self, option, value):
        if option.is_flag:
            if type(value) is not bool:
                raise ValueError("is not true or false")
            return value
        if isinstance(value, (bool, dict, list)) or value is None:
            raise ValueError("is not a number or a text")
        if isinstance(option.type, click.types.StringParamType) and not isinstance(value, str):
            raise ValueError("is not a text")
        return option.type.convert(str(value), option, self._context)
