"""`classify --learn` and `--forget`: the file of calibration.py with a mail more, or less, and
fitted again.

A learner holds a lock (FILE.lock, which stays, empty) from reading the file to replacing it, so
that of learners at the same time none is lost; it waits for another one for WAIT_S seconds. The
file is replaced whole, or not at all; what it holds of this model under its earlier id then has the
present one.
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
MAX_BYTES = 64 << 20  # of the lines: MAX_LINES of them with 64 answers take less


def learner(
    path: str | None, learn: str | None, forget: bool, is_many: "Any", no_calibration: bool
) -> "Callable[[Classifier, bytes], Verdict] | None":
    """What makes of a Classifier and an input the Verdict after learning or forgetting it.

    path: of the calibration. learn: the right answer, or None with `forget`. Error 64 for options
    that do not go together.
    """
    if is_many or no_calibration or forget and learn is not None:
        raise Error(
            USAGE,
            "--learn or --forget: one of them, without --jsonl, --listen and --no-calibration",
        )
    if not path:
        raise Error(
            USAGE, "--learn and --forget: there is no home to keep it in: give --calibration FILE"
        )
    return lambda classifier, data: change(classifier, data, path, learn)


class Line:
    """A mail learnt. text, model, question: 16 hex digits each; label: number of the answer; log_p:
    floats.
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
        """What the file has one line of: (text, model, question)."""
        return self.text, self.model, self.question

    def dump(self) -> bytes:
        """As bytes with the newline."""
        return (
            " ".join(
                (self.text, self.model, self.question, str(self.label), *map(repr, self.log_p))
            ).encode()
            + b"\n"
        )


def change(c: "Classifier", data: bytes, path: str, answer: str | None = None) -> "Any":
    """Learn that `answer` is the right one for the input `data` (bytes), or forget that input where
    it is None: in the file at `path`, made if absent. The Verdict on it from now on, of a
    classifier.Classifier whose `learnt` is that file.

    Error 64 for what is no answer, 65: no text, nothing to forget, a damaged file; 73, 74, 75.
    """
    names = list(c.question.answers)
    if answer is not None and answer not in names:
        raise Error(USAGE, f"--learn {printable(answer)}: the answers are {', '.join(names)}")
    v = c.ask(data)
    file, question, text = c.model.file, calibration.digest(c.question), _digest(c, data)
    model, earlier = calibration.name_of(file), calibration.earlier_name_of(file)
    read = lambda: _renamed(read_lines(path), earlier, model)
    others = lambda lines: [l for l in lines if l.key() != (text, model, question)]
    lines = read()  # before anything is made
    if answer is None and len(others(lines)) == len(lines):
        raise data_error(
            path, "nothing to forget: this text was not learnt with this model and question"
        )
    _make_directory(path)
    with _lock(path):
        kept = others(read())
        if answer is not None:
            kept.append(
                Line(
                    text,
                    model,
                    question,
                    names.index(answer),
                    [max(p, -calibration.MAX_SIZE) for p in v.log_p],
                )
            )
        _write(path, kept[-calibration.MAX_LINES :], c.question, model, question, earlier)
    c.judge(v)
    return v


def read_lines(path: str) -> "list[Line]":
    """The Lines of the file at `path`, none where it is absent. DataError naming the line."""
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
            path, "damaged: the mails have another checksum, or are cut; remove it to begin again"
        )
    return [
        _line(path, n, line)
        for n, line in enumerate(data.decode("ascii", "replace").splitlines(), 2 + n_fits)
    ]


def _renamed(lines, earlier, model):
    """`lines` with the model called `model` where they have it as `earlier`; of two that are then
    of one text, the later one."""
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
        found = Line(
            *map(hexadecimal, (text, model, question)), int(label), [number(x) for x in log_p]
        )
        if not 0 <= found.label < len(log_p):
            raise ValueError
        return found
    except ValueError:
        raise data_error(path, f"line {n}: is not a mail that was learnt") from None


def _write(path, lines, asked, model, question, earlier=None):
    """Replace the file; the fit for (model, question) is made again, those of other pairs stay, of
    a model called `earlier` as `model`."""
    present, shipped = (
        {(l.model, l.question) for l in lines} - {(model, question)},
        calibration.shipped(asked),
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
        if (l.model, l.question) == (model, question) and len(l.log_p) == len(shipped) - 1
    ]
    if ours:
        used = ours[-fitting.most_rows(len(asked.answers)) :]
        scale, bias = fitting.fit(
            [l.log_p for l in used], [l.label for l in used], shipped[0], shipped[1:]
        )
        fits[model, question] = Fit(len(used), shipped, [scale, *bias])
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
    """0600, and who else the owner of the file that is there let read it."""
    try:
        return 0o600 | os.stat(path).st_mode & 0o044
    except OSError:
        return 0o600


def _head_line(model, question, fit):
    numbers = lambda w: f"{w[0]!r} {','.join(map(repr, w[1:]))}"
    return (
        f"{model} {question} {fit.n_mails} {numbers(fit.shipped)} {numbers(fit.fitted)}\n".encode()
    )


def _digest(c, data):
    """16 hex digits of the text that is judged: so a mail is the same one after a filter or a
    mailbox added headers to it.
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
                        TRY_AGAIN, f"{name}: another process has held it for {WAIT_S:.0f} s"
                    ) from None
                time.sleep(0.02)
            except OSError as e:
                raise Error(IO_ERROR, f"{name}: cannot lock: {e.strerror}") from None
        yield
    finally:
        os.close(fd)
