"""configs/recipes: procmail, maildrop, Dovecot's Sieve and IMAP, mutt and neomutt, as they are
installed, with the recipes as they are shipped.

What each of them delivers without a filter is what it must deliver with a filter that fails, byte
for byte; and with one that works, but for the X-Spam headers.
"""

import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, ROOT

from sluice.mail import headers
from sluice.question import question

pytestmark = pytest.mark.full

RECIPES = ROOT / "configs" / "recipes"
REQUIRED = f"{question.read(str(ROOT / 'configs' / 'spam.yaml')).thresholds['yes']:.4f}"
MAILS = {p.stem: p.read_bytes() for p in sorted((ROOT / "tests" / "mails").glob("*.eml"))}
HOSTILE = {
    "forged": (
        b"X-Spam-Flag: YES\nSubject: Minutes\nx-spam-status : No,\n score=0\nX-SPAM-FLAG:"
        b" yes\nFrom: a@example.org\n\nX-Spam-Flag: YES\nSee you.\n"
    ),
    "crlf": (
        b"From: a@example.org\r\nSubject: Minutes\r\nX-Spam-Flag: YES\r\n\r\nThe numbers of"
        b" May.\r\n"
    ),
    "8-bit": b"From: \xe9\xff <a@example.org>\nSubject: \xfe\n\n\x80\xff\x1b[2J\n",
    "no newline at the end": b"From: a@example.org\nSubject: Minutes\n\nThe numbers",
    "no body": b"From: a@example.org\nSubject: Minutes\n\n",
    "lines": (
        b"From: a@example.org\nSubject: Minutes\n\n"
        + b"x" * 100_000
        + b"\n.\n\nFrom here on\n>From there\n"
        + b"\n" * 500
    ),
    "nested": (
        b"Subject: n\nContent-Type: multipart/mixed; boundary=b\n\n"
        + b"--b\nContent-Type: multipart/mixed; boundary=b\n\n" * 3000
    ),
}
# 18 MB: by a file
LARGE = (
    b"From: a@example.org\nSubject: Minutes\n\n"
    + b"The numbers of May, again and again, as they are.\n" * 360_000
)
SCRIPTS = {
    "killed": "cat >/dev/null; kill -9 $$",
    "killed at once": "kill -9 $$",
    "killed after a part": "head -c 100; kill -9 $$",
    "status 75 after a part": "head -c 100; exit 75",
    "our bug": "echo oops; exit 70",
}


class Place:
    """A home with a mailbox, and bin/ instead of /opt/sluice/bin."""

    def __init__(self, path):
        self.path, self.bin, self.home, self.box = (
            path,
            path / "bin",
            path / "home",
            path / "home" / "Maildir",
        )
        self.bin.mkdir()
        for folder in (self.box, self.box / ".Spam"):
            for name in ("cur", "new", "tmp"):
                (folder / name).mkdir(parents=True)
        self.script(f'exec {BIN}/classify --no-cache "$@"')
        self.env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def script(self, text, name="classify"):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def recipe(self, name):
        return (RECIPES / name).read_text().replace("/opt/sluice/bin", str(self.bin))

    def take(self):
        """What was delivered since: [(folder, bytes)]."""
        found = []
        for p in sorted(self.home.rglob("new/*")):
            found.append((p.parent.parent.relative_to(self.box).as_posix(), p.read_bytes()))
            p.unlink()
        assert not list(self.home.rglob("tmp/*"))
        return found


def procmail(place, mail, plain=False, change=lambda text: text, **kwargs):
    text = (
        "MAILDIR=$HOME/Maildir\nDEFAULT=$MAILDIR/\n"
        if plain
        else change(place.recipe("procmailrc"))
    )
    (place.path / "rc").write_text(f"HOME={place.home}\nLOGFILE={place.path}/log\n{text}")
    return subprocess.run(
        ["procmail", "-t", "-m", place.path / "rc"],
        input=mail,
        capture_output=True,
        timeout=60,
        env=place.env,
        **kwargs,
    )


def maildrop(place, mail, plain=False, change=lambda text: text, **kwargs):
    text = 'to "$HOME/Maildir/"\n' if plain else change(place.recipe("maildroprc"))
    (place.path / "rc").write_text(f'HOME="{place.home}"\n{text}')
    (place.path / "rc").chmod(0o600)
    return subprocess.run(
        ["maildrop", place.path / "rc"],
        input=mail,
        capture_output=True,
        timeout=60,
        env=place.env,
        **kwargs,
    )


