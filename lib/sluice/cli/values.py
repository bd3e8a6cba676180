"""Types of option values: numbers, byte counts, file modes, token biases."""

import math
from typing import Any

import click

from ..limits import MAX_BIAS


class Number(click.FloatRange):
    """A finite float from `min` to `max`."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the float. Raises BadParameter."""
        number = float(super().convert(value, param, ctx))
        if number != number or number in (float("inf"), float("-inf")):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class OrNone(click.IntRange):
    """An integer within a range; -1, as in llama.cpp, becomes None: no limit, a random seed."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the int, or None for -1. Raises BadParameter."""
        return None if str(value).strip() == "-1" else super().convert(value, param, ctx)

    def _describe_range(self):  # called by click for messages
        return f"-1 or {super()._describe_range()}"


class Bytes(click.ParamType):
    """A number of bytes: 4096, or 500K, 50M, 2G (powers of 1000)."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises BadParameter."""
        if isinstance(value, int):
            return value
        unit = {"K": 1000, "M": 1000**2, "G": 1000**3}.get(value[-1:].upper(), 1)
        digits = value if unit == 1 else value[:-1]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15 and int(digits)):
            self.fail(f"{value!r} is not a number of bytes such as 4096, 50M or 2G", param, ctx)
        return int(digits) * unit


class Mode(click.ParamType):
    """The mode of a file, in octal: "0660"."""

    name = "mode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the mode. Raises BadParameter."""
        if isinstance(value, int):
            return value
        if not (
            value.isdigit()
            and value.isascii()
            and len(value) <= 4
            and "8" not in value
            and "9" not in value
            and int(value, 8) <= 0o777
        ):
            self.fail(f"{value!r} is not a mode from 0000 to 0777", param, ctx)
        return int(value, 8)


class Bias(click.ParamType):
    """KEY=X, split at the last "=". KEY: a token ID, or any text with `words`.

    X: a number from -MAX_BIAS to MAX_BIAS, or -inf.
    """

    def __init__(self, words: bool = False) -> None:
        self.name, self._words = ("word=x" if words else "id=x"), words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | str, float]:
        """Return (key, x). Raises BadParameter."""
        key, equals, number = value.rpartition("=")
        if not (equals and key):
            self.fail(f"{value!r} is not of the form {self.name.upper()}", param, ctx)
        is_never = number.strip().lower() in ("-inf", "-infinity")
        number = -math.inf if is_never else Number(-MAX_BIAS, MAX_BIAS).convert(number, param, ctx)
        if self._words:
            return key, number
        if not (key.isascii() and key.isdigit() and len(key) <= 7):
            self.fail(f"{key!r} is not a token ID", param, ctx)
        return int(key), number


MAX_NUMBER = (1 << 22) - 1


class Numbers(click.ParamType):
    """Integers from `minimum` to MAX_NUMBER, separated by commas."""

    name = "list"

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a list of int. Raises BadParameter."""
        try:
            out = [int(part) for part in str(value).split(",")]
        except ValueError:
            out = [-1]
        if not all(self.minimum <= n <= MAX_NUMBER for n in out):
            self.fail(
                f"{value!r} is not a list of numbers from {self.minimum} to {MAX_NUMBER}, such as"
                " 128,512",
                param,
                ctx,
            )
        return out
