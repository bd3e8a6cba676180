"""The calibrations of several users: DIR/USER/QUESTION.calibration.

A user's directory and file may belong to the user (below.py says to whom else), so that the user
can use --learn without the rights of the daemon, and the daemon reads the result. A name that
is not of the form USER never becomes a path. Who has no file gets the site's: the one that
is used without this directory.
"""

import contextlib
import os
import re

from ..learn import place
from ..learn.learned import Learned
from ..system.below import Below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .classifier import Classifier

USER = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,39}")
MAX_FILES = 16  # that one process keeps parsed


class LearnedFiles:
    """The calibrations in `directory`. say: as of Learned."""

    def __init__(self, directory: str, say: "Callable[[str], object] | None" = None) -> None:
        self._directory, self._say = directory, say
        self._known: dict[str, Any] = {}  # by user, the one used last at the end

    def of(self, c: "Classifier", user: str | None) -> "Any":
        """Return the calibration for the question of `c` that is the user's, or else the site's.

        The site's is c.learned.
        """
        if c.head or user is None or not USER.fullmatch(user):
            return c.learned
        path: Any = Below(self._directory, user, c.question.name + place.SUFFIX)
        if not os.path.lexists(path):
            self._known.pop(user, None)
            return c.learned
        found = self._known.pop(user, None)
        if found is None:
            found = Learned(path, c.question, self._say)
        self._known[user] = found
        if len(self._known) > MAX_FILES:
            self._known.pop(next(iter(self._known)))
        return found

    @contextlib.contextmanager
    def used(self, c: "Classifier", user: str | None) -> "Iterator[None]":
        """Classify with the user's calibration inside this block."""
        site = c.learned
        c.learned = self.of(c, user)
        try:
            yield
        finally:
            c.learned = site
