"""Progress of a command: a bar on stderr if that is a terminal, and the line of -v at the end."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

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