def sieve(place, mail, plain=False, change=lambda text: text, **kwargs):
    """dovecot-lda, which delivers for no user of root's number: so root lends it another one, and
    its own right to read this tree.
    """
    conf = (
        place.recipe("dovecot.conf")
        .replace("/etc/dovecot/sieve-filter", str(place.bin))
        .replace("/etc/dovecot/spam.sieve", f"{place.home}/spam.sieve")
    )
    (place.home / "spam.sieve").write_text(
        "keep;\n" if plain else change(place.recipe("spam.sieve"))
    )
    for p in place.home.glob("*.svbin"):
        p.unlink()
    (place.path / "dovecot.conf").write_text(
        f"base_dir = {place.path}/run\nmail_location = maildir:{place.box}\nmail_home ="
        f" {place.home}\nlog_path = {place.home}/log\npostmaster_address = p@example.org\nhostname"
        f" = example.org\nssl = no\nprotocols =\n{conf}"
    )
    command = [
        "/usr/lib/dovecot/dovecot-lda",
        "-c",
        str(place.path / "dovecot.conf"),
        "-f",
        "a@example.org",
    ]
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", "nobody", place.home], check=True)
        command = [*as_nobody(), *command]
    user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    return subprocess.run(
        command,
        input=mail,
        capture_output=True,
        timeout=60,
        env={**place.env, "USER": user},
        **kwargs,
    )


def as_nobody():
    """The begin of a command line: another user, who may read what is root's all the same."""
    nobody = pwd.getpwnam("nobody")
    return [
        "setpriv",
        f"--reuid={nobody.pw_uid}",
        f"--regid={nobody.pw_gid}",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ]


DELIVER = {"procmail": procmail, "maildrop": maildrop, "sieve": sieve}
PACKAGES = {"sieve": "dovecot-sieve"}  # Debian's, where a recipe is not named as its package
NEEDS = {
    "procmail": "procmail",
    "maildrop": "maildrop",
    "sieve": "/usr/lib/dovecot/modules/sieve/lib90_sieve_extprograms_plugin.so",
}


@pytest.fixture
def place(tmp_path):
    for directory in [tmp_path, *tmp_path.parents][:4]:  # pytest's own are for one user alone
        if directory.stat().st_uid == os.getuid() and directory != Path("/tmp"):
            directory.chmod(0o755)
    return Place(tmp_path)


@pytest.fixture(params=DELIVER)
def deliver(request):
    needs = NEEDS[request.param]
    if not (Path(needs).exists() or shutil.which(needs)):
        pytest.skip(
            f"{request.param} is not installed: apt install"
            f" {PACKAGES.get(request.param, request.param)}"
        )
    if (
        request.param == "sieve"
        and os.getuid() == 0
        and (not shutil.which("setpriv") or subprocess.run([*as_nobody(), "true"]).returncode)
    ):
        pytest.skip("setpriv cannot lend CAP_DAC_OVERRIDE to another user: run as root")
    return DELIVER[request.param]


def baseline(deliver, place, mail):
    done = deliver(place, mail, plain=True)
    assert (done.returncode, done.stderr) == (0, b""), done
    ((folder, data),) = place.take()
    assert folder == "."
    return data


def delivered(deliver, place, mail, **kwargs):
    done = deliver(place, mail, **kwargs)
    assert done.returncode == 0, done
    ((folder, data),) = place.take()
    return folder, data


# A filter that works.


@pytest.mark.parametrize("name", [*MAILS, *HOSTILE])
def test_mail_comes_with_its_headers_and_is_sorted_by_them(deliver, place, name):
    mail = {**MAILS, **HOSTILE}[name]
    want, (folder, data) = baseline(deliver, place, mail), delivered(deliver, place, mail)
    assert headers.mark(data, b"") == headers.mark(want, b"")
    head = data.replace(b"\r\n", b"\n").split(b"\n\n")[0].decode("latin-1")
    flags = re.findall(r"^X-Spam-Flag: (\w+)\r?$", head, re.M)
    assert flags == ["YES"] if folder == ".Spam" else flags == ["NO"]
    assert re.findall(
        r"^X-Spam-Status: (?:Yes|No|Unsure), score=[01]\.\d{4} required=(.{6})"
        r" model=[0-9a-f]{16}\r?$",
        head,
        re.M,
    ) == [REQUIRED], head
    assert len(re.findall("(?im)^x-spam-status", head)) == 1
    if name in MAILS:
        assert folder == (".Spam" if name.startswith("spam") else ".")


