"""What a run of the tests prints: a line a file, and at the end the skips by reason."""

import re
from collections import Counter, defaultdict

import pytest

LETTERS = ("passed", "skipped", "failed", "error", "xfailed", "xpassed")


class FileLines:
    """Prints a line for each test file once its last test has run, on one process or several."""

    def __init__(self, config):
        self.config = config
        self.left = {}  # file: tests that have not run
        self.counts, self.seconds = defaultdict(Counter), Counter()
        self.reporting = False  # a test's outcome comes in

    def pytest_collection_finish(self, session):
        if not self.left:  # several processes collect by themselves
            self.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.left = {}
        self.expect(ids)

    def expect(self, ids):
        self.left = Counter(nodeid.split("::")[0] for nodeid in ids)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report, config):
        """Count the outcome, and take the letter away that pytest would print for it."""
        category, letter, word = yield
        if not self.reporting or config.get_verbosity() > 0:
            return category, letter, word
        self.counts[report.nodeid.split("::")[0]][category] += 1
        return category, "", ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report):
        self.reporting = True
        yield
        self.reporting = False
        file = report.nodeid.split("::")[0]
        self.seconds[file] += report.duration
        if report.when == "teardown":
            self.left[file] -= 1
            if not self.left[file] and self.config.get_verbosity() <= 0:
                self.write(file)

    def write(self, file):
        counts = self.counts[file]
        said = ", ".join(f"{counts[name]} {name}" for name in LETTERS if counts[name])
        self.config.get_terminal_writer().line(f"{file}: {said}, {self.seconds[file]:.1f} s")


def skips(reports):
    """{reason: number of tests} of skipped reports, the most frequent first."""
    reasons = Counter()
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[re.sub(r"\s+", " ", text.removeprefix("Skipped: "))] += 1
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])))


def write_skips(terminal, absent_sets, quick):
    """Write one block: how many tests did not run, why, and how to get them.

    absent_sets: instruction sets that this build has and this processor has not.
    """
    found = skips(terminal.stats.get("skipped", []))
    if not (found or absent_sets or quick):
        return
    terminal.section(f"not run: {sum(found.values())} tests, by reason")
    for reason, n in found.items():
        terminal.line(f"{n:5}  {reason}")
    for name in absent_sets:
        terminal.line(
            f"       the kernels of {name}: only a processor with {name} runs their tests"
        )
    if quick:
        terminal.line("       this is the quick part of the tests: make test-all runs all")
