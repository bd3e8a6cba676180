"""Build a Classifier from the options of `classify`: question, cache, calibration and model.

The command, its fast start without click, --pass-through, the workers of --listen and
sluice.Question all use this module.
"""

import os

from ..faults import USAGE, Error
from ..messages import say as to_stderr
from ..system import cache_directory
from . import calibration, inputs
from .classifier import Classifier
from .question import Question, find, model_path, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Setup:
    """The options of `classify`. Creating one opens no file.

    asked: name of a bundled question, or path of a YAML file.
    model: path of the model. None: the question's own model, else the one that $MODEL names.
    cache_dir: cache directory. None: the user's. no_cache: no cache at all.
    calibration_file: path of the user's calibration. None: the question's file in the user's data
    directory. no_calibration: use the question's calibration only.
    threads, arithmetic, vocab, huge_pages: see model.Model. as_mail, mass: see Classifier.
    say: called with a message if the calibration cannot be used. None: no message.

    Attribute calibration_file: path of the calibration in use, or None.
    """

    def __init__(
        self,
        asked: str = "spam",
        model: str | None = None,
        cache_dir: str | None = None,
        no_cache: bool = False,
        calibration_file: str | None = None,
        no_calibration: bool = False,
        threads: int | None = None,
        as_mail: bool = False,
        mass: bool = False,
        arithmetic: str = "exact",
        vocab: str | None = None,
        huge_pages: bool = False,
        say: "Callable[[str], None] | None" = to_stderr,
    ) -> None:
        self.calibration_file = calibration.path_for(asked, calibration_file, no_calibration)
        self._asked, self._model, self._threads, self._as_mail = asked, model, threads, as_mail
        self._cache_dir, self._no_cache, self._mass, self._say = cache_dir, no_cache, mass, say
        self._arithmetic, self._vocab, self._huge_pages = arithmetic, vocab, huge_pages
        self._directory: str | None = None

    def question(self) -> Question:
        """Read and check the question. Raises DataError naming the key at fault, or OSError."""
        cache = None if self._no_cache else self._cache_dir or cache_directory.home()
        self._directory = cache_directory.usable(cache)
        return read(find(self._asked), self._directory)

    def read_input(self, q: Question, path: str | None = None) -> bytes:
        """Read the input of a question from the file at `path`, or from stdin (None or "-").

        Returns at most the bytes that inputs.read keeps. Raises DataError if the input is empty or
        a directory, or OSError.
        """
        return inputs.read_file(path, self._as_mail or q.kind == "mail")

    def classifier(self, q: Question | None = None, threads: int | None = None) -> Classifier:
        """Open the model, and return the Classifier for `q`; None reads the question again.

        threads: overrides the option. Raises Error 64 if no model is named, DataError (65) or
        UnsupportedError (69) for a model at fault, or OSError.
        """
        q = q or self.question()
        return Classifier(
            q,
            self._model_of(q),
            threads or self._threads,
            self._directory,
            self._as_mail,
            self._mass,
            self._arithmetic,
            self._vocab,
            self.calibration_file
            and calibration.UserCalibration(self.calibration_file, q, self._say),
            self._huge_pages,
        )

    def _model_of(self, q):
        path = self._model or (model_path(q) if q.model else os.environ.get("MODEL"))
        if not path:
            raise Error(
                USAGE,
                f"{q.path}: names no model; give -m FILE or set $MODEL (see classify --help)",
            )
        return path