def test_large_mail_comes_whole(deliver, place):
    want, (_, data) = baseline(deliver, place, LARGE), delivered(deliver, place, LARGE)
    assert (
        b"X-Spam-Status: " in data[:400]
        and headers.mark(data, b"") == want
        and len(want) > 17 << 20
    )


def test_quick_form_asks_the_worker(deliver, place):
    """mail-filter instead of classify, as the comment in each recipe has it; first without, then
    with a worker.
    """
    if not (BIN / "mail-filter").exists():
        pytest.skip("bin/mail-filter is not built: make")
    socket = place.path / "s"
    place.script(f'exec {BIN}/mail-filter --classify {place.bin}/classify "$@"', "mail-filter")

    def quick(text):
        text = text.replace("/run/sluice/classify.sock", str(socket))
        if deliver is procmail:
            return text.replace(
                "| $SLUICE/classify --pass-through", re.search(r"# (\| .*mail-filter.*)", text)[1]
            )
        if deliver is maildrop:
            return text.replace(
                'xfilter "$SLUICE/classify --pass-through"',
                re.search(r"#\s+(xfilter .*mail-filter.*)", text)[1],
            )
        return text.replace(
            'filter "classify" ["--pass-through"]',
            re.search(r'# if not (filter "mail-filter" \[.*\])', text)[1],
            1,
        )

    mail = MAILS["ham-mutt"]
    want = baseline(deliver, place, mail)
    user = "nobody" if deliver is sieve and os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    scores = []
    for worker in (None, place.path, teach_user(place, user)):
        p = None
        if worker:
            options = ["--mode", "0666", "--workers", "1", "--no-cache", "--learned-in", worker]
            p = subprocess.Popen([BIN / "classify", "--listen", socket, *options], env=place.env)
            end = time.monotonic() + 30
            while not socket.exists() and time.monotonic() < end:
                time.sleep(0.02)
            place.script("exit 75")  # nobody else can answer now
        try:
            _, data = delivered(deliver, place, mail, change=quick)
        finally:
            if p:
                p.terminate()
                p.wait()
            socket.unlink(missing_ok=True)
        scores.append(re.search(rb"X-Spam-Status: \w+, score=([\d.]+)", data)[1])
        assert headers.mark(data, b"") == want
    # by a process; by the worker; by the worker and what the user taught
    assert scores[0] == scores[1] < scores[2]


def teach_user(place, user):
    """A directory in which the user calls every mail spam."""
    path = place.path / "learned" / user / "spam.calibration"
    path.parent.mkdir(parents=True)
    for mail in MAILS.values():
        command = [BIN / "classify", "--calibration", path, "--learn", "yes"]
        subprocess.run(command, input=mail, check=True, capture_output=True)
    return path.parent.parent


# A filter that fails.


@pytest.mark.parametrize("trouble", ["missing", *SCRIPTS])
def test_mail_comes_as_it_was_where_the_filter_fails(deliver, place, trouble):
    if trouble == "missing":
        (place.bin / "classify").unlink()
    else:
        place.script(SCRIPTS[trouble])
    for mail in (MAILS["spam-cards"], HOSTILE["8-bit"]):
        want = baseline(deliver, place, mail)
        assert delivered(deliver, place, mail) == (".", want)


def test_mail_is_unchecked_where_there_is_no_verdict(deliver, place):
    place.script(f'exec {BIN}/classify "$@" -m {place.path}/no.gguf')
    for mail in (MAILS["spam-cards"], HOSTILE["forged"]):
        want, (folder, data) = baseline(deliver, place, mail), delivered(deliver, place, mail)
        assert folder == "." and re.match(
            rb"(From .*\n)?X-Spam-Status: unchecked; reason=model\nX-Spam-Checker-Version: ", data
        )
        # of forged ones: the one in the body
        assert headers.mark(data, b"") == headers.mark(want, b"") and data.count(
            b"X-Spam-Flag"
        ) == mail.count(b"\nX-Spam-Flag")


def test_mail_comes_as_it_was_where_the_filter_has_no_disk(deliver, place):
    place.script(f'ulimit -f 100; exec {BIN}/classify --no-cache "$@"')  # 50 KB a file
    want = baseline(deliver, place, LARGE)
    assert delivered(deliver, place, LARGE) == (".", want)
    small = MAILS["ham-mutt"]  # needs none
    want = baseline(deliver, place, small)
    _, data = delivered(deliver, place, small)
    assert headers.mark(data, b"") == want and b"X-Spam-Status: No" in data


