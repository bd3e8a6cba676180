"""Debian's Postfix as a private instance: the real programs in namespaces of their own, nothing on
the machine touched.

One process (this file, run as `python3 postfix.py DIRECTORY`) is pid 1 of its own mount, network
and pid namespaces. It sees the machine's programs, but /etc is a copy, /var, /run, /opt and /home
are its own, and the only network is a loopback. So `sendmail`, the set-gid `postdrop` and all paths
and defaults are the real ones. When its stdin ends, the kernel kills all in it.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import smtplib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOOLS = ("unshare", "nsenter", "mount", "umount")
PROGRAMS = ("/usr/sbin/postfix", "/usr/sbin/postdrop", "/usr/sbin/sendmail", "/usr/sbin/postmap")
MASTER = "/etc/postfix/master.cf.proto"  # Debian's, as it is before an administrator's changes
CLONE_NEWNET = 0x40000000
SINK_PORT = 2526
MAIN = {
    "compatibility_level": "3.6",
    "myhostname": "mx.example.com",
    "mydestination": "",
    "mynetworks": "127.0.0.0/8",
    "inet_interfaces": "127.0.0.1",
    "inet_protocols": "ipv4",
    "alias_maps": "",
    "alias_database": "",
    "relayhost": f"[127.0.0.1]:{SINK_PORT}",
    "smtp_dns_support_level": "disabled",
    "smtpd_peername_lookup": "no",
    # 127.0.0.1 stands for a stranger: no header is added or changed
    "local_header_rewrite_clients": "",
    "maillog_file": "/var/log/postfix.log",
    # What the tests wait for would take minutes otherwise; the README's page keeps Postfix's own
    # values.
    "queue_run_delay": "5s",
    "minimal_backoff_time": "5s",
    "maximal_backoff_time": "5s",
    "transport_retry_time": "1s",
}


def missing():
    """What keeps a private Postfix from running here, in words for a skip; None where it runs."""
    if os.name != "posix" or os.geteuid():
        return "a private Postfix needs root (namespaces, bind mounts)"
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"missing: {tool}"
    for path in (*PROGRAMS, MASTER):
        if not os.path.exists(path):
            return f"missing: {path} (apt-get install postfix)"
    if subprocess.run(
        ["unshare", "-mnp", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/opt"],
        capture_output=True,
    ).returncode:
        return "unshare -mnp and mount are not permitted here"
    return None


class Postfix:
    """A running private instance. `directory` (0755, its own) holds what belongs to it: etc, var,
    home.

    main: settings over MAIN; master: lines that are appended to master.cf, or a function on its
    text. queue_mib: the queue lies on a tmpfs of that size instead of the directory's file system.
    show: paths that the account `filter` can reach inside wherever they lie.
    """

    def __init__(self, main=None, master="", queue_mib=0, show=(), users=("filter",)):
        self.directory = Path(tempfile.mkdtemp(prefix="sluice-postfix-"))
        self.directory.chmod(0o755)
        self.users, self.show = users, [str(p) for p in show]
        self._make_etc({**MAIN, **(main or {})}, master)
        for name in ("spool/postfix", "lib/postfix", "lib/misc", "log", "mail", "tmp", "cache"):
            (self.directory / "var" / name).mkdir(parents=True)
        (self.directory / "var" / "tmp").chmod(0o1777)
        (self.directory / "var" / "run").symlink_to("/run")
        (self.directory / "home").mkdir()
        shutil.chown(self.directory / "var/lib/postfix", "postfix", "postfix")
        self._enter(queue_mib)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def _make_etc(self, main, master):
        etc = self.directory / "etc"
        subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
        text = Path(MASTER).read_text()
        text = master(text) if callable(master) else text + master
        (etc / "postfix/master.cf").write_text(text)
        (etc / "postfix/main.cf").write_text("".join(f"{k} = {v}\n" for k, v in main.items()))
        for n, user in enumerate(self.users):
            with open(etc / "passwd", "a") as f:
                f.write(f"{user}:x:{61000 + n}:{61000 + n}::/var/lib/{user}:/usr/sbin/nologin\n")
            with open(etc / "group", "a") as f:
                f.write(f"{user}:x:{61000 + n}:\n")

    def _enter(self, queue_mib):
        order = {
            "directory": str(self.directory),
            "queue_mib": queue_mib,
            "show": self.show,
            "users": self.users,
        }
        self.init = subprocess.Popen(
            [
                "unshare",
                "-mnp",
                "--fork",
                "--kill-child",
                sys.executable,
                "-I",
                __file__,
                json.dumps(order),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = self.init.stdout.readline()
        if not line:
            raise RuntimeError("the namespaces of the private Postfix could not be set up")
        self.pid = int(line)
        self.namespace = os.readlink(f"/proc/{self.pid}/ns/pid")

    def close(self):
        """Kill everything inside and remove the directory."""
        self.init.stdin.close()
        self.init.wait(60)
        self.init.stdout.close()
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def argv(self, *argv, user=None):
        """The command line that runs `argv` inside, as root or as `user`."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", *become, *map(str, argv)]

    def run(self, *argv, user=None, check=True, timeout=60, **kwargs):
        """Run a command inside; a CompletedProcess with bytes."""
        kwargs.setdefault("capture_output", True)
        if "input" not in kwargs:
            kwargs.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(self.argv(*argv, user=user), timeout=timeout, cwd="/", **kwargs)
        assert not check or done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done

    def start(self):
        self.run("postfix", "start")

    def stop(self):
        self.run("postfix", "stop")

    def set(self, **settings):
        """Change main.cf and let Postfix read it."""
        self.run("postconf", "-e", *(f"{k}={v}" for k, v in settings.items()))
        self.run("postfix", "reload")

    @contextlib.contextmanager
    def network(self):
        """The calling thread makes its sockets inside; only a thread that ends afterwards may use
        it.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(fd, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            yield
        finally:
            os.close(fd)

    def inside(self, function, *args):
        """function(*args) in a thread that lives in the instance's network; what it returns or
        raises.
        """
        box = []

        def call():
            with self.network():
                try:
                    box.append((function(*args), None))
                except Exception as e:
                    box.append((None, e))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        value, error = box[0]
        if error:
            raise error
        return value

    def smtp(self, port=25, timeout=60):
        """A connected smtplib.SMTP."""
        instance = self

        class Client(smtplib.SMTP):
            def _get_socket(self, host, port, timeout):
                return instance.inside(socket.create_connection, (host, port), timeout)

        return Client("127.0.0.1", port, "client.example.com", timeout)

    def log(self):
        """All that Postfix has logged."""
        try:
            return (
                (self.directory / "var/log/postfix.log")
                .read_bytes()
                .decode("utf-8", "surrogateescape")
            )
        except FileNotFoundError:
            return ""

    def deliveries(self, transport=None):
        """(service, recipient, dsn, status, text) of every delivery attempt in the log, in
        order.
        """
        attempt = re.compile(
            r"postfix/(\S+)\[\d+\]: \w+: to=<(.*?)>,.* dsn=([\d.]+), status=(\w+) \((.*)\)$", re.M
        )
        return [m.groups() for m in attempt.finditer(self.log())]

    def queue(self):
        """What `postqueue -j` says: a list of dicts."""
        return [json.loads(line) for line in self.run("postqueue", "-j").stdout.splitlines()]

    def drain(self, timeout=120):
        """Flush until the queue is empty."""
        end = time.monotonic() + timeout
        while self.queue():
            assert time.monotonic() < end, (
                "the queue is not empty",
                self.queue()[:5],
                self.log()[-3000:],
            )
            self.run("postqueue", "-f", check=False)  # which fails while Postfix starts
            time.sleep(0.3)

    def processes(self):
        """{pid: argument list} of what runs inside, in the machine's pids."""
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/ns/pid") == self.namespace:
                        with open(f"/proc/{name}/cmdline", "rb") as f:
                            found[int(name)] = f.read().decode(errors="replace").split("\0")[:-1]
        return found


