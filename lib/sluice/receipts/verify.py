"""Verify receipts: classify texts again and compare every bit of the log probabilities.

A text is known by its digest, not by its name. A receipt can be compared if model, question and
arithmetic are those at hand; the calibration need not be, because the log probabilities are those
before it. A line of the file that is damaged is named, and the others are used.
"""

import array
import fcntl
import os
import stat

from ..classify.writers import ERROR, MISSING, Writer
from ..faults import data_error, one_line
from ..jsonl import BadLine, dump, load
from ..question.answers import calibrated
from ..question.question import UNSURE
from . import receipts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..classify.classifier import Classifier, Verdict
    from ..classify.panel import Panel
    from ..classify.plan import Texts
    from ..classify.writers import Found
    from ..texts.sources import Item

MAX_NAMED = 20  # damaged lines that are named, one by one
SAME, DIFFERS, UNKNOWN = "same", "differs", "unknown"
WHAT = ("model", "question", "arithmetic")  # that two receipts must have in common
FIELDS = {
    "sluice": str,
    "model": str,
    "question": str,
    "question_name": str,
    "question_file": (str, type(None)),
    "arithmetic": str,
    "name": str,
    "raw": dict,
    "text": dict,
    "tokens": int,
    "cut": bool,
    "answer": str,
    "thresholds": dict,
    "log_p": dict,
    "scores": dict,
    "calibration": dict,
}