def test_mail_comes_as_it_was_where_the_filter_is_killed_while_it_works(deliver, place):
    """kill -9 at several moments of a real run."""
    mail = MAILS["spam-cards"]
    want, seen = baseline(deliver, place, mail), set()
    for seconds in (0.001, 0.02, 0.05, 0.08, 0.2, 2):
        place.script(f'exec timeout -s KILL {seconds} {BIN}/classify --no-cache "$@"')
        folder, data = delivered(deliver, place, mail)
        assert (
            (folder, data) == (".", want) or folder == ".Spam" and headers.mark(data, b"") == want
        )
        seen.add(folder)
    assert "." in seen


def test_mail_stays_in_the_queue_where_the_mailbox_is_full(deliver, place):
    """75, and nothing delivered in part; the same mail again comes whole."""
    mail = HOSTILE["lines"]
    want = baseline(deliver, place, mail)

    def no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    done = deliver(place, mail, preexec_fn=no_room)
    assert done.returncode == 75 and not list(place.home.rglob("new/*")), done
    for p in place.home.rglob("tmp/*"):
        p.unlink()
    _, data = delivered(deliver, place, mail)
    assert headers.mark(data, b"") == want


def test_mail_stays_in_the_queue_where_that_is_wanted(place):
    place.script("exit 70")
    if shutil.which("procmail"):
        done = procmail(
            place, MAILS["ham-mutt"], change=lambda text: text.replace("DEFER=no", "DEFER=yes")
        )
        assert done.returncode == 75 and not place.take()
    if shutil.which("maildrop"):
        bare = lambda text: re.sub(r"(?m)^exception \{\n(  xfilter .*\n)\}", r"\1", text)
        done = maildrop(place, MAILS["ham-mutt"], change=bare)
        assert done.returncode == 75 and not place.take()
    if not shutil.which("procmail") and not shutil.which("maildrop"):
        pytest.skip("procmail is not installed: apt install procmail")


def test_mail_comes_where_the_folder_for_spam_is_absent(deliver, place):
    shutil.rmtree(place.box / ".Spam")
    _, data = delivered(deliver, place, MAILS["spam-cards"])
    assert b"X-Spam-Flag: YES" in data


def test_script_beside_the_page_for_administrators_is_sieve_and_the_one_of_the_page(tmp_path):
    page, script = (
        (ROOT / "configs/postfix" / name).read_text() for name in ("README.md", "spam.sieve")
    )
    assert re.sub("(?m)^", "    ", script.partition("\n")[2].strip()) in page
    if not shutil.which("sievec"):
        pytest.skip("sieve is not installed: apt install dovecot-sieve")
    (tmp_path / "spam.sieve").write_text(script)
    assert (
        subprocess.run(
            ["sievec", "spam.sieve"], cwd=tmp_path, capture_output=True, timeout=60
        ).returncode
        == 0
    )
    (tmp_path / "spam.sieve").write_text(script.replace("fileinto", "filein", 1))
    assert (
        subprocess.run(
            ["sievec", "spam.sieve"], cwd=tmp_path, capture_output=True, timeout=60
        ).returncode
        != 0
    )


# mutt and neomutt.


@pytest.fixture(params=["mutt", "neomutt"])
def program(request, place):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed: apt install {request.param}")
    place.program = request.param


def mutt(place, keys, folder="", until=b"", seconds=60, then=b"", env=()):
    """Run mutt on a pseudo-terminal with the shipped muttrc; `keys` are pushed at its start, `then`
    is typed when it has shown `until`. What it showed.
    """
    import pty
    import select

    (place.path / "muttrc").write_text(
        f"set folder={place.box}\nset mbox_type=Maildir\nset move=no\nset delete=yes\nset"
        " mark_old=no\nset header_cache=''\nset sort=subject\n"
        + place.recipe("muttrc")
        + f'push "{keys}"\n'
    )
    pid, fd = pty.fork()
    if not pid:
        os.chdir(place.path)
        os.execvpe(
            place.program,
            [place.program, "-n", "-F", str(place.path / "muttrc"), "-f", f"={folder}"],
            {**place.env, "TERM": "xterm", "LINES": "24", "COLUMNS": "80", **dict(env)},
        )
    shown, end, is_done = b"", time.monotonic() + seconds, False
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.05)[0]:
            try:
                part = os.read(fd, 1 << 16)
            except OSError:  # it has ended
                break
            if not part:
                break
            shown += part
        elif not is_done and until in shown:
            is_done = True
            os.write(fd, then)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"mutt did not end: {shown[-2000:]!r}")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return shown


