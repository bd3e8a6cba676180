"""mail-milter, driven by the mail server's side of the protocol: what it adds and removes, and that
nothing makes it refuse a mail.
"""

import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

import milter_process
import pytest
from conftest import ROOT, run
from milter_client import LEADING_BLANKS, NR_MAIL, Milter, edited, packet, split

from sluice import VERSION

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(milter_process.missing() is not None, reason=str(milter_process.missing())),
]
PATHS = sorted((ROOT / "tests/mails").glob("*.eml"))
# a mailbox's line is no part of the mail
MAILS = [re.sub(rb"\AFrom .*\n", b"", path.read_bytes()) for path in PATHS]
OURS = [b"X-Spam-Flag", b"X-Spam-Score", b"X-Spam-Status", b"X-Spam-Checker-Version"]
CHECKER = (b"X-Spam-Checker-Version", f" Sluice {VERSION}".encode())
MAIL = b"From: a@example.com\nSubject: lunch\n\nat noon\n"


@pytest.fixture(scope="module")
def program():
    return milter_process.build()


@pytest.fixture(scope="module")
def place():
    """A directory that everybody may pass, with short paths for sockets."""
    with tempfile.TemporaryDirectory(prefix="sluice-milter-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def worker(place):
    with milter_process.worker(place) as w:
        yield w


@pytest.fixture(scope="module")
def milter(program, place, worker):
    with milter_process.milter(place) as m:
        yield m


@pytest.fixture
def other(program, tmp_path_factory):
    """other(*options, worker=path): another milter, in a directory of its own, where no worker
    is.
    """
    running = []

    def start(*options, worker=None, **kwargs):
        directory = Path(tempfile.mkdtemp(prefix="sluice-milter-"))
        directory.chmod(0o755)
        running.append(
            milter_process.milter(
                directory, *options, worker_path=worker or directory / "absent", **kwargs
            )
        )
        return running[-1]

    yield start
    for m in running:
        m.__exit__()
        subprocess.run(["rm", "-rf", m.log_path.parent], check=True)


def verdict(mail):
    """The headers that belong to a mail, from a process of its own."""
    answer, score, required, model = run("classify", "--long", input=mail).stdout.decode().split()
    word = {"yes": "Yes", "no": "No"}.get(answer, "Unsure")
    values = [
        "YES" if answer == "yes" else "NO",
        score,
        f"{word}, score={score} required={required} model={model}",
        f"Sluice {VERSION}",
    ]
    return [(name, b" " + value.encode()) for name, value in zip(OURS, values)]


def unchecked(headers, mail):
    """The reason why `mail` was not judged, by the only two headers it got."""
    status, rest = headers[0], headers[1:]
    assert status[0] == b"X-Spam-Status" and rest == [CHECKER, *split(mail)[0]], headers
    return re.fullmatch(rb" unchecked; reason=(\w+)", status[1])[1].decode()


@pytest.mark.parametrize("mail", MAILS, ids=[p.stem for p in PATHS])
def test_milter_verdict_equals_classify(milter, mail):
    with Milter(milter.address) as m:
        assert m.steps & LEADING_BLANKS
        assert m.judge(mail) == verdict(mail) + split(mail)[0]


def test_client_of_the_connection_is_that_of_rules(program, other):
    """And the explanation is a header more."""
    directory = Path(tempfile.mkdtemp(prefix="sluice-milter-"))
    directory.chmod(0o755)
    rules = directory / "rules.yaml"
    rules.write_text(
        "rules:\n- {rule: net, answer: yes, client: [192.0.2.0/24, '2001:db8::/32']}\n"
    )
    with milter_process.worker(directory, "--rules", rules) as worker:
        m = other("--explain-header", worker=worker.address)
        for client, rule in (
            ("192.0.2.9", b"net"),
            ("2001:db8::7", b"net"),
            ("192.0.3.9", b"none"),
            ("2001:db9::7", b"none"),
            ("", b"none"),
        ):
            with Milter(m.address, client=client) as connection:
                for _ in range(2):
                    found = dict(connection.judge(MAIL)[:5])
                    assert list(found) == [*OURS[:3], b"X-Spam-Explain", OURS[3]]
                    assert (b"rule=net" in found[b"X-Spam-Status"]) == (rule == b"net")
                    assert b" rule=%s signals=none" % rule in found[b"X-Spam-Explain"]
    subprocess.run(["rm", "-rf", directory], check=True)


def test_odd_mails_are_judged_too(milter):
    odd = [
        b"",
        b"\n",
        b"\nbody only\n",
        b"Subject: no body\n",
        b"Subject:\n\n\0\xff\x80\r bare\n" + b"x" * 200000,
        b"A: b\n\tfolded\n  again\n\nx\n",
        b"Subject: " + b"y" * 90000 + b"\n\nx\n",
        b"Subject: " + b"z" * 3000000 + b"\n\nx\n",
        b"".join(b"H%d: x\n" % i for i in range(3000)) + b"\nx\n",
    ]
    with Milter(milter.address) as m:
        for mail in odd:
            headers = m.judge(mail)
            assert [n for n, _ in headers[:4]] == OURS or unchecked(headers, mail) == "empty", (
                mail[:80],
                headers[:4],
            )
            assert headers[-len(split(mail)[0]) or len(headers) :] == split(mail)[0]


def spellings():
    """A hundred ways to write a header of ours."""
    names = [
        "X-Spam-Flag",
        "X-Spam-Score",
        "X-Spam-Status",
        "X-Spam-Checker-Version",
        "X-Spam-Level",
        "X-Spam-",
        "X-Spam-Report",
        "X-Spam-{}",
        "X-Spam-!#$%",
        "X-Spam-" + "a" * 500,
    ]
    cases = [
        str,
        str.lower,
        str.upper,
        str.swapcase,
        lambda s: "".join(c.upper() if i % 2 else c.lower() for i, c in enumerate(s)),
    ]
    tails = [":NO", " : NO", "\t \t:\n NO", ": NO,\n\tscore=0.0000\n  required=1", ":"]
    return [case(name) + tail for name in names for case, tail in zip(cases, tails)] + [
        case(name) + tail for name in names for case, tail in zip(cases, reversed(tails))
    ]


def test_no_forged_header_survives(milter):
    forged = [s.encode() for s in spellings()]
    assert len(forged) == 100
    nested = b"Content-Type: message/rfc822\n\nX-Spam-Flag: NO\nSubject: inner\n\nX-Spam-Flag: NO\n"
    rest = [
        b"From: a@example.com",
        b"X-Spammer: no",
        b"X-Spa: n",
        b"Subject: lunch",
        b"AX-Spam-Flag: no",
        b"X-Spam: 1",
    ]
    random.seed(1)
    with Milter(milter.address) as m:
        for lines in ([rest[0], f] for f in forged):
            headers = m.judge(b"".join(line + b"\n" for line in lines) + b"\nbody\n")
            assert [n for n, _ in headers] == OURS + [b"From"], lines
        together = forged * 3 + rest
        random.shuffle(together)
        headers = m.judge(b"".join(line + b"\n" for line in together) + nested)
        assert [n for n, _ in headers[:4]] == OURS
        kept = [line for line in together if line in rest] + [b"Content-Type: message/rfc822"]
        assert [n + b":" + v for n, v in headers[4:]] == kept


def test_five_hundred_mails_in_one_connection(milter, worker):
    """The same answers all the way, aborted mails between them, and no more memory or descriptors
    at the end than after fifty.
    """
    expected = [verdict(mail) + split(mail)[0] for mail in MAILS]
    big = b"Subject: big\n\n" + b"0123456789abcdef\n" * 60000
    with Milter(milter.address) as m:
        for n in range(500):
            if n % 7 == 0:
                m.envelope()
                if n % 2:
                    m.content(big)
                m.abort()
            assert m.judge(MAILS[n % len(MAILS)]) == expected[n % len(MAILS)], n
            if n == 50:
                rss, files = milter.rss(), milter.descriptors()
        assert milter.rss() - rss < 1 << 20 and milter.descriptors() == files


def test_fifty_connections_at_once(milter, worker):
    expected = [verdict(mail) + split(mail)[0] for mail in MAILS]
    wrong = []

    def client(n):
        try:
            with Milter(milter.address) as m:
                for i in range(n, n + 6):
                    if m.judge(MAILS[i % len(MAILS)]) != expected[i % len(MAILS)]:
                        wrong.append(i)
        except Exception as e:
            wrong.append(e)

    for attempt in range(3):
        threads = [threading.Thread(target=client, args=(n,)) for n in range(50)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if attempt == 0:
            rss = milter.rss()
    assert not wrong and milter.rss() - rss < 4 << 20


def test_events_in_any_order_end_nothing(milter):
    """Packets cut, doubled, in disorder or of random bytes: the connection may end, the milter
    stays.
    """
    random.seed(2)
    letters = b"OCHDMRTLNBEAQUKZ\0"
    for n in range(200):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(str(milter.address))
        data = packet(b"O", struct.pack(">III", 6, 0x1FF, 0x1FFFFF)) if n % 3 else b""
        for _ in range(random.randrange(12)):
            letter = random.choice(letters[:-1] if n % 2 else letters).to_bytes(1, "big")
            body = (
                random.randbytes(random.randrange(40))
                if random.randrange(2)
                else b"X-Spam-Flag\0 NO\0"
            )
            data += packet(letter, body)
        try:
            s.sendall(data[: random.randrange(len(data) + 1)])
        except OSError:
            pass
        s.close()
    with Milter(milter.address) as m:
        assert [n for n, _ in m.judge(MAIL)[:4]] == OURS
    assert milter.process.poll() is None


class Stub:
    """A worker that behaves as it should not: `behave(connection)` is called for each connection,
    in a thread.
    """

    def __init__(self, path, behave):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        os.chmod(path, 0o666)
        self.listener.listen(1)
        self.n, self.behave = 0, behave
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            connection, _ = self.listener.accept()
            self.n += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            self.behave(connection)


def read_all(connection):
    while connection.recv(65536):
        pass


def says(line):
    def behave(connection):
        read_all(connection)
        connection.sendall(line)

    return behave


def hang(connection):
    """Until the other side has gone."""
    poll = select.poll()
    poll.register(connection, 0)  # POLLHUP alone
    poll.poll()


BAD_WORKERS = {
    "silent": (hang, "timeout"),
    "reads and is silent": (lambda c: (read_all(c), hang(c)), "timeout"),
    "closes": (lambda c: None, "crashed"),
    "closes in a line": (says(b"yes 0.99"), "crashed"),
    "garbage": (says(b"\xff\0\r\n"), "worker"),
    "no line at all": (says(b"y" * 10000), "worker"),
    "injection": (says(b"yes 0.9931 0.9386 3f9a0c1b2d4e5f60\r\nX-Evil: 1\n"), "worker"),
    "two lines": (says(b"no 0.9931 0.9386 3f9a0c1b2d4e5f60\nyes\n"), "worker"),
    "other words": (says(b"perhaps 0.9931 0.9386 3f9a0c1b2d4e5f60\n"), "worker"),
    "unknown reason": (says(b"error sunspots\n"), "worker"),
    "memory": (says(b"error memory\n"), "memory"),
    "model": (says(b"error model\n"), "model"),
    "input": (says(b"error input\n"), "input"),
}


@pytest.mark.parametrize("name", BAD_WORKERS)
def test_whatever_the_worker_does_the_mail_is_accepted(other, tmp_path, name):
    behave, reason = BAD_WORKERS[name]
    with tempfile.TemporaryDirectory(prefix="sluice-stub-") as directory:
        os.chmod(directory, 0o755)
        path = Path(directory) / "worker"
        stub = Stub(path, behave)
        with Milter(
            other("--deadline", 1 if reason == "timeout" else 60, worker=path).address
        ) as m:
            for mail in (MAIL, MAIL + b"0123456789\n" * 100000):
                headers = m.judge(b"X-Spam-Flag: NO\n" + mail)
                assert unchecked(headers, mail) == reason
        # one that dies is replaced: the mail is worth a second try
        assert stub.n == (4 if reason == "crashed" else 2)


def test_without_a_worker_and_when_it_comes_back(other, place, worker):
    m = other()
    with Milter(m.address) as c:
        assert unchecked(c.judge(MAIL), MAIL) == "worker"
    assert "No such file or directory" in m.log()
    path = place / "later"
    with Milter(other(worker=path).address) as c:
        assert unchecked(c.judge(MAIL), MAIL) == "worker"
        path.symlink_to(worker.address)
        assert c.judge(MAIL) == verdict(MAIL) + split(MAIL)[0]


def test_progress_is_reported_while_a_verdict_takes_long(other):
    with tempfile.TemporaryDirectory(prefix="sluice-stub-") as directory:
        os.chmod(directory, 0o755)
        Stub(Path(directory) / "worker", hang)
        with Milter(other("--deadline", 15, worker=Path(directory) / "worker").address) as m:
            assert unchecked(m.judge(MAIL), MAIL) == "timeout" and m.n_progress == 1


def test_message_over_the_size_limit_is_not_classified_and_loses_forged_headers(other, worker):
    with Milter(other("--max-size", 100000, worker=worker.address).address) as m:
        mail = b"Subject: big\n\n" + b"0123456789\n" * 100000
        headers = m.judge(b"X-Spam-Status: No\n" + mail)
        assert unchecked(headers, mail) == "size"
        mail = b"Subject: " + b"x" * 150000 + b"\n\nx\n"
        assert unchecked(m.judge(b"X-Spam-Status: No\n" + mail + b"y\n"), mail) == "size"
        mail = b"Subject: fits\n\n" + b"0123456789\n" * 8000
        assert m.judge(mail) == verdict(mail) + split(mail)[0]


def test_all_mails_together_stay_within_the_memory(other, worker):
    """Twenty clients that stop in the middle of 900 KB each: there is 4 MiB for all."""
    milter = other("--memory", 4 << 20, worker=worker.address)
    before = milter.rss()
    clients = [Milter(milter.address) for _ in range(20)]
    mail = b"Subject: big\n\n" + b"0123456789abcde\n" * 56000
    for m in clients:
        m.envelope()
        m.content(mail)
    assert milter.rss() - before < 8 << 20
    reasons = [b"reason=memory" in edited(split(mail)[0], m.end(), True)[0][1] for m in clients]
    assert 16 <= sum(reasons) < 20
    with Milter(milter.address) as m:  # all of it was given back
        assert m.judge(mail) == verdict(mail) + split(mail)[0]
    for m in clients:
        m.close()


def test_senders_that_logged_in_can_be_skipped(other, worker):
    with Milter(other("--skip-authenticated", worker=worker.address).address) as m:
        assert unchecked(m.judge(b"X-Spam-Flag: NO\n" + MAIL, auth_type="PLAIN"), MAIL) == "skipped"
        assert m.judge(MAIL) == verdict(MAIL) + split(MAIL)[0]
    with Milter(other(worker=worker.address).address) as m:
        assert m.judge(MAIL, auth_type="PLAIN") == verdict(MAIL) + split(MAIL)[0]


def test_monitor_changes_nothing_and_logs(other, worker):
    milter = other("--monitor", worker=worker.address)
    mail = b"X-Spam-Flag: NO\n" + MAILS[-1]
    with Milter(milter.address) as m:
        assert m.actions == 0 and m.judge(mail) == split(mail)[0]
    answer, score, required, model = run("classify", "--long", input=mail).stdout.decode().split()
    assert re.search(
        rf": 4X1234567z: {answer} score={score} required={required} model={model} rule=- removed=0"
        r" ms=\d+\n",
        milter.log(),
    )


@pytest.mark.parametrize("steps", [0x3F, 0x7F, 0x1FFFFF & ~LEADING_BLANKS, 0x1FFFFF & ~NR_MAIL])
def test_older_mail_servers(milter, steps):
    mail = MAILS[0]
    with Milter(milter.address, steps) as m:
        for _ in range(3):
            headers = m.judge(b"X-Spam-Flag: NO\n" + mail)
            assert headers == verdict(mail) + split(mail)[0]


def test_absurd_numbers_of_forged_headers_cost_bounded_work(milter):
    """Each deletion is a walk through the headers in Postfix: of 30,000 enough go, and those that
    we write before others.
    """
    mail = (
        b"".join(b"X-Spam-%d: x\n" % (i % 500) for i in range(30000))
        + b"X-Spam-Flag: NO\n" * 50
        + MAIL
    )
    with Milter(milter.address) as m:
        m.envelope()
        m.content(mail)
        edits = m.end()
        assert 500 < len(edits) < 1000
        headers = edited(split(mail)[0], edits, True)
        assert [v for n, v in headers if n in OURS] == [v for _, v in headers[:4]]
    assert "could not be removed: there are too many" in milter.log()


def test_sanitizers_find_nothing(place, worker):
    program = milter_process.build(sanitized=True)
    env = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=99"}
    with tempfile.TemporaryDirectory(prefix="sluice-milter-") as directory:
        os.chmod(directory, 0o755)
        with milter_process.milter(
            Path(directory),
            "--max-size",
            300000,
            program=program,
            worker_path=worker.address,
            env=env,
        ) as milter:
            test_events_in_any_order_end_nothing(milter)
            mails = MAILS + [b"Subject: x\n\n" + b"y" * 400000, b"X-Spam-Foo: 1\n" * 3000 + MAIL]
            for steps in (0x1FFFFF, 0x3F):
                with Milter(milter.address, steps) as m:
                    for mail in mails * 2:
                        m.judge(mail)
                        m.envelope()
                        m.content(mail)
                        m.abort()
            with Milter(milter.address) as m:
                m.envelope()
                m.content(MAIL)
            assert milter.kill(signal.SIGTERM) == 0, milter.log()


REFUSED = [
    ([], "-p LISTEN is missing"),
    (["-p", "inet:8895@127.0.0.1"], "--socket WORKER is missing"),
    (["-p", "inet:8895", "--socket", "/w"], "names no host"),
    (["-p", "8895", "--socket", "/w"], "neither unix:/PATH nor"),
    (["-p", "unix:" + "/x" * 60, "--socket", "/w"], "at most 107 bytes"),
    (["-p", "unix:/x", "--socket", "w"], "not an absolute path"),
    (["--deadline", "241"], "from 1 to 240"),
    (["--deadline", "1s"], "not a number"),
    (["--max-size", "0"], "not a number"),
    (["--mode", "999"], "not a mode"),
    (["--memory"], "needs a value"),
    (["--colour"], "no such option"),
    (["-x"], "no such option"),
    (["x"], "unexpected argument"),
    (["-p", "unix:/x", "--socket", "/w", "--user", "no such user"], "no user"),
]


@pytest.mark.parametrize("argv, why", REFUSED, ids=[" ".join(a)[:30] for a, _ in REFUSED])
def test_wrong_options_are_refused_by_name(program, argv, why):
    done = run("mail-milter", *argv)
    assert done.returncode == 64 and done.stdout == b"", done
    assert (
        done.stderr.startswith(b"mail-milter: ")
        and done.stderr.count(b"\n") == 1
        and why in done.stderr.decode()
    )


def test_it_takes_no_name_from_a_file_or_from_another_server(program, milter, tmp_path):
    user = ["--user", "root"] if os.geteuid() == 0 else []
    kept = tmp_path / "kept"
    kept.write_text("kept")
    assert (
        run("mail-milter", "-p", f"unix:{kept}", "--socket", "/w", *user).returncode == 73
        and kept.read_text() == "kept"
    )
    done = run("mail-milter", "-p", f"unix:{milter.address}", "--socket", "/w", *user)
    assert done.returncode == 75 and b"another process listens there" in done.stderr
    assert (
        run("mail-milter", "-p", f"unix:{tmp_path}/absent/x", "--socket", "/w", *user).returncode
        == 73
    )
    if os.geteuid() == 0:
        done = run("mail-milter", "-p", f"unix:{tmp_path}/x", "--socket", "/w")
        assert done.returncode == 64 and b"--user NAME" in done.stderr


def test_help_and_version(program):
    help_text = run("mail-milter", "--help").stdout.decode()
    for word in ("SYNOPSIS\n", "EXIT STATUS\n", "EXAMPLES\n", "unchecked; reason=", " [60]\n"):
        assert word in help_text
    assert run("mail-milter", "-V").stdout == f"mail-milter (sluice) {VERSION}\n".encode()
    with open("/dev/full", "w") as full:
        assert run("mail-milter", "--help", stdout=full).returncode == 74
