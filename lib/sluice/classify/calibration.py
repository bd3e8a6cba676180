"""A user's own calibration: the file that `classify --learn` writes, and the few numbers of it that
`classify` reads.

    #calibration 1 000161 5e1c77a0 00001180 0b9d2e41
    3f9a0c1b2d4e5f60 90ab12cd34ef5678 20 1.5009 0.5266,0.0 1.31 0.2,0.3
    9f86d081884c7d65 3f9a0c1b2d4e5f60 90ab12cd34ef5678 0 -0.01 -4.6

The first line has the bytes and the CRC-32C of the head, then of the mails. The head is a line for
each model and question: model, question, mails, the scale and biases that were shipped, those
fitted. After it comes a line for each mail, the last learnt at the end. Of a
mail: a digest of its text, model, question, the number of the right answer, log probabilities
before calibration in the order of the answers. A model is the first 16 hex digits of its id; in
files that an earlier sluice wrote, until the next learner, of its gguf.File.earlier_id. Never a
word of a mail; but who holds a text can find out whether it was learnt, so the file is its owner's
alone (0600).

Nothing that is wrong with the file keeps `classify` from answering: it says so once and answers as
shipped. A learner refuses it (65).
"""

import os

from ..faults import Error, data_error
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..gguf import File
    from .question import Question

MAGIC = b"#calibration 1 "
FIRST_BYTES = len(MAGIC) + 6 + 1 + 8 + 1 + 8 + 1 + 8 + 1
MAX_HEAD_BYTES = 1 << 16
MAX_LINES = 10000
MAX_FITS = 16  # pairs of a model and a question in one file
MAX_SIZE = 1e4  # of any number in it
SUFFIX = ".calibration"


class Fit:
    """What is fitted for a model and a question. n_mails; shipped, fitted: [scale, *biases]."""

    def __init__(self, n_mails: int, shipped: list[float], fitted: list[float]) -> None:
        self.n_mails, self.shipped, self.fitted = n_mails, shipped, fitted


class Learnt:
    """The calibration that a question.Question is answered with: that of the file at `path`, if it
    is there, is whole and was made with this question and model, else the shipped one. The file is
    looked at before every answer, so a process that stays sees what is learnt meanwhile. say: is
    given a line for each new reason not to use it, where it is not None.
    """

    _seen: "Any"
    _fit: Fit | None

    def __init__(
        self, path: str, question: "Question", say: "Callable[[str], object] | None" = None
    ) -> None:
        self.path, self._question, self._say = path, question, say
        self._seen, self._fault, self._fit = None, None, None

    def fit(self, file: "File") -> "Fit | None":
        """The Fit to use with the model `file` (a gguf.File), or None: as shipped."""
        try:
            s = os.stat(self.path)
            seen: Any = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        except OSError as e:
            seen = e.errno
        if seen != self._seen:
            self._seen, self._fit = seen, None
            try:
                self._fit = self._read(file)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as e:
                self._tell(f"{self.path}: {e.strerror}")
            except Error as e:
                self._tell(str(e))
        return self._fit

    def _read(self, file):
        fits, question = read_head(self.path), digest(self._question)
        if not fits:  # all was forgotten
            return None
        models = {model: fit for (model, of), fit in fits.items() if of == question}
        if not models and self.path == home(self._question.path):
            return None  # questions of one name share a file: this one was never taught
        fit = models and (models.get(name_of(file)) or models.get(earlier_name_of(file)))
        if not fit:
            raise data_error(self.path, "what was learnt is of another model or question")
        if fit.shipped != shipped(self._question):
            raise data_error(
                self.path,
                "was fitted to another calibration of the question: the next --learn fits it again",
            )
        return fit

    def _tell(self, why):
        if self._say and why != self._fault:
            self._fault = why
            self._say(f"{why}; the calibration is the shipped one")


def path_for(
    asked: str, learnt_file: str | None = None, no_calibration: bool = False
) -> str | None:
    """Where the calibration for the question called `asked` is read, or None."""
    return None if no_calibration else learnt_file or home(asked)