class Book:
    """The receipts in the file at `path`, for verdicts of `classifiers`, which have one Model.
    About 400 bytes of memory each.

    key: see receipts.read_key. say: called with a message for each damaged line.
    n: receipts; n_bad: damaged lines; seen: number of receipts that were compared.

    DataError if no receipt can be compared, which names the reason; OSError.
    """

    def __init__(
        self,
        path: str,
        classifiers: "Sequence[Classifier]",
        key: bytes | None,
        say: "Callable[[str], None]",
    ) -> None:
        self.path, self.digest = path, receipts.Digester(key)
        self._here = {c: receipts.comparable(c) for c in classifiers}
        self.n = self.n_bad = 0
        self._bad: list[str] = []
        self._is_one = False  # a file of receipts, if damaged
        self._begins = array.array("Q")  # of lines
        self._seen: set[int] = set()
        # digest of a text, of raw bytes, of a name -> index of the last line that has it; and of a
        # line that has the same text, the one before it
        self._texts: dict[bytes, int] = {}
        self._raw: dict[bytes, int] = {}
        self._names: dict[bytes, int] = {}
        self._before: dict[int, int] = {}
        self._other: tuple[str, str] | None = None  # what the first that is not comparable has
        self._n_comparable = 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise data_error(path, "is not a regular file")
        try:
            self._read()
            if self.n_bad and not self.n and not self._is_one:
                raise data_error(path, "is not a file of receipts")
            for message in self._bad:
                say(message)
            if self._other and not self._n_comparable:
                raise data_error(path, self._not_comparable(*self._other))
            if not self.n and not self.n_bad:
                raise data_error(path, "there is no receipt in it")
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def n_seen(self) -> int:
        """The number of receipts that were compared."""
        return len(self._seen)

    def _read(self):
        with open(self._fd, "rb", closefd=False) as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH)  # no writer is within a line
            except OSError:
                pass
            size = os.fstat(self._fd).st_size
            at = 0
            while at < size and (line := f.readline(receipts.MAX_LINE_BYTES)):
                self._begins.append(at)
                at += len(line)
                if not line.endswith(b"\n") and len(line) == receipts.MAX_LINE_BYTES:
                    while (rest := f.readline(receipts.MAX_LINE_BYTES)) and rest[-1:] != b"\n":
                        at += len(rest)
                    at += len(rest)
                self._take(len(self._begins) - 1, line)
            try:
                fcntl.flock(f, fcntl.LOCK_UN)
            except OSError:
                pass

    def _take(self, i, line):
        try:
            fields = self._parse(line)
        except BadLine as e:
            self.n_bad += 1
            self._is_one = self._is_one or line.startswith(receipts.BEGIN)
            if self.n_bad <= MAX_NAMED:
                self._bad.append(f"{self.path}: line {i + 1} {e}")
            return
        self.n += 1
        text = bytes.fromhex(fields["text"][self.digest.name])[:16]
        raw = bytes.fromhex(fields["raw"][self.digest.name])[:16]
        if text in self._texts:
            self._before[i] = self._texts[text]
        self._texts[text] = i
        if raw != text:
            self._raw[raw] = i
        self._names[_short(fields["name"])] = i
        if all(_other(fields, here) for here in self._here.values()):
            what = _other(fields, next(iter(self._here.values()))) or ""
            self._other = self._other or (what, fields[what])
        else:
            self._n_comparable += 1

    def _not_comparable(self, what, found):
        here = next(iter(self._here.values()))[what]
        found = one_line(found[:16])
        if what == "model":
            return f"the model is another file ({found}, not {here[:16]}): not comparable"
        return f"the {what} is another ({found}, not {here}): not comparable"

    def _parse(self, line):
        """The fields of a line. Raises BadLine."""
        if len(line) >= receipts.MAX_LINE_BYTES:
            raise BadLine("is longer than a receipt can be")
        if not line.endswith(b"\n"):
            raise BadLine("has no end: its writer was stopped")
        line = line[:-1]
        fields = load(line)
        if not isinstance(fields, dict) or fields.get("receipt") is None:
            raise BadLine("is not a receipt")
        if fields["receipt"] != receipts.FORMAT:
            raise BadLine("is a receipt of another version")
        if "key" in fields and not self.digest.key_name:
            raise BadLine("was made with a key: give --receipt-key")
        if fields.get("key") != self.digest.key_name:
            known = "another key" if "key" in fields else "no key"
            raise BadLine(f"was made with {known}")
        if not receipts.is_sealed(line, self.digest):
            raise BadLine("is damaged: its seal is not that of its contents")
        try:
            self._check(fields)
        except (ValueError, KeyError, TypeError, OverflowError):
            raise BadLine("is damaged: its fields are not those of a receipt") from None
        return fields

    def _check(self, fields):
        """Raise ValueError and the like unless the fields are those of a receipt, and the scores
        and the answer are what its log probabilities give.
        """
        for name, kind in FIELDS.items():
            if not isinstance(fields[name], kind):
                raise ValueError(name)
        for of in ("raw", "text"):
            if len(bytes.fromhex(fields[of][self.digest.name])) != 32:
                raise ValueError(of)
        names = list(fields["log_p"])
        log_p = [_number(x) for x in fields["log_p"].values()]
        p = [_number(x) for x in fields["scores"].values()]
        thresholds = fields["thresholds"]
        if not len(names) > 1 or not names == list(fields["scores"]) == list(thresholds):
            raise ValueError("answers")
        if fields["answer"] not in (*names, UNSURE):
            raise ValueError("answer")
        fit = fields["calibration"]
        if not isinstance(fit["digest"], str):
            raise ValueError("calibration")
        if "head" not in fit:
            scale, bias = _number(fit["scale"]), [_number(fit["bias"][name]) for name in names]
            if calibrated(log_p, scale, bias) != p:
                raise BadLine("contradicts itself: its scores are not those of its log_p")
        if fields["answer"] != UNSURE and p[names.index(fields["answer"])] < float(
            thresholds[fields["answer"]]
        ):
            raise BadLine("contradicts itself: its answer is below its threshold")

    def of_text(self, parts: tuple[bytes, bytes | None]) -> "list[tuple[int, dict[str, Any]]]":
        """The receipts of the text that a prompt gets: (line number, fields) each."""
        i = self._texts.get(bytes.fromhex(self.digest.of_text(parts))[:16])
        found = []
        while i is not None:
            found.append((i + 1, self._parse(self._line(i))))
            self._seen.add(i)
            i = self._before.get(i)
        return found[::-1]

    def _line(self, i):
        end = self._begins[i + 1] if i + 1 < len(self._begins) else None
        n = receipts.MAX_LINE_BYTES if end is None else end - self._begins[i]
        data = os.pread(self._fd, n, self._begins[i])
        return data[: data.index(b"\n") + 1] if b"\n" in data else data

    def of_bytes(self, data: bytes) -> int | None:
        """The line of a receipt of these bytes whose text was another, or None."""
        i = self._raw.get(bytes.fromhex(self.digest(data))[:16])
        return None if i is None else i + 1

    def of_name(self, name: str) -> int | None:
        """The line of the last receipt of this name, or None."""
        i = self._names.get(_short(receipts.name_of(name)))
        return None if i is None else i + 1

    def compare(self, c: "Classifier", name: str, data: bytes, v: "Verdict") -> "Result":
        """Compare the receipts of a text with the Verdict `v` of `c` on it."""
        now = receipts.calibration_of(c, v)["digest"]
        known = self.of_text(v.used)
        can = [(line, fields) for line, fields in known if not _other(fields, self._here[c])]
        if can:
            results = [_compared(c, v, line, fields, now) for line, fields in can]
            return next((r for r in results if r.word == DIFFERS), results[-1])
        if known:
            line, fields = known[-1]
            what = _other(fields, self._here[c])
            return Result(UNKNOWN, line, None, now, f"its receipt is of another {what}")
        if at := self.of_bytes(data):
            why = "the same bytes give another text: of another version, or with other options"
            return Result(DIFFERS, at, None, now, why)
        if at := self.of_name(name):
            return Result(DIFFERS, at, None, now, "the text of this name was another")
        return Result(UNKNOWN, None, None, now, "there is no receipt of this text")


