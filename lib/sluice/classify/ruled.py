"""Verdicts on messages that a rule decides (mail/rules.py). The model is not asked."""

import os

from ..faults import USAGE, Error
from ..mail.rule_file import RuleFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..question.question import Question
    from .classifier import Classifier, Verdict


class Ruled:
    """The rules for a question, in the file at `path`.

    client: address of the host that delivered the next messages, as the mail server names it.
    origin: where the rules are and what they are told, str. The file is read again when it changes.
    Raises Error 64 for a question about texts that are not messages, and as RuleFile does.
    """

    def __init__(
        self,
        path: str,
        question: "Question",
        is_mail: bool,
        authserv_ids: "Sequence[str]",
        say: "Callable[[str], object] | None",
        client: str | None = None,
    ) -> None:
        if not is_mail:
            raise Error(USAGE, "--rules: for messages; give --mail if the texts are messages")
        answers = {name: name for name in question.answers} | question.aliases
        self._file, self.client = RuleFile(path, answers, authserv_ids, say), client
        self.origin = " ".join([os.path.abspath(path), *authserv_ids, client or "-"])

    def verdict(self, c: "Classifier", data: bytes) -> "Verdict | None":
        """Return the Verdict on a message if a rule matches it, else None."""
        from ..question import kinds
        from .classifier import Verdict

        rule = self._file.current().match(data, self.client)
        if not rule or not data:
            return None
        v = Verdict()
        v.rule, v.answer, v.score = rule.name, rule.answer, 1.0
        v.scores = {name: float(name == rule.answer) for name in c.question.answers}
        is_score = c.question.type == kinds.SCORE
        v.level = kinds.level(list(v.scores.values())) if is_score else None
        v.log_p, v.learned, v.taught, v.hidden = [], None, None, None
        v.n_tokens = v.n_reused = 0
        v.cut, v.mass, v.begin_mass, v.used = False, None, None, (b"", None)
        return v