# What follows runs as pid 1 inside.


def mount(*argv):
    subprocess.run(["mount", *argv], check=True)


def closed_ancestor(path):
    """The highest directory above `path` that not everybody may pass, or None."""
    for parent in reversed(Path(path).parents):
        if not parent.stat().st_mode & 0o001:
            return str(parent)
    return None


def show_paths(paths):
    """Make `paths` reachable for everybody: over a directory that is closed goes an empty one with
    only them in it.
    """
    closed = {}
    for n, path in enumerate(paths):
        kept = f"/run/.shown/{n}"
        os.makedirs(kept)
        mount("--bind", path, kept)
        if closed_ancestor(path):
            closed.setdefault(closed_ancestor(path), []).append((kept, path))
    for directory, shown in closed.items():
        mount("-t", "tmpfs", "-o", "mode=755", "none", directory)
        for kept, path in shown:
            os.makedirs(path)
            mount("--bind", kept, path)


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = fcntl.ioctl(s, 0x8913, struct.pack("16sH22x", b"lo", 0))  # SIOCGIFFLAGS
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", flags | 1))  # SIOCSIFFLAGS, IFF_UP


def inside(order):
    host_pid = os.readlink("/proc/self")  # this /proc still is the machine's
    directory = order["directory"]
    mount("-t", "tmpfs", "-o", "mode=755", "none", "/run")
    show_paths(order["show"])
    for name in ("etc", "var", "home"):
        mount("--bind", f"{directory}/{name}", f"/{name}")
    mount("-t", "tmpfs", "-o", "mode=755", "none", "/opt")
    mount("-t", "proc", "none", "/proc")
    if order["queue_mib"]:
        mount(
            "-t",
            "tmpfs",
            "-o",
            f"mode=755,size={order['queue_mib']}m",
            "none",
            "/var/spool/postfix",
        )
    for n, user in enumerate(order["users"]):
        os.makedirs(f"/var/lib/{user}", 0o700)
        os.chown(f"/var/lib/{user}", 61000 + n, 61000 + n)
    loopback_up()
    signal.signal(signal.SIGCHLD, reap)
    os.write(1, f"{host_pid}\n".encode())
    while os.read(0, 1):  # until the tests end or die
        pass


def reap(*_):
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    inside(json.loads(sys.argv[1]))
