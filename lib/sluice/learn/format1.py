"""Read files of format 1, which earlier versions wrote. The next --learn writes format 2.

    #calibration 1 000161 5e1c77a0 00001180 0b9d2e41
    3f9a0c1b2d4e5f60 90ab12cd34ef5678 20 1.5009 0.5266,0.0 1.31 0.2,0.3
    9f86d081884c7d65 3f9a0c1b2d4e5f60 90ab12cd34ef5678 0 -0.01 -4.6

Line 1: size in bytes and CRC-32C of the head, then of the examples.
Head: a line per model and question: model, question, number of examples, the question's scale and
biases, the fitted scale and biases.
Examples: a line per learned text, the latest one last: name of the text (layout.name_of), model,
question, index of the correct answer, log probabilities in the order of the answers. There are no
tokens.
"""

from ..faults import data_error
from . import layout
from .joint import Joint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Example(NamedTuple):
        name: bytes  # of the text
        model: bytes
        question: bytes
        label: int
        log_p: list[float]

else:
    from collections import namedtuple

    Example = namedtuple("Example", "name model question label log_p")

FIRST_BYTES = len(layout.MAGIC_1) + 6 + 1 + 8 + 1 + 8 + 1 + 8 + 1
MAX_HEAD_BYTES = 1 << 19


class Section:
    """What a verdict uses of a file: see learned.Section. There is no evidence of tokens."""

    has_evidence = has_every_answer = False

    def __init__(
        self, model: bytes, question: bytes, n_texts: int, prior: list[float], fitted: list[float]
    ) -> None:
        self.model, self.question, self.n_texts, self.prior = model, question, n_texts, prior
        self.joint = Joint(fitted[0], 0.0, fitted[1:])

    def digest(self) -> str:
        """Return 16 hex digits of a hash of all that decides a verdict."""
        import hashlib

        return hashlib.sha256(repr((self.prior, self.joint)).encode()).hexdigest()[:16]

    def label(self, parts: tuple[bytes, bytes | None]) -> None:
        """No text is known."""
        return None


def sections(path: str, data: bytes) -> list[Section]:
    """Parse the head. Raises DataError."""
    n_head, crc, n_lines, _ = _first(path, data)
    if len(data) != FIRST_BYTES + n_head + n_lines:
        raise layout.damaged(path, f"line 1 says {FIRST_BYTES + n_head + n_lines} bytes in all")
    head = data[FIRST_BYTES : FIRST_BYTES + n_head]
    if layout.checksum(head) != crc:
        raise layout.damaged(path, "wrong checksum of the head")
    found = []
    for n, line in enumerate(head.decode("ascii", "replace").splitlines(), 2):
        try:
            model, question, n_texts, scale, biases, fitted_scale, fitted_biases = line.split(" ")
            old = [_number(x) for x in (scale, *biases.split(","))]
            new = [_number(x) for x in (fitted_scale, *fitted_biases.split(","))]
            if not 3 <= len(old) == len(new) <= 1 + layout.MAX_ANSWERS:
                raise ValueError
            if min(old[0], new[0]) <= 0:
                raise ValueError
            found.append(Section(_digest(model), _digest(question), _decimal(n_texts), old, new))
        except ValueError:
            raise layout.damaged(path, f"line {n}: is not a fit") from None
    return found


def examples(path: str, data: bytes) -> list[Example]:
    """Parse the examples. Raises DataError naming the line."""
    n_fits = len(sections(path, data))
    n_head, _, n_lines, crc = _first(path, data)
    data = data[FIRST_BYTES + n_head :]
    if (len(data), layout.checksum(data)) != (n_lines, crc):
        raise layout.damaged(path, "wrong size or checksum of the examples")
    return [
        _example(path, n, line)
        for n, line in enumerate(data.decode("ascii", "replace").splitlines(), 2 + n_fits)
    ]


def _first(path, data):
    """Parse line 1: (bytes of the head, its CRC, bytes of the examples, their CRC)."""
    begin = len(layout.MAGIC_1)
    try:
        if data[:begin] != layout.MAGIC_1 or data[FIRST_BYTES - 1 : FIRST_BYTES] != b"\n":
            raise ValueError
        n_head, crc_head, n_lines, crc_lines = data[begin:FIRST_BYTES].split(b" ")
        found = _decimal(n_head), int(crc_head, 16), _decimal(n_lines), int(crc_lines, 16)
    except ValueError:
        raise data_error(path, "line 1: is not the first line of a calibration") from None
    if found[0] > MAX_HEAD_BYTES:
        raise layout.damaged(path, f"line 1: a head of {found[0]} bytes")
    return found


def _example(path, n, line):
    try:
        name, model, question, label, *log_p = line.split(" ")
        found = Example(
            *map(_digest, (name, model, question)), int(label), [_number(x) for x in log_p]
        )
        if not 0 <= found.label < len(log_p) <= layout.MAX_ANSWERS:
            raise ValueError
        return found
    except ValueError:
        raise layout.damaged(path, f"line {n}: is not an example") from None


def _digest(text):
    if len(text) != 16 or set(text) - set("0123456789abcdef"):
        raise ValueError
    return bytes.fromhex(text)


def _number(text):
    x = float(text)
    if not -layout.MAX_NUMBER <= x <= layout.MAX_NUMBER:  # NaN fails, too
        raise ValueError
    return x


def _decimal(text):
    n = int(text)
    if n < 0:
        raise ValueError
    return n
