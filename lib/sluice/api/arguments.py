"""Types and checks of the arguments of the Python API."""

from __future__ import annotations

import json
import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ..generate import settings
from ..limits import MAX_BIAS, MAX_CAPACITY, MAX_VOCAB
from ..model import model as models

Path = str | os.PathLike[str]
Text = str | bytes
Arithmetic = Literal["exact", "fast"]
KvType = Literal["f32", "f16", "q8_0"]
Pooling = Literal["last", "mean", "cls"]
MAX_THREADS = 1024
MAX_FLOAT = sys.float_info.max


def as_bytes(text: Text) -> bytes:
    """Return a text as bytes, str as UTF-8. Raises TypeError for other types, and for arrays of
    anything but bytes, whose memory is no text.
    """
    if isinstance(text, str):
        return text.encode()
    try:
        view = memoryview(text)  # TypeError for an int: bytes(n) would be n zeros
    except (TypeError, ValueError):  # numpy has arrays without a format
        view = None
    if view is None or view.ndim != 1 or view.format not in ("B", "b", "c"):
        raise TypeError(f"a text is str or bytes, not {type(text).__name__}")
    return bytes(view)


def str_or_none(path: Path | None) -> str | None:
    """Return a path as str; None stays None."""
    return None if path is None else os.fspath(path)


def named(name: Path) -> str:
    """Return a name or a path as an option takes it: a path object is never a name."""
    text = os.fspath(name)
    return text if isinstance(name, str) else os.path.join(os.curdir, text)


def as_json(name: str, value: Any) -> Any:
    """Return the argument `name` as JSON has it: lists and dicts with keys of text.

    Raises TypeError for what JSON cannot have, ValueError for a number that it cannot have.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except TypeError as e:
        raise TypeError(f"{name}: {e}") from None
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{name}: {e}") from None


def check_engine(threads: int | None, arithmetic: str) -> None:
    """Check the arguments `threads` and `arithmetic`. Raises ValueError or TypeError."""
    if threads is not None:
        integer("threads", threads, 1, MAX_THREADS)
    check_one_of("arithmetic", arithmetic, models.ARITHMETICS)


def check_one_of(name: str, value: str, choices: Iterable[str]) -> None:
    """Check that the argument `name` is one of `choices`. Raises ValueError."""
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is not one of {', '.join(choices)}")


def finite(name: str, value: float, minimum: float, maximum: float | None = None) -> float:
    """Return the argument `name` as a float from `minimum` to `maximum`. Raises ValueError."""
    number, maximum = float(value), MAX_FLOAT if maximum is None else maximum
    if not minimum <= number <= maximum:  # NaN fails, too
        raise ValueError(f"{name}: {value} is not a number from {minimum} to {maximum}")
    return number


def integer(name: str, value: int, minimum: int, maximum: int = MAX_CAPACITY) -> int:
    """Return the argument `name` as an int in range. Raises ValueError or TypeError."""
    number = operator.index(value)
    if not minimum <= number <= maximum:
        raise ValueError(f"{name}: {value} is not an integer from {minimum} to {maximum}")
    return number


def bias_pairs(
    bias: Mapping[int | str, float],
) -> tuple[list[tuple[int, float]], list[tuple[str, float]]]:
    """Split biases into those of token IDs and those of words; check them. Raises ValueError."""
    tokens, words = [], []
    for key, value in bias.items():
        number = value if value == -math.inf else finite("bias", value, -MAX_BIAS, MAX_BIAS)
        if isinstance(key, str):
            words.append((key, number))
        else:
            tokens.append((integer("bias", key, 0, MAX_VOCAB), number))
    return tokens, words


def sampler_settings(
    given: Mapping[str, float], order: str | None, breakers: Iterable[str]
) -> dict[str, Any]:
    """Return the settings `given` by name, the order and the breakers of DRY, for the sampler.

    Raises TypeError for a name that does not exist, ValueError for a value out of range.
    """
    known = {setting.argument: setting for setting in settings.SETTINGS}
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{name}: no such argument")
        try:
            out[name] = settings.number(known[name], value)
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from None
    if order is not None:
        out["order"] = settings.order_of(order)
    out["dry_breakers"] = settings.check_breakers(breakers)
    return out
