"""The socket of classify --listen: its mode, who takes it over, what systemd passes, and the
units.
"""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest
from conftest import BIN, ROOT, run
from worker_client import ask, connect, loop, receive
from worker_process import DATA, ENV, long_lines

from sluice.serve.listener import MAX_PATH

UNITS = ROOT / "configs" / "systemd"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.mark.full
def test_socket_has_its_mode(start, tmp_path):
    for argv, mode in (((), 0o600), (("--mode", "0660"), 0o660), (("--mode", "666"), 0o666)):
        w = start(*argv)
        assert stat.S_IMODE(w.path.stat().st_mode) == mode
        w.end()
        assert not w.path.exists()
    assert all(name.endswith(".log") for name in os.listdir(tmp_path))


@pytest.mark.full
def test_listen_path_that_is_not_a_socket_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "s")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    here = sorted(os.listdir(tmp_path))
    for name in ("file", "dir", "link", "fifo", "none/s", "file/s", "open/s", "x" * (MAX_PATH + 1)):
        done = run("classify", "--listen", tmp_path / name, "--no-cache", env=ENV)
        assert (
            done.returncode == 73 and done.stderr.count(b"\n") == 1 and name.encode() in done.stderr
        ), (name, done.stderr)
    assert (
        sorted(os.listdir(tmp_path)) == here
        and (tmp_path / "file").read_text() == "mine"
        and os.listdir(tmp_path / "open") == []
    )


def test_listener_that_cannot_start_reports_and_exits(tmp_path):
    (tmp_path / "q.yaml").write_text("answers: 1\n")
    for argv, code in (
        (("-q", "q.yaml"), 65),
        (("-q", "none.yaml"), 66),
        (("-m", "none"), 66),
        (("-m", "q.yaml"), 65),
        (("-q", "urgent"), 64),
    ):
        done = run("classify", "--listen", "s", "--no-cache", *argv, env=ENV, cwd=tmp_path)
        assert done.returncode == code and done.stderr.count(b"\n") == 1, (argv, done.stderr)
        assert os.listdir(tmp_path) == ["q.yaml"]


@pytest.mark.full
def test_another_takes_the_socket_over(start):
    first = start()
    inode = first.path.stat().st_ino
    assert first.ask(DATA[0]) == long_lines()[0]
    second = start(path=first.path)
    first.process.wait(60)
    assert first.process.returncode == 0 and first.path.stat().st_ino != inode
    assert second.ask(DATA[0]) == long_lines()[0]
    first.path.unlink()
    second.process.wait(60)
    assert second.process.returncode == 74


@pytest.mark.full
def test_socket_persists_while_workers_are_replaced(start):
    lines, w = long_lines(), start()
    followers, lock = [], threading.Lock()

    def follow(i):
        if i in (20, 60, 100):
            with lock:  # one after the other
                followers.append(start(path=w.path))
        return i >= 140

    found = loop(w.path, DATA, 3, follow)
    assert all(reply == lines[i] for i, reply, _ in found)
    for one in (w, *followers[:-1]):
        assert one.process.wait(60) == 0
    assert followers[-1].ask(DATA[0]) == lines[0]


def activated(path, s, *argv, n_fds="1"):
    """As systemd starts it, with `s` as descriptor 3."""
    program = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3);"
        " os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2]);"
        " os.execv(sys.argv[3], sys.argv[3:])"
    )
    os.set_inheritable(s.fileno(), True)
    return [
        sys.executable,
        "-I",
        "-c",
        program,
        str(s.fileno()),
        n_fds,
        str(BIN / "classify"),
        "--listen",
        str(path),
        "--workers",
        "2",
        "--no-cache",
        *argv,
    ]


@pytest.mark.full
def test_systemd_socket_is_used_and_kept(tmp_path):
    path, note = tmp_path / "s", tmp_path / "note"
    s, told = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with s, told:
        s.bind(str(path))
        s.listen(50)
        told.bind(str(note))
        told.settimeout(60)
        for _ in range(2):
            waiting = connect(path)  # before anybody serves
            waiting.sendall(DATA[0])
            waiting.shutdown(socket.SHUT_WR)
            with subprocess.Popen(
                activated(path, s),
                env={**ENV, "NOTIFY_SOCKET": str(note)},
                close_fds=False,
                stderr=subprocess.PIPE,
            ) as p:
                try:
                    assert told.recv(999).split(b"\n")[0] == b"READY=1"
                    assert receive(waiting) == long_lines()[0] == ask(path, DATA[0])
                    waiting.close()
                    p.send_signal(signal.SIGHUP)
                    reloading = told.recv(999).split(b"\n")
                    assert reloading[0] == b"RELOADING=1" and reloading[1].startswith(
                        b"MONOTONIC_USEC="
                    )
                    assert told.recv(999).split(b"\n")[0] == b"READY=1"
                    assert ask(path, DATA[0]) == long_lines()[0]
                    p.terminate()
                    assert told.recv(999) == b"STOPPING=1"
                    assert p.communicate(timeout=60) == (None, b"") and p.returncode == 0
                finally:
                    p.kill()
            assert path.exists()


@pytest.mark.full
def test_systemd_sockets_are_checked(tmp_path):
    rows = []
    with (
        socket.socket(socket.AF_UNIX) as other,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        socket.socket(socket.AF_UNIX) as deaf,
        socket.socket() as internet,
        open(os.devnull) as file,
        socket.socket(socket.AF_UNIX) as ok,
    ):
        for s, name in ((other, "other"), (deaf, "s1"), (datagram, "s2"), (ok, "s3")):
            s.bind(str(tmp_path / name))
        other.listen()
        ok.listen()
        internet.bind(("127.0.0.1", 0))
        internet.listen()
        rows = (
            (other, 64, "1"),
            (deaf, 65, "1"),
            (datagram, 65, "1"),
            (internet, 65, "1"),
            (file, 65, "1"),
            (ok, 64, "2"),
            (ok, 64, "x"),
        )
        for s, code, n_fds in rows:
            done = subprocess.run(
                activated(tmp_path / "s", s, n_fds=n_fds),
                env=ENV,
                close_fds=False,
                capture_output=True,
                timeout=60,
            )
            assert done.returncode == code and done.stderr.count(b"\n") == 1, done.stderr
    script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&-'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(BIN / "classify"), "--listen", str(tmp_path / "s")],
        env=ENV,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 65


# The units.


def test_systemd_units_are_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    # the milter need not be built
    here = (
        ("/opt/sluice/bin/classify", str(BIN / "classify")),
        ("/opt/sluice/bin/mail-milter", "/bin/true"),
    )
    for path in UNITS.iterdir():
        text = path.read_text()
        for installed, there in here:
            text = text.replace(installed, there)
        assert "/opt/sluice" not in text and all(
            (ROOT / page).is_file() for page in re.findall("file:/usr/local/src/sluice/(.*)", text)
        )
        (tmp_path / path.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for path in tmp_path.glob("*.service"):
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(path)],
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout.decode()[-3000:]
