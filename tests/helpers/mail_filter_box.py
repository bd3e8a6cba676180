"""bin/mail-filter, or the build in $SLUICE_MAIL_FILTER, with stand-ins for classify and sendmail."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from conftest import BIN, wait_for

from sluice.mail import headers

FILTER = str(Path(os.environ.get("SLUICE_MAIL_FILTER") or BIN / "mail-filter").resolve())
SANITIZED = "SLUICE_MAIL_FILTER" in os.environ
CLASSIFY = str(BIN / "classify")
LINE = b"yes 0.9931 0.9386 3f9a0c1b2d4e5f60"
MAIL = b"Received: x\nX-Spam-Status: No\nSubject: hi\n there\n\nbody\n.\nX-Spam-Flag: NO\nlast"
MARKED = headers.mark(MAIL, headers.headers(LINE))
UNCHECKED = [
    f"error {word}"
    for word in (
        "timeout",
        "size",
        "memory",
        "crashed",
        "model",
        "empty",
        "attempts",
        "input",
        "worker",
    )
]
FORTUNE = {line: headers.mark(MAIL, headers.headers(line.encode())) for line in UNCHECKED}
LINES = [LINE, *(line.encode() for line in UNCHECKED)]


class Box:
    """A directory with stand-ins, what they recorded, and the program started with all of it."""

    def __init__(self, path):
        self.path = path
        for name in ("spool", "sent"):
            (path / name).mkdir()
        self.log = path / "log"
        self.classify = self.script("classify", f"cat >/dev/null; echo {LINE.decode()}")
        self.sendmail = self.script("sendmail", self.record())

    def record(self, then=""):
        """The lines of shell that keep what sendmail got: arguments, a mail, and only then its
        final name.
        """
        q = shlex.quote(str(self.path / "sent"))
        return (
            f'for a; do printf "%s\\0" "$a"; done >{q}/$$.args; cat >{q}/$$.part && mv {q}/$$.part'
            f" {q}/$$.mail\n{then}"
        )

    def script(self, name, text):
        path = self.path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def argv(self, *options, sender="a@b.c", recipients=("d@e.f",)):
        return [
            FILTER,
            "--spool",
            self.path / "spool",
            "--classify",
            self.classify,
            "--sendmail",
            self.sendmail,
            "--log",
            self.log,
            *map(str, options),
            *(["-f", sender] if sender is not None else []),
            "--",
            *recipients,
        ]

    def run(
        self,
        *options,
        mail=MAIL,
        prefix=(),
        sender="a@b.c",
        recipients=("d@e.f",),
        timeout=60,
        **kwargs,
    ):
        if "stdin" not in kwargs:
            kwargs["input"] = mail
        done = subprocess.run(
            [*prefix, *self.argv(*options, sender=sender, recipients=recipients)],
            capture_output=True,
            timeout=timeout,
            **kwargs,
        )
        assert os.listdir(self.path / "spool") == []
        return done

    def sent(self):
        """Remove and return [(arguments, message)] that sendmail read completely."""
        found = []
        for mail in sorted((self.path / "sent").glob("*.mail")):
            found.append(
                (
                    mail.with_suffix(".args")
                    .read_bytes()
                    .decode("utf-8", "surrogateescape")
                    .split("\0")[:-1],
                    mail.read_bytes(),
                )
            )
        for path in (self.path / "sent").iterdir():
            path.unlink(missing_ok=True)
        return found

    def mails(self):
        return [mail for _, mail in self.sent()]

    def lines(self):
        """The log, which is forgotten."""
        text = (
            self.log.read_text("utf-8", "surrogateescape").splitlines() if self.log.exists() else []
        )
        self.log.unlink(missing_ok=True)
        return text


def refused(done):
    """Whether it ended as Postfix must see it: 75, one line that begins with 4.3.0, nothing
    else.
    """
    return (
        done.returncode == 75
        and done.stdout == b""
        and re.fullmatch(rb"4\.3\.0 mail-filter: [ -~]+\n", done.stderr)
    )


def alive(path):
    """Whether the process whose number a script wrote to `path` still runs."""
    try:
        state = Path(f"/proc/{int(path.read_text())}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (
        FileNotFoundError,
        ProcessLookupError,
        ValueError,
    ):  # or it was killed before it wrote it
        return False
    return state not in "ZX"


def gone(*paths):
    return wait_for(lambda: not any(map(alive, paths)), "end of a child")
