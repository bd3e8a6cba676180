"""A file that says how far a run over many texts has come, so that one that was killed goes on.

It is a log of JSON lines: first what the run is (`key`), then a line after each piece of output:
the number of texts that are answered and the size of the output then. Whoever goes on cuts the
output back to that size, so no answer is there twice, and goes on with the next text, so none is
missed. A last line that was not written to its end counts for nothing. The output must be a regular
file, opened to append: of a pipe nobody knows how much has arrived.

A run is refused if its key is another. What was learned may be another: it also changes during a
run, from one text to the next. Whoever goes on is told so, and a line records it.
"""

import fcntl
import json
import os
import stat

from ..faults import NO_OUTPUT, USAGE, Error, data_error
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
MAX_BYTES = 1 << 30


class State:
    """The state at `path`, made where there is none, of a run that is `key`, a dict of strings and
    numbers, which writes to the descriptor `out`.

    learned: digest of what was learned; None: it is not compared.

    n: texts that are answered; names: those of them whose order may change, a set of strings;
    has_learned: something was learned or forgotten since the run began or was taken up.
    Error 64: the output is no file to append to; 65: the state of another run, or of another
    output; 73 to 75.
    """

    def __init__(
        self, path: str, key: "dict[str, Any]", out: int, learned: str | None = None
    ) -> None:
        self.path, self._out, self._learned = path, out, learned
        self.has_learned = False
        self.n = 0
        self.names: set[str] = set()
        _check_output(out)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600)
        except OSError as e:
            raise files.write_error(path, e, NO_OUTPUT) from None
        try:
            self._begin({"sluice-state": VERSION, **key})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)

    def _begin(self, key):
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise data_error(self.path, "is not a regular file")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise data_error(self.path, "another run is using it") from None
        if size := os.fstat(self._fd).st_size:
            self._take_up(key, size)
        else:
            self._end = 0
            learned = {} if self._learned is None else {"learned": self._learned}
            self._append({**key, **learned, "out": os.fstat(self._out).st_size})

    def _take_up(self, key, size):
        if size > MAX_BYTES:
            raise data_error(self.path, f"is longer than {MAX_BYTES >> 30} GiB")
        data = os.pread(self._fd, size, 0)
        whole = data[: data.rfind(b"\n") + 1]
        self._end = len(whole)
        try:
            first, *rest = [json.loads(line) for line in whole.splitlines()]
            n_out, learned = first.pop("out"), first.get("learned")
            for line in rest:
                self.n, n_out = line["n"], line["out"]
                learned = line.get("learned", learned)
                self.names.update(line.get("names", ()))
            ok = all(type(x) is int and x >= 0 for x in (self.n, n_out))
        except (ValueError, KeyError, TypeError, AttributeError):
            ok = False
        if not ok:
            raise data_error(self.path, "is damaged, or no state of classify: remove it to begin")
        for name in key:
            if first.get(name) != key[name]:
                raise data_error(
                    self.path,
                    f"is of a run with another {name}: remove it to begin anew, or run as before",
                )
        has = os.fstat(self._out).st_size
        if has < n_out:
            raise data_error(
                self.path,
                f"says that {n_out} bytes were written, but the output has {has}: append to the"
                " same file (>>FILE)",
            )
        os.ftruncate(self._fd, self._end)
        os.ftruncate(self._out, n_out)
        if None not in (learned, self._learned) and learned != self._learned:
            self.has_learned = True
            self._append({"n": self.n, "out": n_out, "learned": self._learned})

    def done(self, n: int, names: "list[str] | None" = None) -> None:
        """Say that `n` more texts are answered, after their output is written. names: of those
        that come in no fixed order, to be known by.
        """
        self.n += n
        self.names.update(names or ())
        more = {"names": names} if names else {}
        self._append({"n": self.n, "out": os.fstat(self._out).st_size, **more})

    def _append(self, fields):
        data = json.dumps(fields).encode() + b"\n"
        try:
            at = self._end
            while data:
                n = os.pwrite(self._fd, data, at)
                data, at = data[n:], at + n
        except OSError as e:
            raise files.write_error(self.path, e) from None
        self._end = at


def _check_output(fd):
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
        raise Error(
            USAGE, "--state: standard output must be a file that is appended to: say >>FILE"
        )