def home(asked: str) -> str | None:
    """Where the calibration for the question called `asked` is: sluice in $XDG_DATA_HOME or
    ~/.local/share; None without a home.
    """
    base = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".local", "share")
    name = os.path.basename(asked)
    return os.path.join(
        base,
        "sluice",
        (name.rsplit(".", 1)[0] if name.endswith((".yaml", ".yml")) else name) + SUFFIX,
    )


def name_of(file: "File") -> str:
    """16 hex digits: the model `file` (a gguf.File), as a calibration has it."""
    return file.id[:8].hex()


def earlier_name_of(file: "File") -> str:
    """The same, as calibrations had it before a model's id covered its whole file."""
    return file.earlier_id[:8].hex()


def shipped(question: "Question") -> list[float]:
    """[scale, *biases] of a Question, in the order of its answers."""
    return [question.scale, *(question.bias[name] for name in question.answers)]


def digest(question: "Question") -> str:
    """16 hex digits of all that decides what is asked, and so what the log probabilities mean; not
    of thresholds and calibration.
    """
    import hashlib
    import json

    q = question
    asked = [
        q.kind,
        q.fold,
        q.head_ids,
        q.tail_ids,
        q.frame,
        q.prompt,
        list(q.answers.items()),
        q.tokenisations,
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def read_head(path: str) -> "dict[tuple[str, str], Fit]":
    """{(model, question): Fit} of the file at `path`; the mails are not looked at. OSError; Error
    65: damaged, or not to be trusted.
    """
    with open(files.open_trusted(path), "rb") as f:
        first = f.read(FIRST_BYTES + MAX_HEAD_BYTES)
        n_head, crc, n_lines, _ = parse_first(path, first)
        if os.fstat(f.fileno()).st_size != FIRST_BYTES + n_head + n_lines:
            raise data_error(
                path, f"damaged: it is not the {FIRST_BYTES + n_head + n_lines} bytes that it says"
            )
    return parse_head(path, first[FIRST_BYTES : FIRST_BYTES + n_head], crc)


def parse_first(path: str, data: bytes) -> "tuple[Any, ...]":
    """(bytes of the head, its CRC, bytes of the mails, their CRC) that the first line says. Error
    65.
    """
    try:
        if data[: len(MAGIC)] != MAGIC or data[FIRST_BYTES - 1 : FIRST_BYTES] != b"\n":
            raise ValueError
        n_head, crc_head, n_lines, crc_lines = data[len(MAGIC) : FIRST_BYTES - 1].split(b" ")
        found = _decimal(n_head), int(crc_head, 16), _decimal(n_lines), int(crc_lines, 16)
    except ValueError:
        raise data_error(path, "line 1: is not that of a calibration") from None
    if found[0] > MAX_HEAD_BYTES:
        raise data_error(path, f"line 1: a head of {found[0]} bytes")
    return found


def parse_head(path: str, data: bytes, crc: int) -> "dict[tuple[str, str], Fit]":
    """{(model, question): Fit}. DataError."""
    if checksum(data) != crc:
        raise data_error(path, "damaged: the head has another checksum")
    fits = {}
    for n, line in enumerate(data.decode("ascii", "replace").splitlines(), 2):
        try:
            model, question, n_mails, scale, biases, fitted_scale, fitted_biases = line.split(" ")
            old = [number(x) for x in (scale, *biases.split(","))]
            new = [number(x) for x in (fitted_scale, *fitted_biases.split(","))]
            if len(old) != len(new) or len(old) < 3 or new[0] <= 0:
                raise ValueError
            fits[hexadecimal(model), hexadecimal(question)] = Fit(_decimal(n_mails), old, new)
        except ValueError:
            raise data_error(path, f"line {n}: is not a fit") from None
    return fits


def checksum(data: bytes) -> int:
    from ..kernels import lib

    return lib.crc32c(0, data, len(data))


def hexadecimal(text: str) -> str:
    """`text`, 16 hex digits; ValueError."""
    if len(text) != 16 or set(text) - set("0123456789abcdef"):
        raise ValueError
    return text


def number(text: str) -> float:
    """The float that `text` is; ValueError where it is too large, or none."""
    x = float(text)
    if not -MAX_SIZE <= x <= MAX_SIZE:  # NaN is neither
        raise ValueError
    return x


def _decimal(text):
    n = int(text)
    if n < 0:
        raise ValueError
    return n
