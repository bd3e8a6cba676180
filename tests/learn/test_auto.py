"""classify --auto-learn: with one text, many, --pass-through and --listen."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import BIN
from learn_files import HAM, MAILS, SPAM

from sluice.learn import auto

HAMS = [p for p in MAILS if p.stem.startswith("ham")]
SPAMS = [p for p in MAILS if p.stem.startswith("spam")]


@pytest.fixture
def by_hand(taught):
    """Two mails of each answer."""
    taught.learn("ham", *HAMS[1:])
    taught.learn("spam", *SPAMS[1:])
    assert HAM == HAMS[0].read_bytes() and SPAM == SPAMS[0].read_bytes()
    return taught


def n_auto(taught):
    return {name: some["auto"] for name, some in taught.listed()["answers"].items()}


@pytest.mark.quick_cases(1)
def test_sure_answers_are_learned_and_unsure_ones_not(by_hand):
    by_hand.classify("--auto-learn", "1")
    assert n_auto(by_hand) == {"yes": 0, "no": 0}
    before = by_hand.classify().stdout
    assert by_hand.classify("--auto-learn", "0.9").stdout == before  # then it learns
    by_hand.classify("--auto-learn", "0.9")
    assert n_auto(by_hand) == {"yes": 0, "no": 1}
    assert "taught" not in by_hand.json()
    by_hand.learn("spam")  # by hand it is replaced
    assert n_auto(by_hand) == {"yes": 0, "no": 0} and by_hand.json()["answer"] == "yes"


@pytest.mark.full
def test_nothing_is_learned_without_texts_of_each_answer_by_hand(taught):
    taught.classify("--auto-learn", "0.5")
    assert not taught.path.exists()
    taught.learn("ham", *HAMS[1:])
    taught.classify("--auto-learn", "0.5")
    assert taught.n() == 2


@pytest.mark.quick_cases(1)
def test_texts_by_hand_stay_as_they_are(by_hand):
    old = by_hand.path.read_bytes()
    by_hand.classify("--auto-learn", "0.5", *HAMS[1:], *SPAMS[1:])
    assert by_hand.path.read_bytes() == old


@pytest.mark.full
def test_of_many_texts_as_many_are_kept_as_by_hand(by_hand, tmp_path):
    (tmp_path / "box").mkdir()
    for n, tree in enumerate("ash birch cedar elm fir hazel".split()):
        mail = HAM + f"and about {tree} as well\n".encode()
        (tmp_path / "box" / str(n)).write_bytes(mail)
    done = by_hand.classify("--auto-learn", "0.9", tmp_path / "box")
    assert done.returncode == 0 and done.stdout.count(b"\tno\t") == 6
    assert n_auto(by_hand) == {"yes": 0, "no": 2} and by_hand.listed()["counting"] == 6


@pytest.mark.quick_cases(1)
def test_pass_through_learns_after_the_mail_is_out(by_hand):
    done = by_hand.classify("--auto-learn", "0.9", "--pass-through")
    assert done.returncode == 0 and b"X-Spam-Flag: NO" in done.stdout and HAM[60:] in done.stdout
    assert n_auto(by_hand) == {"yes": 0, "no": 1}


def ask(path, mail):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(str(path))
        s.sendall(mail)
        s.shutdown(socket.SHUT_WR)
        return s.makefile("rb").read()


@pytest.mark.full
def test_daemon_learns_and_sees_changes_at_once(by_hand, tmp_path):
    at = tmp_path / "s"
    code = (
        "import sys; from sluice.learn import auto; auto.SECONDS = 0.0;"
        f" sys.argv = ['classify', '--calibration', {str(by_hand.path)!r}, '--auto-learn', '0.9',"
        f" '--listen', {str(at)!r}, '--workers', '1'];"
        " from sluice.commands import classify; from sluice import cli; cli.run(classify.main)"
    )
    env = {**os.environ, "PYTHONPATH": str(BIN.parent / "lib")}
    p = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        end = time.monotonic() + 30
        while not at.exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert ask(at, HAM).startswith(b"no ")
        while n_auto(by_hand)["no"] != 1 and time.monotonic() < end:
            time.sleep(0.1)
        assert n_auto(by_hand) == {"yes": 0, "no": 1}
        by_hand.learn("spam")
        assert ask(at, HAM).startswith(b"yes ")
        assert by_hand.classify("--forget").returncode == 0
        assert ask(at, HAM).startswith(b"no ")
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(30) == 0


@pytest.mark.quick_cases(1)
def test_waiting_texts_are_bounded(by_hand):
    """A worker keeps some, and puts them into the file together."""
    from sluice.classify.setup import Setup

    c = Setup(calibration_file=str(by_hand.path), auto_learn=0.5).classifier()
    v = c.ask(HAM)
    c.auto.note(v)
    assert not c.auto.is_due
    for n in range(auto.MAX_WAITING):
        v.used = b"text %d" % n, None
        c.auto.note(v)
    assert c.auto.is_due
    c.auto.save()
    assert not c.auto.is_due and n_auto(by_hand) == {"yes": 0, "no": 2}
