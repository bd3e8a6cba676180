"""How far a command is: a bar on stderr where that is a terminal, nothing elsewhere; and the line
of -v.
"""

import contextlib
import os
import time

from .. import messages


@contextlib.contextmanager
def shown(what, n):
    """Context of a function that is told how many more are done, of `n` elements or bytes."""
    if not os.isatty(2):
        yield lambda n: None
        return
    import sys

    import click

    with click.progressbar(length=n, label=what, file=sys.stderr, width=30) as bar:
        yield bar.update


class Clock:
    def __init__(self):
        self.began = time.monotonic()

    def report(self, out, n_tensors):
        messages.report(
            tensors=n_tensors,
            bytes=os.path.getsize(out),
            ms=1e3 * (time.monotonic() - self.began),
            out=out,
        )
