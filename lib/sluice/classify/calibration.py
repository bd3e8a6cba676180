"""Read the user's calibration file, which `classify --learn` writes.

    #calibration 1 000161 5e1c77a0 00001180 0b9d2e41
    3f9a0c1b2d4e5f60 90ab12cd34ef5678 20 1.5009 0.5266,0.0 1.31 0.2,0.3
    9f86d081884c7d65 3f9a0c1b2d4e5f60 90ab12cd34ef5678 0 -0.01 -4.6

Line 1: size in bytes and CRC-32C of the head, then of the examples.
Head: a line per model and question: model, question, number of examples, the question's scale and
biases, the fitted scale and biases.
Examples: a line per learned text, the latest one last: digest of the text, model, question, index
of the correct answer, log probabilities before calibration in the order of the answers.

A model is the first 16 hex digits of its ID. Files of earlier versions have those of
gguf.File.earlier_id until the next --learn. The file contains no text. However, a reader of the
file who has a text can tell whether it was learned, so the file has mode 0600.

A damaged file does not stop `classify`: a message is printed once, and the question's calibration
is used. `--learn` and `--forget` refuse a damaged file (65).
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
MAX_HEAD_BYTES = 1 << 19  # MAX_FITS of 255 answers take less
MAX_LINES = 10000
MAX_FITS = 16  # pairs of a model and a question in one file
MAX_SIZE = 1e4  # absolute value of any number in the file
SUFFIX = ".calibration"


class Fit:
    """The fit for one model and question.

    n_texts: int, examples. prior, fitted: [scale, *biases], the question's and the fitted ones.
    """

    def __init__(self, n_texts: int, prior: list[float], fitted: list[float]) -> None:
        self.n_texts, self.prior, self.fitted = n_texts, prior, fitted


class UserCalibration:
    """The user's calibration of a question, from the file at `path`.

    The file is used if it exists, is intact and belongs to this question and model. Each call of
    `fit` checks whether the file changed, so a running server uses what --learn adds.
    say: called with a message for each new reason not to use the file. None: no message.
    """

    _seen: "Any"
    _fit: Fit | None

    def __init__(
        self, path: str, question: "Question", say: "Callable[[str], object] | None" = None
    ) -> None:
        self.path, self._question, self._say = path, question, say
        self._seen, self._last_error, self._fit = None, None, None

    def fit(self, file: "File") -> "Fit | None":
        """Return the Fit for the model `file`, or None: use the question's calibration."""
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
        if not fits:  # every text was forgotten
            return None
        models = {model: fit for (model, of), fit in fits.items() if of == question}
        if not models and self.path == home(self._question.name):
            return None  # questions of one name share a file; this one has no examples
        fit = models and (models.get(name_of(file)) or models.get(earlier_name_of(file)))
        if not fit:
            raise data_error(self.path, "its examples belong to another model or question")
        if fit.prior != prior(self._question):
            raise data_error(
                self.path,
                "was fitted to another calibration of the question; the next --learn refits it",
            )
        return fit

    def _tell(self, why):
        if self._say and why != self._last_error:
            self._last_error = why
            self._say(f"{why}; the question's calibration is used")


def path_for(
    asked: str, calibration_file: str | None = None, no_calibration: bool = False
) -> str | None:
    """Return the path of the calibration file to use for the question `asked`, or None."""
    return None if no_calibration else calibration_file or home(asked)