class Result:
    """word: same, differs or unknown. line: of the receipt, or None. calibration: digest of what
    made its scores, or None; now: of what makes them today. why: a reason, or None.
    """

    def __init__(
        self,
        word: str,
        line: int | None,
        calibration: str | None,
        now: str | None,
        why: str | None,
    ) -> None:
        self.word, self.line, self.calibration = word, line, calibration
        self.now, self.why = now, why


def _other(fields, here):
    """What of a receipt is another than here; None if they can be compared."""
    return next((what for what in WHAT if fields[what] != here[what]), None)


def _compared(c, v, line, fields, now):
    names = list(c.question.answers)
    here = {name: x.hex() for name, x in zip(names, v.log_p)}
    fit, why = fields["calibration"]["digest"], None
    if here != fields["log_p"]:
        name = next((n for n in names if here[n] != fields["log_p"].get(n)), names[0])
        why = f"log_p of {name} is {here[name]}, not {fields['log_p'].get(name)}"
    elif (v.n_tokens, v.cut) != (fields["tokens"], fields["cut"]):
        why = f"{v.n_tokens} tokens, not {fields['tokens']}"
    if why and fields["sluice"] != receipts.VERSION:
        why += f"; made by sluice {fields['sluice']}"
    return Result(DIFFERS if why else SAME, line, fit, now, why)


def _short(name):
    """A digest of a name that is short, as there are many."""
    return receipts.hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _number(text):
    x = float.fromhex(text)
    if x.hex() != text or x - x:  # infinite or NaN
        raise ValueError(text)
    return x


def run(
    texts: "Texts",
    panel: "Panel",
    path: str,
    key: bytes | None,
    say: "Callable[[str], None]",
    progress: "Callable[[int], None] | None" = None,
) -> tuple[int, Book]:
    """Classify `texts` again by the questions of `panel`, and compare them with the receipts at
    `path`. Prints a line for each text and question.

    Returns (exit status, Book). Raises DataError at the end if a receipt is damaged, or a text
    cannot be classified.
    """
    from ..classify import many

    book = Book(path, panel.classifiers, key, say)
    results = Results(panel, book, b"\0" if texts.null else b"\n", texts.as_json)
    source = many.source_of(texts, panel)
    n_bad = many.run_source(panel, source, results, say, progress=progress).bad
    wrong = []
    if book.n_bad:
        wrong.append(f"{book.n_bad} of {book.n + book.n_bad} lines are damaged")
    if n_bad:
        wrong.append(f"{n_bad} texts could not be classified")
    if wrong:
        raise data_error(path, "; ".join(wrong) + "; see above")
    return results.status(), book


class Results(Writer):
    """A line, or with `as_json` an object, per text and question.

    A line has the name, the question if there are several, the word, the line of the receipt, the
    digest of its calibration, and a reason if there is one, with tabs between and `end` behind.
    """

    at_once = True

    def __init__(self, panel: "Panel", book: Book, end: bytes, as_json: bool) -> None:
        super().__init__(panel)
        self._book, self._end, self._as_json = book, end, as_json
        self.n_not_same = 0

    def put(self, item: "Item", found: "Found") -> int:
        for k, c in enumerate(self.panel.classifiers):
            if isinstance(found, list):
                result = self._book.compare(c, item.name, item.data or b"", found[k])
            else:
                result = Result(MISSING if found is None else ERROR, None, None, None, None)
            self.n_not_same += result.word in (DIFFERS, UNKNOWN)
            question = self.panel.names[k] if len(self.panel.names) > 1 else None
            form = self._object if self._as_json else self._line
            self._out.append(form(item, question, result))
        return 0

    def _line(self, item, question, r):
        name = item.name if self._end == b"\0" else one_line(item.name)
        fields = [name, r.word, str(r.line or MISSING), r.calibration or MISSING]
        if question:
            fields.insert(1, question)
        why = [r.why] if r.why else []
        if r.calibration and r.calibration != r.now:
            why.append(f"calibration now {r.now}")
        if why:
            fields.append("; ".join(why))
        return "\t".join(fields).encode("utf-8", "surrogateescape") + self._end

    def _object(self, item, question, r):
        fields = {"name": receipts.name_of(item.name)}
        if question:
            fields["question"] = question
        fields["verified"] = r.word
        if r.line:
            fields |= {"line": r.line, "calibration": r.calibration, "calibration_now": r.now}
        if r.why:
            fields["why"] = r.why
        return dump(fields)

    def status(self) -> int:
        """0 if every text has a receipt and the same bits, else 1."""
        return 1 if self.n_not_same else 0
