"""What a verdict asks of the file of what was learned: the fit, the evidence of a text's tokens,
and whether the user has given the answer of this very text.
"""

import os
from bisect import bisect_left

from ..faults import Error, data_error
from . import evidence, layout, place
from .joint import Joint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..gguf import File
    from ..question.question import Question


class Learned:
    """What was learned for a question, from the file at `path`.

    The file is used if it exists, is intact and belongs to this question and model. Each call of
    `section` checks whether the file changed, so a running server uses what --learn adds.
    say: called with a message for each new reason not to use the file. None: no message.
    owner: ID of the user who may own the file, besides this user and root; None: no other.
    """

    def __init__(
        self,
        path: str,
        question: "Question",
        say: "Callable[[str], object] | None" = None,
        owner: int | None = None,
    ) -> None:
        self.path, self._question, self._say, self._owner = path, question, say, owner
        self._seen: Any = None
        self._section: Section | None = None
        self._last_error: str | None = None

    def section(self, file: "File") -> "Section | None":
        """Return the Section for the model `file`, or None: the question's calibration is used."""
        try:
            seen: Any = layout.identity_of(os.stat(self.path))
        except OSError as e:
            seen = e.errno
        if seen != self._seen:
            self._seen, self._section = seen, None
            try:
                self._section = self._read(file)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as e:
                self._tell(f"{self.path}: {e.strerror}")
            except Error as e:
                self._tell(str(e))
        return self._section

    def _read(self, file):
        from ..question import calibration

        opened = layout.Opened(self.path, self._owner)
        question = bytes.fromhex(calibration.digest(self._question))
        found = {
            s.model: s for s in sections(self.path, opened) if s.question == question and s.n_texts
        }
        if not found and _is_empty_or_shared(self.path, opened, self._question):
            return None
        section = found.get(file.id[:8]) or found.get(file.earlier_id[:8])
        if not section:
            raise data_error(self.path, "its examples belong to another model or question")
        if section.prior != calibration.prior(self._question):
            raise data_error(
                self.path,
                "was fitted to another calibration of the question; the next --learn fits it again",
            )
        return section

    def _tell(self, why):
        if self._say and why != self._last_error:
            self._last_error = why
            self._say(f"{why}; the question's calibration is used")


def _is_empty_or_shared(path, opened, question):
    """Whether it is no fault that a file has nothing for a question: it has nothing at all, or is
    the default file, which questions of one name share.
    """
    return path == place.home(question.name) or not any(s.n_texts for s in sections(path, opened))


def sections(path: str, opened: layout.Opened) -> "list[Any]":
    """Return the Sections of a file of any format. Raises DataError."""
    data = opened.data
    if bytes(data[: len(layout.MAGIC_1)]) == layout.MAGIC_1:
        from . import format1

        return format1.sections(path, bytes(data))
    salt, entries, _ = layout.parse(path, data, len(data))
    return [Section(path, data, entry, salt) for entry in entries]


class Section:
    """What was learned for one model and question.

    model, question: 8 bytes each. n_texts: int. prior: [scale, *biases] of the question. joint:
    the Joint. Raises DataError for numbers that no fit has.
    """

    def __init__(self, path: str, data: "Any", entry: layout.Entry, salt: bytes) -> None:
        self.model, self.question, self.n_texts = entry.model, entry.question, entry.n
        self._k, self._salt = entry.k, salt

        def array(name: str, form: str) -> "Any":
            begin, end = entry.offsets[name]
            return data[entry.at + begin : entry.at + end].cast(form)

        self.prior: list[float] = array("prior", "d").tolist()
        scale, trust, *bias = array("joint", "d").tolist()
        self.joint = Joint(scale, trust, bias)
        numbers = (*self.prior, scale, trust, *bias)
        if not all(-layout.MAX_NUMBER <= x <= layout.MAX_NUMBER for x in numbers):  # NaN fails
            raise layout.damaged(path, "a number of the fit is out of range")
        if scale < 0 or self.prior[0] <= 0:
            raise layout.damaged(path, "scale of the fit is below 0")
        self._totals = array("totals", "I").tolist()
        self._pairs, self._texts = array("pairs", "Q"), array("texts", "Q")
        self._labels, self._flags = array("labels", "B"), array("flags", "B")
        self._salted: Any = None

    @property
    def salted(self) -> layout.Salted:
        """The digests of the file."""
        if self._salted is None:
            self._salted = layout.Salted(self._salt)
        return self._salted

    def digest(self) -> str:
        """Return 16 hex digits of a hash of all that decides a verdict."""
        import hashlib

        h = hashlib.sha256(repr((self.prior, self.joint)).encode())
        for array in self._pairs, self._texts, self._labels, self._flags:
            h.update(array)
        return h.hexdigest()[:16]

    @property
    def has_evidence(self) -> bool:
        """Whether tokens of a text can say anything."""
        return any(self._totals) and self.joint.trust != 0

    @property
    def has_every_answer(self) -> bool:
        """Whether each answer has texts with tokens."""
        return all(self._totals)

    def label(self, parts: tuple[bytes, bytes | None]) -> int | None:
        """Return the index of the answer that the user gave to a text, or None.

        parts: (text, rest), see inputs.text.
        """
        if not len(self._texts):
            return None
        digest = self.salted.text(layout.name_of(parts))
        i = bisect_left(self._texts, digest)
        if i == len(self._texts) or self._texts[i] != digest or self._flags[i] & layout.AUTO:
            return None
        label: int = self._labels[i]
        return label if label < self._k else None

    def evidence(
        self, words: "Iterable[str]", own: int | None = None
    ) -> tuple[list[float], dict[str, list[float]]]:
        """Return (t, weights) of the tokens of a text.

        own: index of the answer that was learned for this text, to get the evidence as if it had
        not been.

        t: the evidence for each answer, [k], its sum 0. weights: {token: what it adds to t}, of the
        tokens that learned texts have.
        """
        pairs, totals, k, m = self._pairs, self._totals, self._k, len(self._pairs)
        counts, known, of_sender, words = [], [], [], list(words)
        kept = set() if own is None else set(self.salted.kept(words))
        if own is not None:
            totals = [n - (a == own) for a, n in enumerate(totals)]
        for word, digest in zip(words, self.salted.tokens(words)):
            row, i = None, bisect_left(pairs, digest << 32)
            while i < m and (pair := pairs[i]) >> 32 == digest:
                row, i = row or [0] * k, i + 1
                answer = pair >> 24 & 0xFF
                if answer >= k or row[answer]:  # of a damaged file
                    break
                row[answer] = pair & layout.MAX_COUNT
            if row and own is not None and digest in kept:
                row[own] = max(0, row[own] - 1)
            if row and any(row):
                counts.append(row)
                known.append(word)
                of_sender.append(digest & 1)
        t, weights = evidence.of(counts, totals, of_sender)
        return t, dict(zip(known, weights))
