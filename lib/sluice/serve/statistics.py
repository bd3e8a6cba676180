"""Counts and times of a daemon, as a line for stderr and as metrics for Prometheus.

The file is for the textfile collector of node_exporter, which reads *.prom in a directory. It is in
the text format 0.0.4 of Prometheus and is replaced atomically.

Counters start at 0 with the receiver, as for any restarted process. Quantiles are those of the last
N_TIMES answers, by nearest rank.
"""

import time
from collections import deque

from .. import messages
from ..faults import USAGE, Error
from ..system import files
from .handing import ANSWERS, ERRORS, OUTCOMES, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

STATS_SECONDS = 15  # between two files
N_TIMES = 1000
MINUTE = 60  # seconds
QUANTILES = (0.5, 0.99)
SUFFIX = ".prom"
MODE = 0o644  # node_exporter has an account of its own


def check(path: str) -> None:
    """Raise Error 64, 73 or 75 if the metrics cannot be written to `path`."""
    if not path.endswith(SUFFIX):
        raise Error(
            USAGE,
            f"--stats {path}: the name does not end in {SUFFIX}: node_exporter reads no other file",
        )
    files.check_target(path)


class Times:
    """Durations in seconds: their sum and number, and the last N_TIMES of them."""

    def __init__(self) -> None:
        self.sum, self.n = 0.0, 0
        self._last: deque[float] = deque(maxlen=N_TIMES)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.n += 1
        self._last.append(seconds)

    def quantile(self, q: float) -> float:
        """NaN if there is none."""
        ordered = sorted(self._last)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


class Statistics:
    """outcomes: {outcome of a message: count}.
    answers: Times from the end of a message to its answer. waits: of these, until a worker had it.
    n_full: times that no more clients were accepted, because of a bound.
    """

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.answers, self.waits, self.n_full = Times(), Times(), 0
        self._began = time.time()
        self._seconds: deque[list[int]] = deque()  # [second, answers], of the last minute

    def add(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def add_result(self, result: Result) -> None:
        """Count what a worker did."""
        self.add(result.outcome)
        if result.outcome == "killed":
            return
        self.answers.add(max(0.0, result.answered - result.complete))
        self.waits.add(max(0.0, result.taken - result.complete))
        if result.outcome in ANSWERS:
            second = int(time.monotonic())
            if not self._seconds or self._seconds[-1][0] != second:
                self._seconds.append([second, 0])
            self._seconds[-1][1] += 1
            self._forget(second)

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - MINUTE:
            self._seconds.popleft()

    def per_minute(self) -> int:
        """Return the number of answers in the last minute."""
        self._forget(int(time.monotonic()))
        return sum(n for _, n in self._seconds)

    def say(self, arriving: int, waiting: int) -> None:
        """Print a line to stderr."""
        errors = {outcome: self.outcomes[outcome] for outcome in OUTCOMES if outcome not in ANSWERS}
        ms = lambda times, q: 1e3 * times.quantile(q)
        messages.report(
            answers=sum(self.outcomes[answer] for answer in ANSWERS),
            **{answer: self.outcomes[answer] for answer in ANSWERS},
            **errors,
            per_minute=self.per_minute(),
            p50_ms=ms(self.answers, 0.5),
            p99_ms=ms(self.answers, 0.99),
            wait_p50_ms=ms(self.waits, 0.5),
            wait_p99_ms=ms(self.waits, 0.99),
            arriving=arriving,
            waiting=waiting,
            full=self.n_full,
        )

    def text(self, arriving: int, waiting: int) -> str:
        """Return the metrics."""
        return "".join(f"{line}\n" for line in self._lines(arriving, waiting))

    def _lines(self, arriving: int, waiting: int) -> "Iterator[str]":
        yield from _head("messages_total", "counter", "Messages by outcome.")
        for outcome, n in self.outcomes.items():
            kind = "answer" if outcome in ANSWERS else "error" if outcome in ERRORS else "lost"
            yield f'sluice_messages_total{{kind="{kind}",outcome="{outcome}"}} {n}'
        yield from _summary(
            "answer_seconds", "Time from the end of a message to its answer.", self.answers
        )
        yield from _summary(
            "wait_seconds", "Time from the end of a message until a worker had it.", self.waits
        )
        yield from _head("answers_per_minute", "gauge", "Answers in the last minute.")
        yield f"sluice_answers_per_minute {self.per_minute()}"
        yield from _head("clients", "gauge", "Clients that send a message, or whose message waits.")
        yield f'sluice_clients{{state="arriving"}} {arriving}'
        yield f'sluice_clients{{state="waiting"}} {waiting}'
        yield from _head("full_total", "counter", "Times that no more clients were accepted.")
        yield f"sluice_full_total {self.n_full}"
        yield from _head("start_time_seconds", "gauge", "When the counters began, Unix time.")
        yield f"sluice_start_time_seconds {self._began:.3f}"


def _head(name: str, kind: str, text: str) -> "Iterator[str]":
    yield f"# HELP sluice_{name} {text}"
    yield f"# TYPE sluice_{name} {kind}"


def _summary(name: str, text: str, times: Times) -> "Iterator[str]":
    yield from _head(name, "summary", text)
    for q in QUANTILES:
        value = times.quantile(q)
        yield f'sluice_{name}{{quantile="{q}"}} {"NaN" if value != value else f"{value:.6f}"}'
    yield f"sluice_{name}_sum {times.sum:.6f}"
    yield f"sluice_{name}_count {times.n}"


class File:
    """The file of the metrics, written every STATS_SECONDS. An error is reported once."""

    def __init__(self, path: str | None) -> None:
        self._path, self._due, self._has_failed = path, 0.0, False

    def left(self) -> float:
        """Return the seconds until the file is due."""
        return self._due - time.monotonic() if self._path else STATS_SECONDS

    def write(self, text: str) -> None:
        """Write the file."""
        if self._path is None:
            return
        self._due = time.monotonic() + STATS_SECONDS
        fill = lambda f: f.write(text.encode())
        try:
            files.write(self._path, fill, MODE, sync=False)
            self._has_failed = False
        except (Error, OSError) as e:
            if not self._has_failed:
                messages.say(f"{e}; it is tried again every {STATS_SECONDS} s")
            self._has_failed = True