def put(place, folder, **mails):
    for name, mail in mails.items():
        (place.box / folder / "cur" / f"{name}:2,S").write_bytes(mail)


def texts(place, folder):
    """The mails there, without the headers that mutt adds to what it saves."""
    bare = lambda mail: re.sub(rb"(?m)^(Content-Length|Lines|Status): .*\n", b"", mail)
    return sorted(
        bare(p.read_bytes()) for p in (place.box / folder).glob("???/*") if p.parent.name != "tmp"
    )


def learnt(place):
    """Labels of what was learned, sorted: 0 is yes, spam."""
    from sluice.learn import book

    path, copy = place.home / ".local/share/sluice/spam.calibration", place.path / "copy"
    copy.unlink(missing_ok=True)
    if path.exists():  # it may belong to somebody else
        copy.write_bytes(path.read_bytes())
    found = book.read(str(copy))
    return sorted(text.label for part in found.parts.values() for text in part.texts.values())


def test_mutt_teaches_and_moves(place, program):
    spam, ham = MAILS["spam-cards"].split(b"\n", 1)[1], MAILS["ham-mutt"].split(b"\n", 1)[1]
    put(place, ".", a=spam, b=ham)
    mutt(place, "<search>~s Visa<enter>S<sync-mailbox><quit>")
    assert learnt(place) == [0] and texts(place, ".Spam") == [spam] and texts(place, ".") == [ham]
    mutt(place, "H<sync-mailbox><quit>", folder=".Spam")
    assert (
        learnt(place) == [1]
        and texts(place, ".Spam") == []
        and texts(place, ".") == sorted([spam, ham])
    )
    mutt(place, "<search>~s Visa<enter>U<quit>")
    assert learnt(place) == [] and texts(place, ".") == sorted([spam, ham])


def test_mutt_teaches_from_the_pager_and_many_that_are_tagged(place, program):
    mails = [
        MAILS[name].split(b"\n", 1)[1] for name in ("spam-cards", "spam-investment", "ham-mutt")
    ]
    put(place, ".", a=mails[0], b=mails[1], c=mails[2])
    mutt(place, "<tag-pattern>! ~h ILUG<enter>,S<sync-mailbox><quit>")
    assert (
        learnt(place) == [0, 0]
        and texts(place, ".Spam") == sorted(mails[:2])
        and texts(place, ".") == [mails[2]]
    )
    mutt(place, "<display-message>H<quit>")
    assert learnt(place) == [0, 0, 1]


def test_mutt_shows_why_it_could_not_be_learnt_and_loses_nothing(place, program):
    """classify says so, mutt waits for a key; the mail is moved, whole."""
    spam = MAILS["spam-cards"].split(b"\n", 1)[1]
    for script, words in (
        ("echo classify: out of memory >&2; exit 75", b"out of memory"),
        ("kill -9 $$", b"key"),
        (None, b"not found"),
    ):
        put(place, ".", a=spam)
        if script:
            place.script(script)
        else:
            (place.bin / "classify").unlink()
        shown = mutt(place, "S<sync-mailbox><quit>", until=b"ress any key", then=b" ")
        assert words in shown and b"ress any key" in shown, shown[-2000:]
        assert texts(place, ".Spam") == [spam] and texts(place, ".") == []
        shutil.rmtree(place.box / ".Spam")
        for name in ("cur", "new", "tmp"):
            (place.box / ".Spam" / name).mkdir(parents=True)


# Dovecot's IMAP.


