"""What a client asks beyond its message: the name of its socket, which no message can forge."""

import contextlib
import re
import socket
import subprocess

import pytest
from conftest import run
from hypothesis import given
from hypothesis import strategies as st
from mail_filter_box import FILTER
from worker_client import ask, receive
from worker_process import DATA, ENV, Worker, long_lines

from sluice.serve import request
from sluice.serve.request import Request

LINE = re.compile(rb"(yes|no|unsure) [01]\.\d{4} 0\.\d{4} [0-9a-f]{16}(.*)\n")
WORDS = st.from_regex(r"[a-z0-9._:-]{1,30}", fullmatch=True)


@given(st.builds(Request, st.none() | WORDS, st.none() | WORDS, st.booleans(), st.booleans()))
def test_request_comes_back_from_its_name(asked):
    assert request.parse(request.name(asked)) == asked


@given(st.binary(max_size=107))
def test_any_name_is_a_request(data):
    for name in (data, b"\0" + data, request.MAGIC + data):
        found = request.parse(name)
        assert found.user is None or " " not in found.user


def test_longest_request_fits_the_name():
    asked = Request("u" * 40, "2001:db8:1111:2222:3333:4444:5555:6666", True, True)
    assert len(request.name(asked)) <= 108
    with pytest.raises(ValueError):
        request.name(Request("u" * 90))


