"""mail-milter in front of Debian's Postfix: the mails that come out, and what becomes of them while
milter and worker are killed.
"""

import contextlib
import os
import random
import re
import shutil
import smtplib
import socket
import tempfile
import threading
import time
from pathlib import Path

import milter_process
import postfix
import pytest
from conftest import ROOT, run, wait_for
from sink import Sink
from test_milter import MAILS as MAILS_WITH_RETURN_PATH
from test_milter import OURS, spellings

WHY = postfix.missing() or milter_process.missing()
pytestmark = [pytest.mark.full, pytest.mark.skipif(WHY is not None, reason=str(WHY))]
CONFIGS = ROOT / "configs" / "postfix"
SHIPPED = dict(
    line.lstrip("#").split(" =", 1)
    for line in (CONFIGS / "milter.cf").read_text().splitlines()
    if re.match(r"#?\w+ =", line)
)
# of all tests but one, so that the milter does the work
CHECKS = [key for key in SHIPPED if key.endswith("header_checks")]
SETTINGS = {"smtp_line_length_limit": "0", "in_flow_delay": "0", "message_size_limit": "40000000"}
# Postfix removes it
MAILS = [re.sub(rb"(?m)^Return-Path:.*\n", b"", mail, count=1) for mail in MAILS_WITH_RETURN_PATH]
RECEIVED = re.compile(rb"Received: .*\r\n(?:[ \t].*\r\n)*")


class Site:
    """A private Postfix, its milter, the worker behind it, and the server that all mail goes to."""

    def __init__(self, *options):
        settings = {
            **SETTINGS,
            **{key: value for key, value in SHIPPED.items() if key not in CHECKS},
        }
        self.postfix = postfix.Postfix(settings)
        self.place = Path(tempfile.mkdtemp(prefix="sluice-milter-"))
        self.place.chmod(0o755)
        # as configs/postfix/milter.md says
        home = self.postfix.directory / "var/spool/postfix/sluice"
        home.mkdir()
        shutil.chown(home, milter_process.USER, "postfix")
        home.chmod(0o2710)
        self.sink = Sink(self.postfix)
        milter_process.build()
        self.worker = milter_process.worker(self.place)
        self.milter = milter_process.milter(self.place, *options, socket_path=home / "milter")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.milter.__exit__()
        self.worker.__exit__()
        self.sink.__exit__()
        self.postfix.close()
        shutil.rmtree(self.place)

    def send(self, *mails):
        """Send mails (bytes with CRLF) in one connection, each with a recipient of its own; what
        came out, in their order.
        """
        n = len(self.sink.mails)
        with self.postfix.smtp() as client:
            for i, mail in enumerate(mails):
                client.sendmail("a@example.com", [f"{i}@example.org"], mail)
        found = {m.recipients[0]: m.data for m in self.sink.wait(n + len(mails))[n:]}
        return [found[f"{i}@example.org"] for i in range(len(mails))]


@pytest.fixture(scope="module")
def site():
    with Site() as s:
        yield s


def whole(mail):
    """A mail as SMTP has it (CRLF), with the headers that Postfix would add."""
    return re.sub(
        rb"\r?\n",
        b"\r\n",
        b"Date: Thu, 1 Jan 2026 00:00:00 +0000\nMessage-Id: <1@example.com>\n" + mail,
    )


def parts(data):
    """(what was put on top as [(name, value)], the rest without the Received header of this
    Postfix).
    """
    ours = []
    while m := re.match(rb"(X-Spam-[^:]*): (.*)\r\n", data):
        ours.append(m.groups())
        data = data[m.end() :]
    received = RECEIVED.match(data)
    assert received, data[:500]
    return ours, data[received.end() :]


