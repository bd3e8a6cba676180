"""Build a Classifier from the options of `classify`: question, cache, calibration and model.

The command, its fast start without click, --pass-through, the workers of --listen and
sluice.Question all use this module.
"""

import copy
import os

from ..faults import USAGE, Error
from ..learn import place
from ..messages import say as to_stderr
from ..question.question import Question, find, model_path, read_all
from ..system import cache_directory
from ..texts import inputs
from .classifier import Classifier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.model import Model
    from .panel import Panel

AD_HOC = "answer"  # name of a question that has no file


class Setup:
    """The options of `classify`. Creating one opens no file.

    asked: name of a bundled question, or path of a YAML file; or a list of these. answers: with
    one `asked`, which is then the text of a question: its answers.
    model: path of the model. None: the question's own model, else the one that $MODEL names.
    cache_dir: cache directory. None: the user's. no_cache: no cache at all.
    calibration_file: path of the user's calibration. None: the question's file in the user's data
    directory. no_calibration: use the question's calibration only.
    threads, arithmetic, vocab, huge_pages: see model.Model. as_mail, mass: see Classifier.
    say: called with a message if the calibration cannot be used. None: no message.
    fit_path: path of the fit. None: the question's file in the user's data directory.
    prior: none, content-free, texts or a file, in place of the question's prior, calibration of the
    user and fit. None: these. ignores_fit: the question's own calibration is used. auto_learn: the
    probability from which on an answer is learned, or None.
    rules: path of the rules for messages. authserv_ids: servers whose word about a message is
    trusted. client: address of the host that delivered it. learned_in: directory of what several
    users learned (learned_files.py); learned_by: the user whose is used.

    Attribute calibration_file: path of the calibration in use, or None. as_mail may be set before a
    model is opened.
    """

    def __init__(
        self,
        asked: "str | Sequence[str]" = "spam",
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
        answers: "Sequence[str] | None" = None,
        fit_path: str | None = None,
        prior: str | None = None,
        ignores_fit: bool = False,
        auto_learn: float | None = None,
        rules: str | None = None,
        authserv_ids: "Sequence[str]" = (),
        client: str | None = None,
        learned_in: str | None = None,
        learned_by: str | None = None,
    ) -> None:
        self._asked = [asked] if isinstance(asked, str) else list(asked)
        self._answers = answers
        self._prior, self._fit_path = prior, fit_path
        self._auto_learn = auto_learn
        self._rules, self._authserv_ids, self._client = rules, tuple(authserv_ids), client
        self._users = learned_in, learned_by
        self._ignores_fit = ignores_fit or no_calibration or prior not in (None, "none")
        self._calibration = calibration_file, self._ignores_fit
        self.calibration_file = self._calibration_of(self._asked[0])
        self._model, self._threads, self.as_mail = model, threads, as_mail
        self._cache_dir, self._no_cache, self._mass, self._say = cache_dir, no_cache, mass, say
        self._arithmetic, self._vocab, self._huge_pages = arithmetic, vocab, huge_pages
        self._directory: str | None = None

    def _calibration_of(self, asked):
        if self._answers is not None:  # a question without a file has no name by which to find one
            file, is_off = self._calibration
            return None if is_off else file
        return place.path_for(asked, *self._calibration)

    def question(self) -> Question:
        """Read and check the only question. Raises Error 64 if there are several, DataError naming
        the key at fault, or OSError.
        """
        questions = self.questions()
        if len(questions) > 1:
            raise Error(USAGE, f"{len(questions)} questions, where one can be asked")
        return questions[0]

    def questions(self) -> list[Question]:
        """Read and check all questions. Raises DataError naming the key at fault, or OSError."""
        cache = None if self._no_cache else self._cache_dir or cache_directory.home()
        self._directory = cache_directory.usable(cache)
        if self._answers is not None:
            from ..question import kinds

            text = self._asked[0]
            return [Question(kinds.ad_hoc(text, self._answers), kinds.ASKED, AD_HOC)]
        return [q for asked in self._asked for q in read_all(find(asked), self._directory)]

    def read_input(
        self, questions: "Sequence[Question]", path: str | None = None, as_text: bool = False
    ) -> bytes:
        """Read the input of questions from the file at `path`, or from stdin (None or "-").

        Returns at most the bytes that inputs.read keeps. as_text: whatever a file looks like.
        Raises DataError if the input is empty, a directory or a file that is no text, or OSError.
        """
        is_mail = self.as_mail or any(q.kind == "mail" for q in questions)
        if path in (None, "-"):
            return inputs.read_stdin(is_mail)
        from ..texts import one_file

        return one_file.read_one(path, is_mail, as_text)

    def classifier(
        self,
        q: Question | None = None,
        threads: int | None = None,
        model: "Model | None" = None,
    ) -> Classifier:
        """Open the model, and return the Classifier for `q`; None reads the question again.

        threads: overrides the option. model: one that is open already. Raises Error 64 if no model
        is named, DataError (65) or UnsupportedError (69) for a model at fault, or OSError.
        """
        q = copy.copy(q or self.question())  # a fit and a prior change it
        path = self._calibration_of(q.name)
        c = Classifier(
            q,
            self._model_of(q),
            threads or self._threads,
            self._directory,
            self.as_mail,
            self._mass,
            self._arithmetic,
            self._vocab,
            self._learned(path, q),
            self._huge_pages,
            model,
        )
        c.authserv_ids = self._authserv_ids
        if c.is_mail:
            c.signals = self._signals
        if self._rules:
            from .ruled import Ruled

            about = self._rules, q, c.is_mail, self._authserv_ids
            c.rules = Ruled(*about, self._say, self._client)
        self._use_fit(c)
        directory, user = self._users
        if directory:
            from .learned_files import LearnedFiles

            c.users = LearnedFiles(directory, self._say)
            c.learned = c.users.of(c, user)
        if self._prior is not None or q.prior and not c.fitted:
            from ..probability import priors

            c.asked_prior = priors.parse(self._prior, q) if self._prior is not None else q.prior
            priors.prepare(c, c.asked_prior)
        if self._auto_learn is not None and path and c.learned:
            from ..learn.auto import Auto

            c.auto = Auto(c, path, self._auto_learn)
        return c

    def _signals(self, header: bytes) -> set[str]:
        """Return the tokens of a header that learning counts besides its words."""
        from ..mail import signals

        return signals.tokens(header, self._authserv_ids)

    def fit_path(self, q: Question) -> str | None:
        """Return the path of the fit of `q`, there or not; None if there can be none."""
        if self._fit_path or self._answers:
            return self._fit_path
        return place.home(q.name, ".fit")

    def _learned(self, path, q):
        if not path:
            return None
        from ..learn.learned import Learned

        return Learned(path, q, self._say)

    def _use_fit(self, c):
        path = None if self._ignores_fit else self.fit_path(c.question)
        if not path or not self._fit_path and not os.path.lexists(path):
            return
        from ..probability import fit_file

        fit_file.use(c, path)
        if c.head:  # what was learned is joined with log probabilities
            c.learned = None

    def panel(self, questions: list[Question]) -> "Panel":
        """Open the model, and return the Panel of `questions`. Raises as `classifier` does; Error
        64 if they name different models.
        """
        from .panel import Panel

        paths = {os.path.realpath(self._model_of(q)) for q in questions}
        if len(paths) > 1:
            raise Error(USAGE, "-q: the questions name different models; choose one with -m")
        first = self.classifier(questions[0])
        return Panel([first, *(self.classifier(q, model=first.model) for q in questions[1:])])

    def _model_of(self, q):
        path = self._model or (model_path(q) if q.model else os.environ.get("MODEL"))
        if not path:
            raise Error(
                USAGE,
                f"{q.path}: names no model; give -m FILE or set $MODEL (see classify --help)",
            )
        return path