def asking(path, data, **asked):
    """The answer to a client that asks for further words."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(request.name(Request(has_words=True, **asked)))
        s.settimeout(60)
        s.connect(str(path))
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return receive(s)


@contextlib.contextmanager
def serving(path, *options):
    w = Worker(path, *options, n=1)
    try:
        yield w
        w.end()
    finally:
        w.kill()


def teach(directory, user, answer, *mails):
    """Teach a user's calibration until it says so."""
    (directory / user).mkdir(exist_ok=True)
    path = directory / user / "spam.calibration"
    for mail in mails:
        done = run("classify", "--calibration", path, "--learn", answer, input=mail, env=ENV)
        assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A directory in which ann calls everything spam, and bob nothing."""
    directory = tmp_path_factory.mktemp("learned")
    for user, answer in (("ann", "yes"), ("bob", "no")):
        teach(directory, user, answer, *DATA)
    return directory


def score(line):
    return float(line.split()[1])


@pytest.mark.full
def test_client_without_a_name_gets_four_words(tmp_path, taught):
    (tmp_path / "r.yaml").write_text("rules:\n- {rule: all, answer: yes, sender: '*@*'}\n")
    with serving(tmp_path / "s", "--learned-in", taught) as w:
        assert [ask(w.path, data) for data in DATA] == long_lines()
        assert [asking(w.path, data) for data in DATA] == long_lines()
    with serving(tmp_path / "s", "--rules", tmp_path / "r.yaml") as w:
        model = long_lines()[0].split()[3]
        assert ask(w.path, DATA[0]) == b"yes 1.0000 0.8681 " + model + b"\n"
        assert asking(w.path, DATA[0]) == b"yes 1.0000 0.8681 " + model + b" rule=all\n"


def test_message_cannot_name_a_user(tmp_path, taught):
    with serving(tmp_path / "s", "--learned-in", taught) as w:
        for begin in (b"sluice/1 0 w u=bob\n", b"\0sluice/1 0 w u=bob\n", b"u: bob\n"):
            line = ask(w.path, begin + DATA[0])
            assert len(line.split()) == 4 and line == asking(w.path, begin + DATA[0])


@pytest.mark.full
def test_worker_judges_by_the_calibration_of_the_user(tmp_path, taught):
    with serving(tmp_path / "s", "--learned-in", taught) as w:
        for data, line in zip(DATA, long_lines()):
            ann, bob = (asking(w.path, data, user=user) for user in ("ann", "bob"))
            assert score(bob) < score(ann) and score(bob) <= score(line) <= score(ann)
            for user in ("carol", "../ann", "ann/../bob", "Ann", ".ann", "", "x" * 41, "."):
                assert asking(w.path, data, user=user) == line  # the site's


@pytest.mark.full
def test_worker_sees_at_once_what_a_user_teaches(tmp_path):
    directory = tmp_path / "learned"
    directory.mkdir()
    data, line = DATA[0], long_lines()[0]
    with serving(tmp_path / "s", "--learned-in", directory) as w:
        assert asking(w.path, data, user="ann") == line
        path = teach(directory, "ann", "yes", data)
        once = asking(w.path, data, user="ann")
        assert score(once) > score(line) == score(asking(w.path, data, user="bob"))
        teach(directory, "ann", "no", data)  # the last word counts
        assert score(asking(w.path, data, user="ann")) < score(once)
        path.unlink()
        assert asking(w.path, data, user="ann") == line


def test_calibration_that_cannot_be_trusted_is_not_used(tmp_path):
    directory = tmp_path / "learned"
    directory.mkdir()
    data, line = DATA[0], long_lines()[0]
    path = teach(directory, "ann", "yes", data)
    path.chmod(0o666)
    (directory / "bob").symlink_to("ann")
    w = Worker(tmp_path / "s", "--learned-in", directory, n=1)
    try:
        for user in ("ann", "bob"):
            assert asking(w.path, data, user=user) == line
        w.end()
        said = w.log()
    finally:
        w.kill()
    assert "ann/spam.calibration: could have been written by other users: its mode is 0666" in said
    assert "bob: is a symbolic link" in said and said.count("\n") == 2


@pytest.mark.full
def test_more_users_than_are_kept(tmp_path, taught):
    directory = tmp_path / "many"
    directory.mkdir()
    data = (taught / "ann/spam.calibration").read_bytes()
    for i in range(40):
        (directory / f"u{i}").mkdir()
        (directory / f"u{i}/spam.calibration").write_bytes(data)
        (directory / f"u{i}/spam.calibration").chmod(0o600)
    with serving(tmp_path / "s", "--learned-in", directory) as w:
        lines = {asking(w.path, DATA[0], user=f"u{i % 40}") for i in range(60)}
        assert len(lines) == 1 and lines != {long_lines()[0]}


def test_worker_explains_if_it_is_asked(tmp_path, taught):
    with serving(tmp_path / "s", "--learned-in", taught) as w:
        plain = asking(w.path, DATA[0], explains=True)
        ann = asking(w.path, DATA[0], explains=True, user="ann")
    words = lambda line: dict(word.split("=") for word in LINE.fullmatch(line)[2].decode().split())
    assert words(plain) == {
        "model": words(ann)["model"],
        "tokens": "+0.00",
        "taught": "0",
        "signals": "list,reply-to:other,unsubscribe:mail,unsubscribe:web",
    }
    assert words(ann)["taught"] == str(len(DATA)) and float(words(ann)["tokens"]) > 0


@pytest.mark.full
def test_rules_are_read_again_when_they_change_and_at_sighup(tmp_path):
    path = tmp_path / "r.yaml"
    text = "rules:\n- {rule: net, answer: %s, client: 192.0.2.0/24}\n"
    path.write_text(text % "yes")
    w = Worker(tmp_path / "s", "--rules", path, n=1)
    try:
        where = {"client": "192.0.2.9"}
        assert asking(w.path, DATA[0], **where).endswith(b" rule=net\n")
        assert asking(w.path, DATA[0], client="192.0.3.9") == long_lines()[0]
        assert ask(w.path, DATA[0]) == long_lines()[0]
        path.write_text(text % "no")
        assert asking(w.path, DATA[0], **where).startswith(b"no 0.0000 ")
        path.write_text("rules: x\n")
        assert asking(w.path, DATA[0], **where).startswith(b"no 0.0000 ")
        w.restart(wait=False)
        w.wait_for(lambda: "the old ones stay" in w.log(), "refused reload")
        assert asking(w.path, DATA[0], **where).startswith(b"no 0.0000 ")
        path.write_text(text % "yes")
        w.restart()
        assert asking(w.path, DATA[0], **where).startswith(b"yes 1.0000 ")
        w.end()
        assert w.log().count("r.yaml: line 1: rules: is not a list") == 2
    finally:
        w.kill()


def test_worker_does_not_start_with_bad_rules(tmp_path):
    (tmp_path / "r.yaml").write_text("rules:\n- {rule: a, answer: no, client: x}\n")
    for name, code in (("r.yaml", 65), ("absent.yaml", 66)):
        done = run("classify", "--listen", tmp_path / "s", "--rules", tmp_path / name)
        assert done.returncode == code and name.encode() in done.stderr


# mail-filter.


def filtered(socket, mail, *options, recipients=()):
    command = [FILTER, "--deliver", "stdout", "--log", "-", "--socket", socket, *options, "--"]
    done = subprocess.run(
        [*map(str, command), *recipients], input=mail, capture_output=True, timeout=60, env=ENV
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.decode()


def field(mail, name):
    found = re.search(rb"^%s: (.*)\n" % name, mail, re.M)
    return found and found[1]


@pytest.mark.full
def test_recipient_of_mail_filter_chooses_the_calibration(tmp_path, taught):
    with serving(tmp_path / "s", "--learned-in", taught) as w:
        of = lambda *to, by=("--learned-by", "recipient"): float(
            field(
                filtered(w.path, DATA[0], *by, "--worker-only", recipients=to)[0], b"X-Spam-Score"
            )
        )
        site = of()
        ann, bob = of("ann@example.org"), of("bob@example.org")
        assert bob < site < ann
        assert of("Ann@example.org") == of("ann+lists@example.org") == of("ann") == ann
        for other in (
            ("carol@example.org",),
            ("ann@example.org", "bob@example.org"),
            ('"ann"@example.org',),
            ("../ann@example.org",),
            (".ann@example.org",),
            ("+ann@example.org",),
            ("@example.org",),
            ("a" * 41 + "@example.org",),
            ("änn@example.org",),
        ):
            assert of(*other) == site, other
        assert of("ann@example.org", by=()) == site
    done = subprocess.run([FILTER, "--learned-by", "sender"], capture_output=True, input=b"x")
    assert done.returncode == 75 and b"--learned-by: invalid value" in done.stderr


@pytest.mark.full
def test_process_of_mail_filter_answers_as_the_worker(tmp_path, taught):
    rules = tmp_path / "r.yaml"
    rules.write_text(
        "rules:\n- {rule: net, answer: yes, client: '2001:db8::/32'}\n"
        "- {rule: sure, answer: no, domain: example.org, authenticated: true}\n"
    )
    shared = ("--rules", rules, "--learned-in", taught, "--authserv-id", "mx.example.com")
    header = b"Authentication-Results: mx.example.com; dmarc=pass\nFrom: a@example.org\n"
    cases = (
        (DATA[0], ()),
        (DATA[0], ("--client", "[IPv6:2001:DB8:0::1]")),
        (DATA[0], ("--client", "unknown")),
        (DATA[0], ("--client", "1" * 500)),
        (header + b"\n" + DATA[0], ()),
    )
    with serving(tmp_path / "s", *shared) as w:
        for mail, options in cases:
            for to in ("ann@example.org", "x@example.org"):
                options = (*options, "--learned-by", "recipient", "--explain-header")
                one, said = filtered(w.path, mail, *options, "--worker-only", recipients=(to,))
                other, too = filtered(tmp_path / "none", mail, *options, *shared, recipients=(to,))
                assert one == other and "by=worker" in said and "by=process" in too
                rule = re.search(r" rule=(\S+)", said)[1]
                status = field(one, b"X-Spam-Status").decode()
                assert status.endswith(f" rule={rule}") or rule == "-" and "rule" not in status
                why = field(one, b"X-Spam-Explain").decode()
                assert re.fullmatch(
                    r"model=(none|[-+]\d+\.\d\d) tokens=(none|[-+]\d+\.\d\d) taught=\d+"
                    r" rule=[a-z]+ signals=[a-z:,-]+",
                    why,
                )
        assert field(filtered(w.path, DATA[0])[0], b"X-Spam-Explain") is None


def test_new_client_and_an_earlier_worker(tmp_path, taught):
    """Which reads the message alone, and answers with four words."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        options = ("--learned-by", "recipient", "--client", "192.0.2.1", "--explain-header")
        command = [FILTER, "--deliver", "stdout", "--log", "-", "--socket", path, *options]
        with subprocess.Popen(
            [*map(str, command), "--", "ann@example.org"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as p:
            p.stdin.write(DATA[0])
            p.stdin.close()
            client, _ = s.accept()
            with client:
                assert receive(client) == DATA[0]
                client.sendall(long_lines()[0])
            marked = p.stdout.read()
            assert p.wait(60) == 0
    assert field(marked, b"X-Spam-Status") and field(marked, b"X-Spam-Explain") is None


@pytest.mark.parametrize(
    "words",
    [
        b" rule=",
        b" rule=A",
        b" rule=a b",
        b" rule=" + b"a" * 41,
        b" rule=a\tb",
        b" model=+1.00",
        b" model=+1.00 tokens=+0.00 taught=1",
        b" model=+1.00 tokens=+0.00 taught=1 signals=",
        b" model=+1.00 tokens=+0.00 taught=1 signals=A",
        b" model=<b> tokens=+0.00 taught=1 signals=none",
        b" model=+1.00 tokens=+0.00 taught=1 signals=none x",
        b" model=+1.00 tokens=+0.00 taught=1 signals=" + b"a" * 161,
        b" x",
        b" ",
    ],
)
def test_words_of_a_worker_that_are_none_are_no_verdict(words):
    from sluice.mail import headers

    line = b"yes 0.9931 0.9386 3f9a0c1b2d4e5f60"
    assert headers.headers(line) and headers.headers(line + b" rule=a.b-c_1")
    with pytest.raises(ValueError):
        headers.headers(line + words)


def test_longest_words_fit_the_headers():
    from sluice.mail import headers

    line = b"unsure 0.9931 0.9386 3f9a0c1b2d4e5f60 rule=" + b"r" * 40
    line += b" model=-99.99 tokens=-199.98 taught=20000 signals=" + b"s" * 160
    text = headers.headers(line)
    assert text.count(b"\n") == 5 and max(map(len, text.split(b"\n"))) < 300
    assert b" rule=" + b"r" * 40 + b" signals=" + b"s" * 160 + b"\n" in text
