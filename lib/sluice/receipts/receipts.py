"""Receipts: a file with one JSON object per verdict, from which it can be computed again.

    {"receipt": 1, "sluice": VERSION, "model": "8af9...", "question": "90ab...",
     "question_name": "spam", "question_file": "51c0...", "arithmetic": "exact", "name": "a.eml",
     "raw": {"bytes": 812, "sha256": "..."}, "text": {"bytes": 410, "sha256": "..."},
     "tokens": 133, "cut": false, "answer": "yes", "thresholds": {"yes": 0.87, "no": 0.85},
     "log_p": {"yes": "-0x1.4p-9", "no": "-0x1.9p+2"}, "scores": {"yes": "0x1.fp-1", "no": ...},
     "calibration": {"digest": "1f2e...", "scale": "0x1.2p+0", "bias": {"yes": "0x1.1p-2", ...}},
     "seal": "..."}

model: the whole model ID. question: calibration.digest. question_file: SHA-256 of its file, or null
if it has none. raw: the bytes that were read, of a long text its beginning and end (inputs.read).
text: what the prompt gets of them; of a text whose middle is dropped, the digest of the digests of
beginning and end. log_p: the uncalibrated log probabilities, nats, every bit (float.hex). scores:
the probabilities. calibration: what made scores of log_p; "head" in place of scale and bias if it
was more than these. seal: SHA-256 of the line up to `, "seal"`.

With a key, digests and seal are HMAC-SHA-256 and called so, and `key` identifies the key. Guessing
a short text from its digest, and writing a line that passes, then need the key.

There is no time and nothing of the machine in it: the same verdict gives the same bytes anywhere.

The file grows by whole lines under a lock (flock). Half a line at the end, left by a crash, is
removed by the next append. A file that does not begin as receipts do is refused.
"""

import fcntl
import hashlib
import hmac
import json
import os
import stat

from .. import VERSION
from ..faults import NO_OUTPUT, data_error
from ..question import calibration
from ..question.answers import calibrated
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..classify.classifier import Classifier, Verdict
    from ..question.question import Question

FORMAT = 1
BEGIN = b'{"receipt": '  # of every line
SEAL = b', "seal": "'
END_BYTES = len(SEAL) + 64 + len(b'"}')
MAX_LINE_BYTES = 1 << 20
MIN_KEY_BYTES, MAX_KEY_BYTES = 16, 4096


class Digester:
    """SHA-256 as hex digits; with `key`, HMAC-SHA-256. name: of the digest in receipts."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self.name = "hmac-sha256" if key else "sha256"
        self.key_name = self(b"sluice receipt key")[:16] if key else None

    def __call__(self, data: bytes) -> str:
        if self._key:
            return hmac.digest(self._key, data, "sha256").hex()
        return hashlib.sha256(data).hexdigest()

    def of_text(self, parts: tuple[bytes, bytes | None]) -> str:
        """The digest of the text that a prompt gets: (text, rest), see inputs.text."""
        text, rest = parts
        if rest is None:
            return self(text)
        return self(bytes.fromhex(self(text) + self(rest)))


def read_key(path: str | None) -> bytes | None:
    """Read the key at `path`: all bytes of the file. DataError if others could have written it, or
    if it is too short or too long; OSError.
    """
    if path is None:
        return None
    with open(files.open_trusted(path), "rb") as f:
        key = f.read(MAX_KEY_BYTES + 1)
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise data_error(path, f"is not a key: {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes")
    return key


def comparable(c: "Classifier") -> dict[str, str]:
    """What receipts must have in common with a Classifier to be compared with it."""
    return {
        "model": c.model.file.id.hex(),
        "question": calibration.digest(c.question),
        "arithmetic": c.model.arithmetic,
    }


def fit_digest(scale: float, bias: "list[float]") -> str:
    """16 hex digits of the SHA-256 of a calibration's numbers."""
    numbers = " ".join(float(x).hex() for x in (scale, *bias))
    return hashlib.sha256(numbers.encode()).hexdigest()[:16]


def calibration_of(c: "Classifier", v: "Verdict") -> "dict[str, Any]":
    """What a receipt says of the calibration that made `v`."""
    scale, *bias = v.calibration
    digest = c.fitted.digest if c.fitted and not v.learned else fit_digest(scale, bias)
    if calibrated(v.log_p, scale, bias) != list(v.scores.values()):
        return {"digest": digest, "head": True}
    names = list(c.question.answers)
    return {"digest": digest, "scale": float(scale).hex(), "bias": _hex(names, bias)}