class Imap:
    """A session of Dovecot's imap, past login, as the owner of the place."""

    def __init__(self, place):
        conf = (
            place.recipe("imapsieve.conf")
            .replace("/etc/dovecot/sieve-pipe", str(place.bin))
            .replace("/etc/dovecot/learn-", f"{place.home}/learn-")
        )
        for name in ("learn-spam.sieve", "learn-ham.sieve"):
            (place.home / name).write_text((RECIPES / name).read_text())
        (place.path / "dovecot.conf").write_text(
            f"base_dir = {place.path}/run\nmail_location = maildir:{place.box}\nmail_home ="
            f" {place.home}\nlog_path = {place.home}/log\nssl = no\nprotocols = imap\n"
            f"namespace inbox {{\n  inbox = yes\n}}\n{conf}"
        )
        command = ["/usr/lib/dovecot/imap", "-c", str(place.path / "dovecot.conf")]
        user = pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "nobody", place.home], check=True)
            command, user = [*as_nobody(), *command], "nobody"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**place.env, "USER": user},
        )
        assert self._process.stdout.readline().startswith(b"* PREAUTH ")

    def say(self, command, literal=None):
        """Send a command, and literal after the server has asked for it; its untagged lines."""
        lines = []
        self._process.stdin.write(f"x {command}\r\n".encode())
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith(b"x "):
            assert line, "the server has ended"
            if line.startswith(b"+"):
                self._process.stdin.write(literal + b"\r\n")
                self._process.stdin.flush()
            lines.append(line)
        assert line.startswith(b"x OK"), line
        return lines

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def imap(place):
    for path, package in (
        ("imap", "dovecot-imapd"),
        ("modules/lib95_imap_sieve_plugin.so", "dovecot-sieve"),
    ):
        if not Path("/usr/lib/dovecot", path).exists():
            pytest.skip(f"{package} is not installed: apt install {package}")
    if os.getuid() == 0 and subprocess.run([*as_nobody(), "true"]).returncode:
        pytest.skip("setpriv cannot lend CAP_DAC_OVERRIDE to another user: run as root")
    for name in ("cur", "new", "tmp"):
        (place.box / ".Trash" / name).mkdir(parents=True)
        (place.box / ".Work" / name).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "session", lambda: Imap(place), raising=False)
        yield place


def test_moving_a_mail_to_spam_or_out_of_it_teaches(imap):
    spam = MAILS["spam-cards"]
    put(imap, ".", a=spam)
    with imap.session() as session:
        session.say("SELECT INBOX")
        session.say("MOVE 1 Spam")
        assert learnt(imap) == [0]
        session.say("SELECT Spam")
        session.say("COPY 1 Work")
        assert learnt(imap) == [1]
        session.say("SELECT Work")
        session.say("MOVE 1 Spam")
        assert learnt(imap) == [0]
    assert texts(imap, ".Spam") == [spam, spam] and texts(imap, ".") == texts(imap, ".Work") == []


def test_what_else_happens_to_a_mail_teaches_nothing(imap):
    """It is put into the folder by the filter, moved to the bin or elsewhere, or read."""
    put(imap, ".", a=MAILS["spam-cards"])
    put(imap, ".Spam", b=MAILS["spam-investment"])
    with imap.session() as session:
        session.say("SELECT INBOX")
        session.say("MOVE 1 Work")
        session.say("SELECT Spam")
        session.say("STORE 1 +FLAGS (\\Seen $Junk)")
        session.say("MOVE 1 Trash")
        session.say(
            f"APPEND Spam {{{len(MAILS['spam-search-engines'])}}}", MAILS["spam-search-engines"]
        )
    assert learnt(imap) == []


@pytest.mark.parametrize("trouble", ["missing", *SCRIPTS])
def test_mail_is_moved_where_it_cannot_be_taught(imap, trouble):
    if trouble == "missing":
        (imap.bin / "classify").unlink()
    else:
        imap.script(SCRIPTS[trouble])
    spam = MAILS["spam-cards"]
    put(imap, ".", a=spam)
    with imap.session() as session:
        session.say("SELECT INBOX")
        session.say("MOVE 1 Spam")
    assert texts(imap, ".Spam") == [spam] and texts(imap, ".") == []


def test_moving_teaches_the_file_by_which_a_worker_judges(imap):
    """The form for `--learned-in` that the scripts have as a comment."""
    user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    learned = imap.home / "learned"
    (learned / user).mkdir(parents=True)
    put(imap, ".", a=MAILS["ham-mutt"])
    with imap.session() as session:
        for name in ("learn-spam.sieve", "learn-ham.sieve"):
            text = (RECIPES / name).read_text()
            comment = text[text.index("# pipe") :].replace("# ", "", 1).replace("#  ", "")
            text = re.sub(r"(?m)^pipe .*\n", "", text[: text.index("# Where")]) + comment
            (imap.home / name).write_text(text.replace("/var/lib/sluice/learned", str(learned)))
        session.say("SELECT INBOX")
        session.say("MOVE 1 Spam")
    assert learnt(imap) == [] and (learned / user / "spam.calibration").exists()
    long = [BIN / "classify", "--long", "--no-cache", "--learned-in", learned, "--learned-by"]
    mail = MAILS["ham-mutt"]
    of = lambda who: subprocess.run([*long, who], input=mail, capture_output=True).stdout.split()
    assert of(user)[1] > of("someone-else")[1]
