"""Files of what was learned, by the commands and in memory."""

import json

from conftest import ROOT, run

MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
HAM, SPAM = (
    next(p for p in MAILS if p.stem.startswith(kind)).read_bytes() for kind in ("ham", "spam")
)


class Taught:
    """A file of what was learned, and the commands that use it."""

    def __init__(self, path):
        self.path = path

    def classify(self, *argv, input=HAM, **kwargs):
        return run("classify", "--calibration", self.path, *argv, input=input, **kwargs)

    def learn(self, answer, *paths, input=HAM):
        done = self.classify("--learn", answer, *paths, input=input)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return done.stdout

    def json(self, *argv, input=HAM):
        done = self.classify("--json", *argv, input=input)
        assert done.returncode in (0, 1, 2), done.stderr
        return json.loads(done.stdout)

    def p(self, *argv, input=HAM):
        """The probability that a mail is spam."""
        return self.json(*argv, input=input)["scores"]["yes"]

    def listed(self, *argv):
        done = self.classify("--list-learned", "--json", *argv)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return json.loads(done.stdout)

    def n(self):
        return self.listed()["texts"]
