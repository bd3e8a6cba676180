"""A client of `classify --listen`, and a benchmark of concurrent requests:

    .venv/bin/python3 tests/helpers/worker_client.py [-c CLIENTS] [-s SECONDS] [-i IDLE] SOCKET
    MAIL... | ARCHIVE.tar.xz

prints messages/s and times of a message, from connect to the end of the answer, in ms. IDLE more
clients begin a message and never end it; each that is sent away comes again.
"""

import argparse
import contextlib
import select
import socket
import tarfile
import threading
import time


def connect(path, timeout=60):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(str(path))  # waits where the backlog is full
    s.settimeout(timeout)
    return s


def ask(path, data, timeout=60):
    """The worker's answer to a message, as bytes; b"" if its process died."""
    with connect(path, timeout) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return receive(s)


def receive(s):
    """All that comes until the end."""
    parts = []
    try:
        while part := s.recv(4096):
            parts.append(part)
    except ConnectionResetError:  # it died with what we sent unread
        pass
    return b"".join(parts)


def loop(path, mails, n_clients, is_over, ask=ask):
    """[(index of the message, reply, seconds)] of `n_clients` threads.

    They send one message after another until is_over(number sent).
    """
    out, lock, count = [], threading.Lock(), iter(range(1 << 60))

    def work():
        while True:
            with lock:
                i = next(count)
            if is_over(i):
                return
            began = time.monotonic()
            try:
                reply = ask(path, mails[i % len(mails)])
            except OSError as e:
                reply = e
            out.append((i % len(mails), reply, time.monotonic() - began))

    threads = [threading.Thread(target=work) for _ in range(n_clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


@contextlib.contextmanager
def idle_clients(path, n):
    """Keep n clients connected that have sent the beginning of a message."""

    def begin():
        s = connect(path)
        s.sendall(b"From: a\n")
        return s

    idle, over = [begin() for _ in range(n)], threading.Event()

    def keep():
        poll = select.poll()
        for s in idle:
            poll.register(s, select.POLLIN)
        while not over.is_set():
            for fd, _ in poll.poll(100):
                (i,) = [i for i, s in enumerate(idle) if s.fileno() == fd]
                poll.unregister(fd)
                idle[i].close()
                idle[i] = begin()
                poll.register(idle[i], select.POLLIN)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for s in idle:
            s.close()


def read_mails(paths, n_max=400):
    """The messages at `paths`, or a sample of those of an archive, at most n_max."""
    if not paths[0].endswith(".tar.xz"):
        return [open(path, "rb").read() for path in paths]
    with tarfile.open(paths[0]) as archive:
        found = [
            archive.extractfile(m).read()
            for m in archive
            if m.isfile() and m.size and "readme" not in m.name.lower()
        ]
    return found[:: max(1, len(found) // n_max)][:n_max]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-c", type=int, default=4, metavar="CLIENTS")
    parser.add_argument("-s", type=float, default=10, metavar="SECONDS")
    parser.add_argument("-i", type=int, default=0, metavar="IDLE")
    parser.add_argument("socket")
    parser.add_argument("mails", nargs="+")
    args = parser.parse_args()
    mails = read_mails(args.mails)
    loop(args.socket, mails, args.c, lambda i: i >= 2 * args.c)  # warm
    with idle_clients(args.socket, args.i):
        began = time.monotonic()
        found = loop(args.socket, mails, args.c, lambda i: time.monotonic() > began + args.s)
        seconds = time.monotonic() - began
    ms = sorted(1e3 * t for _, _, t in found)
    bad = sum(not isinstance(reply, bytes) or len(reply.split()) != 4 for _, reply, _ in found)
    print(
        f"clients={args.c} idle={args.i} mails={len(found)} errors={bad} per_s={len(found) / seconds:.1f}"
        f" p50_ms={ms[len(ms) // 2]:.1f} p99_ms={ms[len(ms) * 99 // 100]:.1f} max_ms={ms[-1]:.1f}"
    )


if __name__ == "__main__":
    main()
