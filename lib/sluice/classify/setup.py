"""From what `classify` was asked to a model that answers: question, cache, calibration, Classifier.

The only place that puts these together: for the command, for its start without click, for
--pass-through and for each group of workers.
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
    """The options of `classify`, by their names; nothing is opened yet.

    asked: a question's name or the path of its YAML file.
    model: path of the model, or None: the question's own, else that of the variable MODEL.
    cache_dir: a directory, or None: the user's. no_cache: keep nothing.
    learnt_file: path of the calibration, or None: the question's own. no_calibration: use none.
    threads, arithmetic, vocab, huge_pages: see model.Model. as_mail, mass: see Classifier.
    say: is given a line where the calibration cannot be used, unless it is None.

    learnt_file: path of the calibration that is used, or None.
    """

    def __init__(
        self,
        asked: str = "spam",
        model: str | None = None,
        cache_dir: str | None = None,
        no_cache: bool = False,
        learnt_file: str | None = None,
        no_calibration: bool = False,
        threads: int | None = None,
        as_mail: bool = False,
        mass: bool = False,
        arithmetic: str = "exact",
        vocab: str | None = None,
        huge_pages: bool = False,
        say: "Callable[[str], None] | None" = to_stderr,
    ) -> None:
        self.learnt_file = calibration.path_for(asked, learnt_file, no_calibration)
        self._asked, self._model, self._threads, self._as_mail = asked, model, threads, as_mail
        self._cache_dir, self._no_cache, self._mass, self._say = cache_dir, no_cache, mass, say
        self._arithmetic, self._vocab, self._huge_pages = arithmetic, vocab, huge_pages
        self._directory: str | None = None

    def question(self) -> Question:
        """The Question, read from its file. DataError naming what is wrong; OSError."""
        cache = None if self._no_cache else self._cache_dir or cache_directory.home()
        self._directory = cache_directory.usable(cache)
        return read(find(self._asked), self._directory)

    def read_input(self, q: Question, path: str | None = None) -> bytes:
        """The bytes that a Question looks at of the file at `path`, or of stdin (None, "-").

        DataError where there are none; OSError.
        """
        return inputs.read_file(path, self._as_mail or q.kind == "mail")

    def classifier(self, q: Question | None = None, threads: int | None = None) -> Classifier:
        """The Classifier for a Question, or for the one asked, read anew.

        threads: of this one, in place of the option's. Error 64 where no model is named, 65 or 69
        naming what is wrong with it; OSError.
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
            self.learnt_file and calibration.Learnt(self.learnt_file, q, self._say),
            self._huge_pages,
        )

    def _model_of(self, q):
        path = self._model or (model_path(q) if q.model else os.environ.get("MODEL"))
        if not path:
            raise Error(
                USAGE,
                "the question names no model: give -m FILE or the variable MODEL"
                " (see classify --help)",
            )
        return path