def listens(path):
    """Whether anybody takes connections there: what a killed worker leaves does so for a moment."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


def answers(path):
    """Whether the worker there is at work again."""
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(path))
            s.sendall(b"Subject: x\n\nx\n")
            s.shutdown(socket.SHUT_WR)
            return s.recv(100)[:2] in (b"ye", b"no", b"un")
    except OSError:
        return False


def log_of(site):
    """How often the milter gave which reason."""
    reasons = re.findall(r"reason=(\w+)", site.milter.log_text)
    return {word: reasons.count(word) for word in set(reasons)}


def verdict(mail):
    """The value of X-Spam-Status that a process of its own would give."""
    answer, score, required, model = run("classify", "--long", input=mail).stdout.split()
    return {b"yes": b"Yes", b"no": b"No"}.get(
        answer, b"Unsure"
    ) + b", score=%s required=%s model=%s" % (score, required, model)


def test_mails_are_marked_and_otherwise_as_they_were(site):
    odd = [
        b"From: a@example.com\nSubject: 8 bit\n\n\xff\x80 \xc3\xa4\n.\n..dots\n\n\n",
        b"From: a@example.com\nSubject:\n\n",
        b"From: a@example.com\nSubject: folded\n\tagain  \n   and again\nX-Long: "
        + b"w" * 29000
        + b"\n "
        + b"v" * 29000
        + b"\n\nx\n",
        b"From: a@example.com\nsubject:  blanks  \nSUBJECT:none\nSubject: none\n\n"
        + b"l" * 5000
        + b"\n",
        (
            b"From: a@example.com\nDKIM-Signature: v=1; a=rsa-sha256;\n\tb=abc\n def\nX-Spammer:"
            b" me\n\nX-Spam-Flag: NO\n\nbody\n"
        ),
        b"From: a@example.com\nSubject: big\n\n" + b"0123456789abcdef\n" * 200000,
    ]
    mails = [whole(mail) for mail in [*MAILS, *odd]]
    for mail, data in zip(mails, site.send(*mails)):
        ours, rest = parts(data)
        assert [n for n, _ in ours] == OURS and rest == mail, mail[:200]
        assert ours[2][1] == verdict(mail), mail[:200]
    # spam and ham
    assert len({ours[2][1][:4] for ours, _ in map(parts, site.send(*mails[:6]))}) >= 2


def test_mail_of_local_programs_is_marked_too(site):
    n = len(site.sink.mails)
    site.postfix.run(
        "sendmail",
        "-i",
        "-f",
        "a@example.com",
        "b@example.org",
        input=whole(b"From: a@example.com\nSubject: x\n\nhello\n"),
    )
    ours, rest = parts(site.sink.wait(n + 1)[n].data)
    assert [name for name, _ in ours] == OURS and rest.endswith(b"\r\n\r\nhello\r\n")


def test_no_forged_header_comes_through(site):
    forged = [s.encode() for s in spellings()]
    nested = b"Content-Type: message/rfc822\n\nX-Spam-Flag: NO\nSubject: inner\n\nX-Spam-Flag: NO\n"
    rest = [b"From: a@example.com", b"X-Spammer: no", b"Subject: lunch", b"AX-Spam-Flag: no"]
    random.seed(3)
    together = forged * 2 + rest
    random.shuffle(together)
    mails = [whole(f + b"\nFrom: a@example.com\n\nbody\n") for f in forged]
    mails.append(whole(b"".join(line + b"\n" for line in together) + nested))
    kept = b"".join(line + b"\n" for line in together if line in rest) + nested
    for mail, data in zip(mails, site.send(*mails)):
        ours, after = parts(data)
        assert [n for n, _ in ours] == OURS
        assert after == whole(kept if mail is mails[-1] else b"From: a@example.com\n\nbody\n"), (
            mail[:200]
        )


def test_thousands_of_forged_headers_cost_seconds(site):
    many = (
        b"".join(b"X-Spam-Level: %d\n" % i for i in range(5000))
        + b"From: a@example.com\nX-Spam-Flag: NO\n"
    )
    began = time.monotonic()
    ours, rest = parts(site.send(whole(many + b"\nbody\n"))[0])
    print(f"{time.monotonic() - began:.1f} s")
    assert [n for n, _ in ours] == OURS + [b"X-Spam-Level"] * (len(ours) - 4) and rest.endswith(
        b"From: a@example.com\r\n\r\nbody\r\n"
    )


def test_while_the_milter_is_dead_mail_is_accepted_and_header_checks_remove_what_was_forged():
    with Site() as site:
        shutil.copy(CONFIGS / "sluice_forged", site.postfix.directory / "etc/postfix")
        site.postfix.set(**{key: SHIPPED[key].strip() for key in CHECKS})
        mail = whole(
            b"From: a@example.com\nx-spam-flag: NO\nX-Spam-Status: No,\n\tscore=0\nSubject:"
            b" x\nContent-Type: message/rfc822\n\nX-Spam-Flag: NO\nSubject: inner\n\nbody\n"
        )
        without = re.sub(rb"(?mi)^x-spam-flag: NO\r\nX-Spam-Status.*\r\n\t.*\r\n", b"", mail)
        ours, rest = parts(site.send(mail)[0])
        # header_checks leave what a milter adds
        assert [n for n, _ in ours] == OURS and rest == without
        site.milter.kill()
        ours, rest = parts(site.send(mail)[0])
        assert ours == [] and rest == without
        site.milter.start()
        assert [n for n, _ in parts(site.send(mail)[0])[0]] == OURS


def test_no_mail_is_lost_refused_or_changed_while_milter_and_worker_are_killed():
    """300 mails from eight clients, some in one connection; amid every ten of them a kill -9 of the
    milter, the worker or one of its children. What a mail of those gets is a matter of chance; what
    those get that come while one of them is away, and after, is none.
    """
    n_mails, n_clients, every = 300, 8, 10
    rng = random.Random(4)
    mails = [
        whole(
            b"X-Spam-Status: No, forged\nFrom: a@example.com\nSubject: %d\nX-Fill: %s\n\n"
            % (n, rng.randbytes(8).hex().encode())
            + rng.choice(MAILS).partition(b"\n\n")[2] * rng.choice([1, 1, 20])
        )
        for n in range(n_mails)
    ]
    refused, todo, lock, n_kills, end = (
        [],
        list(range(n_mails)),
        threading.Lock(),
        0,
        time.monotonic() + 1800,
    )

    def take():
        """The number of the next mail, or None; not before the kills that are due."""
        while time.monotonic() < end:
            with lock:
                if not todo:
                    return None
                if n_mails - len(todo) < every * (n_kills + 1):
                    return todo.pop(0)
            time.sleep(0.01)
        return None

    def at_work(site):
        """Whether the worker answers; it is started again if it met what the killed one left, as
        systemd does.
        """
        if site.worker.process.poll() is not None:
            site.worker.start()
        return answers(site.worker.address)

    def client(site):
        n = take()
        while n is not None:
            with site.postfix.smtp() as connection:
                for _ in range(2):
                    try:
                        connection.sendmail("a@example.com", [f"{n}@example.org"], mails[n])
                    except smtplib.SMTPException as e:
                        refused.append((n, e))
                    n = take()
                    if n is None:
                        return

    with Site("--deadline", "20") as site:
        clients = [
            threading.Thread(target=client, args=(site,), daemon=True) for _ in range(n_clients)
        ]
        for c in clients:
            c.start()
        while any(c.is_alive() for c in clients):
            assert time.monotonic() < end, (
                f"{len(todo)} of {n_mails} mails still to be sent after {n_kills} kills"
            )
            with lock:
                due = n_mails - len(todo) >= every * n_kills + every // 2
            time.sleep(0.02)
            if not due:
                continue
            victim = (site.milter, site.worker, None)[n_kills % 3]
            if victim:
                victim.kill()
                victim.start()
            else:
                pids = wait_for(site.worker.descendants, "children of the worker")
                with contextlib.suppress(ProcessLookupError):  # one that grew large ends by itself
                    os.kill(rng.choice(pids), 9)
            wait_for(lambda: at_work(site), "answer of the worker")
            with lock:
                n_kills += 1
        site.sink.wait(n_mails)
        site.postfix.drain()
        arrived = {}
        for m in site.sink.mails:
            arrived.setdefault(int(m.recipients[0].split("@")[0]), []).append(m.data)
        site.milter.log_text = site.milter.log()
        not_sent = [d for d in site.postfix.deliveries() if d[3] != "sent"]
        mail = whole(MAILS[0])
        site.worker.kill()
        wait_for(lambda: not listens(site.worker.address), "end of the killed worker")
        ours, rest = parts(site.send(mail)[0])
        assert dict(ours)[b"X-Spam-Status"] == b"unchecked; reason=worker" and rest == mail
        site.milter.kill()
        assert parts(site.send(mail)[0]) == ([], mail)
        site.worker.start()
        site.milter.start()
        ours, rest = parts(site.send(mail)[0])
        assert dict(ours)[b"X-Spam-Status"] == verdict(mail) and rest == mail
    counts = dict.fromkeys(("Yes", "No", "Unsure", "unchecked", "partly", "not marked"), 0)
    for n, mail in enumerate(mails):
        assert len(arrived[n]) == 1, n
        ours, rest = parts(arrived[n][0])
        if rest == mail:  # a milter that was not there
            status = "not marked"
        else:  # one that was; killed while it said what to change, it left out the last of it
            assert rest == mail.replace(b"X-Spam-Status: No, forged\r\n", b""), n
            assert [name for name, _ in ours] in ([], *(OURS[i:] for i in range(4))), n
            status = re.match(r"\w+", dict(ours).get(b"X-Spam-Status", b"partly").decode())[0]
        counts[status] += 1
    print(f"{n_kills} kills: {counts}", log_of(site))
    assert not refused and not not_sent and len(arrived) == n_mails and n_kills == n_mails // every


def test_postfix_page_steps_set_and_unset_postfix(site):
    page = (CONFIGS / "milter.md").read_text()
    steps = re.search(r"\ngrep -v .*?\npostfix reload\n", page, re.S)[0]
    undo = re.search(r"\nfor setting in .*?\npostfix reload\n", page, re.S)[0]
    keys = sorted(SHIPPED)

    def settings():
        return dict(
            line.split(" =", 1)
            for line in site.postfix.run("postconf", "-n").stdout.decode().splitlines()
            if line.split(" =")[0] in keys
        )

    before = (site.postfix.directory / "etc/postfix/main.cf").read_bytes()
    for script in (undo, steps):
        site.postfix.run("sh", "-ec", f"cd '{ROOT}'\n{script}")
        assert settings() == (
            {}
            if script is undo
            else {key: value for key, value in SHIPPED.items() if key != "non_smtpd_milters"}
        )
    (site.postfix.directory / "etc/postfix/main.cf").write_bytes(before)
