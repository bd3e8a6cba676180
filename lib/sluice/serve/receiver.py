"""The process that accepts clients and reads their messages: the receiver of `classify --listen`.

It serves all clients at once and hands whole messages to the workers (handing.py), in the order in
which they became complete. So a client that sends slowly, or nothing, costs a descriptor and delays
nobody; a message waits for those before it alone.

    arriving   a client that has not half-closed. After SEND_SECONDS it gets "error timeout".
    waiting    a client whose message is complete. If it leaves, its message is dropped.
    handed     a worker has the connection, and this process has closed it.

Bounds: MAX_CLIENTS clients, or fewer if RLIMIT_NOFILE is low; MAX_WAITING messages that wait;
memory and files, see body.py. At a bound no more clients are accepted until one has gone: further
ones wait in the socket's queue (listener.BACKLOG), and others are refused by the kernel.

The process neither loads the model nor looks at a message. It is a child of the master and outlives
reloads and groups. Commands come through a pipe, a byte each; its end is the end of the master.
"""

import errno
import os
import resource
import select
import socket
import time

from .. import messages
from ..faults import OUR_BUG, Exit
from . import connection, handing
from .body import Body, Memory
from .listener import Listener
from .statistics import File, Statistics

MAX_CLIENTS = 1000
MAX_WAITING = 128
# descriptors: those of the daemon, and of libraries
SPARE = 32
CHUNK_BYTES = 1 << 16
# of one client, and of new ones, before others have their turn
N_READS, N_ACCEPTS = 4, 64
# seconds until a failed accept is tried again
PAUSE = 0.1
TICK = 1.0
FINISH, PRINT = b"f", b"p"  # commands
NAME = "classify-recv"  # in ps and top, at most 15 bytes


class _Client:
    def __init__(self, s: socket.socket, memory: Memory) -> None:
        self.socket, self.body = s, Body(memory)
        self.accepted = self.complete = time.monotonic()

    def close(self) -> None:
        self.socket.close()
        self.body.close()


