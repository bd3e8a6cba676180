"""Progress of a command: a bar on stderr if that is a terminal, and the line of -v at the end."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import messages


@contextlib.contextmanager
def shown(what: str, n: int) -> Iterator[Callable[[int], object]]:
    """Show a bar, labelled `what`, for `n` elements or bytes; without a terminal nothing.

    The context's value is a function that is called with the number of elements just done.
    """
    if not os.isatty(2):
        yield lambda n: None
        return
    import sys

    import click

    with click.progressbar(length=n, label=what, file=sys.stderr, width=30) as bar:
        yield bar.update


class Texts:
    """A bar for texts that are classified: how many are done, how many a second, and the time that
    is left. It is shown on stderr if that is a terminal and stdout is not.

    count(): the number of texts, or None if it is not known; it is called if the bar is shown.
    """

    def __init__(self, count: Callable[[], int | None]) -> None:
        self._bar: Any = None
        self._n, self._began = 0, time.monotonic()
        if os.isatty(2) and not os.isatty(1):
            import sys

            import click

            n = count()
            nothing: Iterator[None] = (x for x in ())  # click needs one where there is no length
            self._bar = click.progressbar(
                nothing,
                length=n,
                file=sys.stderr,
                width=30,
                show_pos=True,
                item_show_func=lambda rate: rate,
            )

    def __enter__(self) -> "Texts":
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def advance(self, n: int) -> None:
        """Count `n` more texts as done."""
        if self._bar is not None:
            self._n += n
            rate = self._n / max(1e-3, time.monotonic() - self._began)
            self._bar.update(n, f"{rate:.0f}/s")

    def say(self, message: object) -> None:
        """Print a message, on a line of its own."""
        if self._bar is not None:
            os.write(2, b"\r\033[K")
        messages.say(message)


class Clock:
    """Measures the time from its creation."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def report(self, out: str, n_tensors: int) -> None:
        """Print the line of -v for the file `out`."""
        messages.report(
            tensors=n_tensors,
            bytes=os.path.getsize(out),
            ms=1e3 * (time.monotonic() - self.began),
            out=out,
        )