def home(asked: str) -> str | None:
    """Return the default path of the calibration file for the question `asked`.

    The directory is sluice in $XDG_DATA_HOME or ~/.local/share. None if $HOME is not set.
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
    """Return the name of the model `file` in calibrations: 16 hex digits of its ID."""
    return file.id[:8].hex()


def earlier_name_of(file: "File") -> str:
    """Return the name of the model in calibrations of earlier versions: gguf.File.earlier_id."""
    return file.earlier_id[:8].hex()


def prior(question: "Question") -> list[float]:
    """Return [scale, *biases] of a question, the biases in the order of its answers."""
    return [question.scale, *(question.bias[name] for name in question.answers)]


def digest(question: "Question") -> str:
    """Return 16 hex digits of a hash of the prompt, input and answers of a question.

    These decide what the log probabilities mean. Thresholds and calibration are not hashed.
    """
    import hashlib
    import json

    q = question
    prompt: Any = q.prompt
    if q.orders > 1:
        from . import orders

        prompt = orders.prompts(q)
    asked = [
        q.kind,
        q.fold,
        q.head_ids,
        q.tail_ids,
        q.frame,
        prompt,
        list(q.answers.items()),
        q.tokenisations,
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def read_head(path: str) -> "dict[tuple[str, str], Fit]":
    """Read the head of the file at `path`: {(model, question): Fit}. The examples are not read.

    Raises DataError if the file is damaged or others could have written it, or OSError.
    """
    with open(files.open_trusted(path), "rb") as f:
        first = f.read(FIRST_BYTES + MAX_HEAD_BYTES)
        n_head, crc, n_lines, _ = parse_first(path, first)
        if os.fstat(f.fileno()).st_size != FIRST_BYTES + n_head + n_lines:
            raise data_error(
                path, f"damaged: line 1 says {FIRST_BYTES + n_head + n_lines} bytes in all"
            )
    return parse_head(path, first[FIRST_BYTES : FIRST_BYTES + n_head], crc)


def parse_first(path: str, data: bytes) -> "tuple[Any, ...]":
    """Parse line 1: (bytes of the head, its CRC, bytes of the examples, their CRC).

    Raises DataError.
    """
    try:
        if data[: len(MAGIC)] != MAGIC or data[FIRST_BYTES - 1 : FIRST_BYTES] != b"\n":
            raise ValueError
        n_head, crc_head, n_lines, crc_lines = data[len(MAGIC) : FIRST_BYTES - 1].split(b" ")
        found = _decimal(n_head), int(crc_head, 16), _decimal(n_lines), int(crc_lines, 16)
    except ValueError:
        raise data_error(path, "line 1: is not the first line of a calibration") from None
    if found[0] > MAX_HEAD_BYTES:
        raise data_error(path, f"line 1: a head of {found[0]} bytes")
    return found


def parse_head(path: str, data: bytes, crc: int) -> "dict[tuple[str, str], Fit]":
    """Parse the head: {(model, question): Fit}. Raises DataError."""
    if checksum(data) != crc:
        raise data_error(path, "damaged: wrong checksum of the head")
    fits = {}
    for n, line in enumerate(data.decode("ascii", "replace").splitlines(), 2):
        try:
            model, question, n_texts, scale, biases, fitted_scale, fitted_biases = line.split(" ")
            old = [number(x) for x in (scale, *biases.split(","))]
            new = [number(x) for x in (fitted_scale, *fitted_biases.split(","))]
            if len(old) != len(new) or len(old) < 3 or new[0] <= 0:
                raise ValueError
            fits[hexadecimal(model), hexadecimal(question)] = Fit(_decimal(n_texts), old, new)
        except ValueError:
            raise data_error(path, f"line {n}: is not a fit") from None
    return fits


def checksum(data: bytes) -> int:
    """Return the CRC-32C of `data`."""
    from ..kernels import lib

    return lib.crc32c(0, data, len(data))


def hexadecimal(text: str) -> str:
    """Return `text` if it is 16 hex digits. Raises ValueError."""
    if len(text) != 16 or set(text) - set("0123456789abcdef"):
        raise ValueError
    return text


def number(text: str) -> float:
    """Parse a float of at most MAX_SIZE. Raises ValueError."""
    x = float(text)
    if not -MAX_SIZE <= x <= MAX_SIZE:  # NaN fails, too
        raise ValueError
    return x


def _decimal(text):
    n = int(text)
    if n < 0:
        raise ValueError
    return n