def run(
    listener: Listener,
    giving: socket.socket,
    commands: int,
    stats: str | None,
    verbose: bool,
) -> None:
    """Receive messages of `listener` and hand them over `giving` until a command ends it.

    commands: the reading end of a pipe. stats: path of the metrics.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/comm", "w") as f:
            f.write(NAME)
    except OSError:
        pass
    try:
        _Receiver(listener, giving, commands, stats, verbose).run()
    except Exception as e:
        # the text of an exception may quote a message
        messages.say(f"internal error: {type(e).__name__} at {connection.where(e)}")
        raise Exit(OUR_BUG) from None


def _max_clients() -> int:
    """As many clients as there are descriptors for; a large message takes a second one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CLIENTS + SPARE
    infinity = resource.RLIM_INFINITY
    if soft != infinity and soft < wanted:
        raised = wanted if hard == infinity else min(hard, wanted)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except OSError:  # a filter of system calls
            pass
    return MAX_CLIENTS if soft == infinity else max(1, min(MAX_CLIENTS, (soft - SPARE) // 2))


class _Receiver:
    def __init__(
        self,
        listener: Listener,
        giving: socket.socket,
        commands: int,
        stats: str | None,
        verbose: bool,
    ) -> None:
        self._listener, self._giving, self._commands = listener, giving, commands
        self._verbose = verbose
        self._max = _max_clients()
        # by descriptor; in the order of accept, and of completion
        self._arriving: dict[int, _Client] = {}
        self._waiting: dict[int, _Client] = {}
        self._new: list[int] = []  # of these, those that are still polled for bytes
        self._memory, self._buffer = Memory(), memoryview(bytearray(CHUNK_BYTES))
        self._statistics, self._file = Statistics(), File(stats)
        self._poll = select.epoll()
        self._poll.register(commands, select.EPOLLIN)
        # Results do not wake this process; they are read at the next event, or after TICK.
        self._poll.register(giving, 0)
        self._room = select.poll()
        self._room.register(giving, select.POLLOUT)
        self._gives = False  # whether room in the queue of the workers is polled for
        self._accepts = False  # whether the listener is polled
        self._pause_end = 0.0  # of accept
        # is_drained: while finishing, no client waits in the socket's queue any more
        self._is_finishing = self._is_drained = self._is_over = False

    def run(self) -> None:
        while not self._is_over:
            self._switch()
            if self._is_finishing and not (self._arriving or self._waiting or self._accepts):
                return
            events = dict(self._poll.poll(self._timeout()))
            events.pop(self._giving.fileno(), 0)
            accepted = events.pop(self._listener.socket.fileno(), 0)
            commanded = events.pop(self._commands, 0)
            # Clients first: giving and accepting reuse descriptors, whose events would be old.
            for fd, event in events.items():
                self._attend(fd, event)
            self._expire()
            self._give()
            if accepted:
                self._accept(bool(accepted & select.EPOLLHUP))
                self._give()
            for result in handing.results(self._giving):
                self._statistics.add_result(result)
            if commanded:
                self._obey()
            if self._file.left() <= 0:
                self._file.write(self._statistics.text(len(self._arriving), len(self._waiting)))

    def _timeout(self) -> float:
        """Seconds until something is due."""
        now = time.monotonic()
        due = min(TICK, self._file.left())
        for client in self._arriving.values():  # the first is the oldest
            due = min(due, client.accepted + connection.SEND_SECONDS - now)
            break
        if self._pause_end > now:
            due = min(due, self._pause_end - now)
        return max(0.0, due)

    def _has_room(self) -> bool:
        n_waiting = len(self._waiting)
        return len(self._arriving) + n_waiting < self._max and n_waiting < MAX_WAITING

    def _switch(self) -> None:
        """Poll the listener while a client may come, and the queue of the workers while a message
        waits.
        """
        has_room = self._has_room()
        is_open = not (self._is_finishing and (self._listener.passed or self._is_drained))
        is_paused = time.monotonic() < self._pause_end
        accepts = is_open and has_room and not is_paused
        if accepts and not self._accepts:
            self._poll.register(self._listener.socket, select.EPOLLIN)
        elif self._accepts and not accepts:
            self._poll.unregister(self._listener.socket)
            self._statistics.n_full += is_open
        self._accepts = accepts
        gives = bool(self._waiting)
        if gives != self._gives:
            self._gives = gives
            self._poll.modify(self._giving, select.EPOLLOUT if gives else 0)

    def _accept(self, is_shut: bool) -> None:
        for _ in range(N_ACCEPTS):
            if not self._has_room():
                return
            try:
                s, _ = self._listener.socket.accept()
            except OSError as e:
                if e.errno == errno.ECONNABORTED:
                    continue
                if e.errno not in (errno.EAGAIN, errno.EINVAL):
                    # no descriptor or memory is left: polling again at once would spin
                    self._pause_end = time.monotonic() + PAUSE
                elif self._is_finishing:
                    self._is_drained = True
                elif is_shut:  # the master is about to say so
                    self._pause_end = time.monotonic() + PAUSE
                return
            s.setblocking(False)
            fd = s.fileno()
            client = self._arriving[fd] = _Client(s, self._memory)
            self._poll.register(fd, select.EPOLLIN)
            self._read(fd, client)

    def _attend(self, fd: int, event: int) -> None:
        """Handle what happened to a client."""
        client = self._arriving.get(fd)
        if event & (select.EPOLLHUP | select.EPOLLERR):  # it has closed, and will read no answer
            self._end(fd, client or self._waiting[fd], "left")
        elif client:
            self._read(fd, client)

    def _read(self, fd: int, client: _Client) -> None:
        for _ in range(N_READS):
            try:
                n = client.socket.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                return self._end(fd, client, "left")
            try:
                if n:
                    client.body.add(self._buffer[:n])
                    continue
                client.body.finish()
            except (OSError, MemoryError):  # no space, or no descriptor
                return self._end(fd, client, "memory")
            if not client.body.n_bytes:
                return self._end(fd, client, "empty")
            client.complete = time.monotonic()
            del self._arriving[fd]
            self._waiting[fd] = client
            self._new.append(fd)
            return

    def _expire(self) -> None:
        """End the clients that have had SEND_SECONDS."""
        end = time.monotonic() - connection.SEND_SECONDS
        late = []
        for fd, client in self._arriving.items():
            if client.accepted > end:
                break
            late.append((fd, client))
        for fd, client in late:
            self._end(fd, client, "timeout")

    def _give(self) -> None:
        """Hand messages to the workers, the oldest first, as far as their queue has room."""
        while self._waiting and self._room.poll(0):
            fd, client = next(iter(self._waiting.items()))
            try:
                file, n_bytes = client.body.file()
                handing.give(self._giving, file, fd, client.accepted, client.complete, n_bytes)
            except BlockingIOError:
                break
            except (OSError, MemoryError):
                self._end(fd, client, "memory")
            else:
                self._forget(fd, client)
        for fd in self._new:
            if fd in self._waiting:
                self._poll.modify(fd, 0)  # EPOLLHUP alone: whether it leaves
        self._new.clear()

    def _end(self, fd: int, client: _Client, outcome: str) -> None:
        """Answer a client that no worker answers, and close its connection."""
        if outcome != "left":
            try:
                client.socket.send(f"error {outcome}\n".encode())
            except OSError:
                outcome = "left"
        self._statistics.add(outcome)
        if self._verbose:
            ms = 1e3 * (time.monotonic() - client.accepted)
            n_bytes = client.body.n_bytes
            messages.report(pid=os.getpid(), error=outcome, bytes=n_bytes, tokens=0, ms=ms)
        self._forget(fd, client)

    def _forget(self, fd: int, client: _Client) -> None:
        # Closing is not enough: epoll reports the connection as long as a worker has it.
        self._poll.unregister(fd)
        self._arriving.pop(fd, None)
        self._waiting.pop(fd, None)
        client.close()

    def _obey(self) -> None:
        """Read commands; the end of the pipe is the end of the master."""
        given = os.read(self._commands, 64)
        self._is_over = not given
        if FINISH in given:
            self._is_finishing = True
        if PRINT in given:
            self._statistics.say(len(self._arriving), len(self._waiting))
