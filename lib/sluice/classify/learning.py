"""`classify --learn` and `--forget`: add an example to the calibration or remove one, and refit.

A lock (FILE.lock, an empty file that stays) is held from reading the file to replacing it, so
concurrent updates are not lost. A process waits WAIT_S seconds for the lock. The file is replaced
atomically. Examples of this model under its earlier ID get its present ID.
"""

import contextlib
import os
import time

from ..faults import IO_ERROR, NO_OUTPUT, TRY_AGAIN, USAGE, Error, data_error, printable
from ..system import files
from . import calibration, fitting, inputs
from .calibration import Fit, checksum, hexadecimal, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .classifier import Classifier, Verdict

WAIT_S = 20.0
MAX_BYTES = 64 << 20  # of the file; MAX_LINES examples with 255 answers take less


def learner(
    path: str | None, learn: str | None, forget: bool, is_many: "Any", no_calibration: bool
) -> "Callable[[Classifier, bytes], Verdict] | None":
    """Return a function of a Classifier and an input that learns or forgets the input.

    The function returns the Verdict afterwards. path: the calibration file. learn: the correct
    answer, or None with `forget`. Raises Error 64 for options that exclude each other.
    """
    if is_many or no_calibration or forget and learn is not None:
        raise Error(
            USAGE,
            "--learn and --forget exclude each other, --jsonl, --listen, --pass-through and"
            " --no-calibration",
        )
    if not path:
        raise Error(USAGE, "--learn and --forget: $HOME is not set; give --calibration FILE")
    return lambda classifier, data: change(classifier, data, path, learn)


class Example:
    """A learned text: a line of the file.

    text, model, question: 16 hex digits each. label: index of the correct answer. log_p: list of
    float, uncalibrated log probabilities, nats.
    """

    def __init__(
        self, text: str, model: str, question: str, label: int, log_p: list[float]
    ) -> None:
        self.text, self.model, self.question, self.label, self.log_p = (
            text,
            model,
            question,
            label,
            log_p,
        )

    def key(self) -> tuple[str, str, str]:
        """Return (text, model, question), which is unique in a file."""
        return self.text, self.model, self.question

    def dump(self) -> bytes:
        """Return the line, with its newline."""
        return (
            " ".join(
                (self.text, self.model, self.question, str(self.label), *map(repr, self.log_p))
            ).encode()
            + b"\n"
        )


def change(c: "Classifier", data: bytes, path: str, answer: str | None = None) -> "Any":
    """Learn `answer` as the correct one for `data`, or forget `data` if `answer` is None.

    Updates the file at `path`, which must be that of `c.user_calibration`; creates it if it is
    absent. Returns the Verdict with the new calibration. Raises Error 64 if the question has no
    such answer, DataError for an empty text, a text to forget that was not learned or a damaged
    file, and Error 73, 74 or 75 if the file cannot be written.
    """
    names = list(c.question.answers)
    if answer is not None and answer not in names:
        raise Error(USAGE, f"--learn {printable(answer)}: the answers are {', '.join(names)}")
    if c.fitted:
        from . import fit_file

        fit_file.refuse_learning(c.fitted)
    v = c.ask(data)
    file, question, text = c.model.file, calibration.digest(c.question), _digest(c, data)
    model, earlier = calibration.name_of(file), calibration.earlier_name_of(file)
    read = lambda: _renamed(read_lines(path), earlier, model)
    others = lambda lines: [l for l in lines if l.key() != (text, model, question)]
    lines = read()  # before any file is created
    if answer is None and len(others(lines)) == len(lines):
        raise data_error(
            path, "nothing to forget: this text was not learned with this model and question"
        )
    _make_directory(path)
    with _lock(path):
        kept = others(read())
        if answer is not None:
            kept.append(
                Example(
                    text,
                    model,
                    question,
                    names.index(answer),
                    [max(p, -calibration.MAX_SIZE) for p in v.log_p],
                )
            )
        _write(path, kept[-calibration.MAX_LINES :], c.question, model, question, earlier)
    c.evaluate(v)
    return v