def name_of(name: str) -> str:
    """A name as it stands in receipts: bytes that are not UTF-8 as \\xNN."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Log:
    """The file of receipts at `path`, to which verdicts of any Classifier are added. The first one
    makes it where there is none (mode 0600). key: see read_key.

    DataError if it is another file; Error 73 to 75.
    """

    def __init__(self, path: str, key: bytes | None = None) -> None:
        self.path, self._digest = path, Digester(key)
        self._known: dict[Any, dict[str, Any]] = {}
        self._fd = -1
        if os.path.lexists(path):
            self._open(0)
        else:
            files.check_target(path)

    def _open(self, more):
        """Open the file and check that it is one of receipts. more: flags."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | more
        try:
            fd = os.open(self.path, flags, 0o600)
        except OSError as e:
            raise files.write_error(self.path, e, NO_OUTPUT) from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise data_error(self.path, "is not a regular file")
            with _Lock(fd):
                self._whole_size(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def add(
        self,
        classifiers: "list[Classifier]",
        verdicts: "list[Verdict]",
        name: str,
        data: bytes,
        id: "Any" = None,
    ) -> None:
        """Append the receipts of the verdicts of some Classifiers on the bytes `data`, called
        `name`; id: of an object in JSON lines. Error 74 or 75, and then nothing is appended.
        """
        line = b"".join(self._line(c, name, data, v, id) for c, v in zip(classifiers, verdicts))
        if self._fd < 0:
            self._open(os.O_CREAT)
        with _Lock(self._fd):
            size = self._whole_size(self._fd)
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as e:
                os.ftruncate(self._fd, size)
                raise files.write_error(self.path, e) from None

    def _line(self, c, name, data, v, id):
        digest, names = self._digest, list(c.question.answers)
        fields: dict[str, Any] = {"receipt": FORMAT, "sluice": VERSION, **self._common(c)}
        if digest.key_name:
            fields["key"] = digest.key_name
        fields["name"] = name_of(name)
        if id is not None:
            fields["id"] = id
        n_text = len(v.used[0]) + len(v.used[1] or b"")
        return seal(
            {
                **fields,
                "raw": {"bytes": len(data), digest.name: digest(data)},
                "text": {"bytes": n_text, digest.name: digest.of_text(v.used)},
                "tokens": v.n_tokens,
                "cut": v.cut,
                "answer": v.answer,
                "thresholds": c.question.thresholds,
                "log_p": _hex(names, v.log_p),
                "scores": _hex(names, v.scores.values()),
                "calibration": calibration_of(c, v),
            },
            digest,
        )

    def _common(self, c):
        """What the receipts of a Classifier have in common."""
        if c not in self._known:
            what = comparable(c)
            self._known[c] = {
                "model": what["model"],
                "question": what["question"],
                "question_name": name_of(c.question.name),
                "question_file": _file_digest(c.question),
                "arithmetic": what["arithmetic"],
            }
        return self._known[c]

    def _whole_size(self, fd):
        """The size of the file, which ends with a whole line; half a line is removed."""
        size = os.fstat(fd).st_size
        first = os.pread(fd, len(BEGIN), 0)
        if first != BEGIN[: len(first)]:
            raise data_error(self.path, "is not a file of receipts")
        if not size or os.pread(fd, 1, size - 1) == b"\n":
            return size
        begin = max(0, size - MAX_LINE_BYTES)
        end = os.pread(fd, size - begin, begin)
        at = end.rfind(b"\n") + 1
        if not at and begin:
            raise data_error(self.path, "its last line has no end: remove that line")
        if end[at : at + len(BEGIN)] != BEGIN[: len(end) - at]:
            raise data_error(self.path, "its last line is no receipt: remove that line")
        try:
            os.ftruncate(fd, begin + at)
        except OSError as e:
            raise files.write_error(self.path, e) from None
        return begin + at


class _Lock:
    """Holds the lock on a file of receipts. A file system without locks has one writer."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:
            pass

    def __exit__(self, *about: object) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            pass


def seal(fields: "dict[str, Any]", digest: Digester) -> bytes:
    """The line of a receipt: its fields, and the digest of all before it."""
    body = json.dumps(fields).encode()[:-1]
    return body + SEAL + digest(body).encode() + b'"}\n'


def is_sealed(line: bytes, digest: Digester) -> bool:
    """Whether a line, without its end, is as it was written."""
    body, end = line[:-END_BYTES], line[-END_BYTES:]
    return hmac.compare_digest(end, SEAL + digest(body).encode() + b'"}')


def _hex(names, numbers):
    return {name: float(x).hex() for name, x in zip(names, numbers)}


def _file_digest(question: "Question") -> str | None:
    try:
        with open(question.path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except (OSError, ValueError):  # a question of the command line
        return None