def read_lines(path: str) -> "list[Example]":
    """Read all examples of the file at `path`; none if it is absent.

    Raises DataError naming the line.
    """
    try:
        with open(files.open_trusted(path), "rb") as f:
            data = f.read(MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    n_head, crc_head, n_lines, crc = calibration.parse_first(path, data)
    at = calibration.FIRST_BYTES
    n_fits = len(calibration.parse_head(path, data[at : at + n_head], crc_head))
    data = data[at + n_head :]
    if (len(data), checksum(data)) != (n_lines, crc):
        raise data_error(
            path, "damaged: wrong size or checksum of the examples; remove the file to begin again"
        )
    return [
        _line(path, n, line)
        for n, line in enumerate(data.decode("ascii", "replace").splitlines(), 2 + n_fits)
    ]


def _renamed(lines, earlier, model):
    """Return `lines` with the model name `earlier` replaced by `model`.

    Of two examples that are then equal in text, model and question the later one stays.
    """
    kept = {}
    for l in lines:
        if l.model == earlier:
            l.model = model
        kept.pop(l.key(), None)
        kept[l.key()] = l
    return list(kept.values())


def _line(path, n, line):
    try:
        text, model, question, label, *log_p = line.split(" ")
        found = Example(
            *map(hexadecimal, (text, model, question)), int(label), [number(x) for x in log_p]
        )
        if not 0 <= found.label < len(log_p):
            raise ValueError
        return found
    except ValueError:
        raise data_error(path, f"line {n}: is not an example") from None


def _write(path, lines, asked, model, question, earlier=None):
    """Replace the file, with a new fit for (model, question).

    Fits of other pairs stay; the model name `earlier` becomes `model`.
    """
    present, prior = (
        {(l.model, l.question) for l in lines} - {(model, question)},
        calibration.prior(asked),
    )
    try:
        found = calibration.read_head(path)
        renamed = {(model if by == earlier else by, of): fit for (by, of), fit in found.items()}
        fits = {key: found.get(key, fit) for key, fit in renamed.items() if key in present}
    except FileNotFoundError:
        fits = {}
    ours = [
        l
        for l in lines
        if (l.model, l.question) == (model, question) and len(l.log_p) == len(prior) - 1
    ]
    if ours:
        used = ours[-fitting.max_rows(len(asked.answers)) :]
        scale, bias = fitting.fit(
            [l.log_p for l in used], [l.label for l in used], prior[0], prior[1:]
        )
        fits[model, question] = Fit(len(used), prior, [scale, *bias])
    fits = dict(list(fits.items())[-calibration.MAX_FITS :])
    head = b"".join(_head_line(*key, fit) for key, fit in fits.items())
    body = b"".join(line.dump() for line in lines)
    first = calibration.MAGIC + b"%06d %08x %08d %08x\n" % (
        len(head),
        checksum(head),
        len(body),
        checksum(body),
    )
    files.write(path, lambda f: f.write(first + head + body), mode=_mode(path))


def _mode(path):
    """Return mode 0600, with the read bits that the owner gave to others in the present file."""
    try:
        return 0o600 | os.stat(path).st_mode & 0o044
    except OSError:
        return 0o600


def _head_line(model, question, fit):
    numbers = lambda w: f"{w[0]!r} {','.join(map(repr, w[1:]))}"
    return f"{model} {question} {fit.n_texts} {numbers(fit.prior)} {numbers(fit.fitted)}\n".encode()


def _digest(c, data):
    """Return 16 hex digits of a hash of the text that the prompt gets.

    Headers that a filter or a mailbox adds to a message do not change it.
    """
    import hashlib

    text, rest, _ = inputs.text(data, c.is_mail, c.question.fold)
    return hashlib.sha256(text + (rest or b"")).hexdigest()[:16]


def _make_directory(path):
    directory = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
    except OSError as e:
        raise files.write_error(directory, e, NO_OUTPUT) from None


@contextlib.contextmanager
def _lock(path):
    import fcntl

    name = path + ".lock"
    try:
        fd = os.open(
            name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    except OSError as e:
        raise files.write_error(name, e, NO_OUTPUT) from None
    try:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Error(
                        TRY_AGAIN, f"{name}: another process has held the lock for {WAIT_S:.0f} s"
                    ) from None
                time.sleep(0.02)
            except OSError as e:
                raise Error(IO_ERROR, f"{name}: cannot lock: {e.strerror}") from None
        yield
    finally:
        os.close(fd)
