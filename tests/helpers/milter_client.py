"""The mail server's side of the milter protocol, version 6, as Postfix speaks it, in plain bytes.

A packet is its length (4 bytes, big-endian), a command letter and data. Lists and letters:
include/libmilter/mfdef.h.
"""

import re
import socket
import struct

ADD_HEADERS, CHANGE_HEADERS = 0x01, 0x10
NO_CONNECT, NO_HELO, NO_RCPT, NO_UNKNOWN, NO_DATA, SKIP = 0x01, 0x02, 0x08, 0x100, 0x200, 0x400
NR_HEADER, NR_CONNECT, NR_MAIL, NR_EOH, LEADING_BLANKS = 0x80, 0x1000, 0x4000, 0x40000, 0x100000
POSTFIX_STEPS = 0x1FFFFF  # all of version 6
POSTFIX_ACTIONS = 0x1FF
CHUNK = 65535
MOST_PROGRESS = 60  # reports in a verdict; mail-milter sends one in 10 s, for 240 s at most
HEADER = re.compile(rb"([!-9;-~]+)[ \t]*:((?:[^\n]|\n(?=[ \t]))*)\n")


class Milter:
    """A connection to the milter at `address` (a path, or a port on 127.0.0.1), negotiated and past
    connect and HELO.
    """

    def __init__(
        self, address, steps=POSTFIX_STEPS, actions=POSTFIX_ACTIONS, timeout=60, client="192.0.2.1"
    ):
        if isinstance(address, int):
            self.socket = socket.create_connection(("127.0.0.1", address), timeout)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(str(address))
        self.file = self.socket.makefile("rb")
        self.send(b"O", struct.pack(">III", 6, actions, steps))
        letter, data = self.receive()
        assert letter == b"O", (letter, data)
        self.version, self.actions, self.steps = struct.unpack(">III", data[:12])
        assert self.actions & ~actions == 0 and self.steps & ~steps == 0
        if not self.steps & NO_CONNECT:
            family = b"6" if ":" in client else b"4"
            address = family + struct.pack(">H", 4321) + client.encode() + b"\0" if client else b"U"
            data = b"client.example.com\0" + address
            self.step(b"C", data, NR_CONNECT)
        if not self.steps & NO_HELO:
            self.step(b"H", b"client.example.com\0")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self, quit=True):
        if quit:
            try:
                self.send(b"Q")
            except OSError:
                pass
        self.file.close()
        self.socket.close()

    def send(self, letter, data=b""):
        self.socket.sendall(packet(letter, data))

    def receive(self):
        """The next (letter, data) from the milter; EOFError where it closed."""
        size = self.file.read(4)
        if len(size) < 4:
            raise EOFError("the milter closed the connection")
        body = self.file.read(struct.unpack(">I", size)[0])
        return body[:1], body[1:]

    def step(self, letter, data=b"", no_reply=0):
        """Send an event; its reply must be "continue", or "skip" for the body: which."""
        self.send(letter, data)
        if no_reply & self.steps:
            return b"c"
        reply, data = self.receive()
        assert reply in (b"c", b"s"), (letter, reply, data)
        return reply

    def envelope(self, queue_id="4X1234567z", **macros):
        """MAIL and RCPT; macros: of MAIL, such as auth_type="PLAIN"."""
        macros = {"mail_addr": "sender@example.com", **macros}
        pairs = b"".join(f"{{{k}}}\0{v}\0".encode() for k, v in macros.items())
        self.send(b"D", b"M" + pairs)
        self.step(b"M", b"<sender@example.com>\0", NR_MAIL)
        if not self.steps & NO_RCPT:
            self.step(b"R", b"<recipient@example.org>\0")
        if not self.steps & NO_DATA:
            self.step(b"T")
        self.queue_id = queue_id

    def content(self, mail):
        """Headers and body of a message (bytes, lines that end in LF)."""
        headers, body = split(mail)
        for name, value in headers:
            if not self.steps & LEADING_BLANKS:
                value = value.lstrip(b" \t")
            self.step(b"L", name + b"\0" + value + b"\0", NR_HEADER)
        self.step(b"N", b"", NR_EOH)
        body = body.replace(b"\n", b"\r\n")
        for at in range(0, len(body), CHUNK):
            if self.step(b"B", body[at : at + CHUNK]) == b"s":
                break

    def end(self):
        """End of message: the requests of the milter as [(letter, data)], without the final reply,
        which must be an acceptance, and without reports of progress, which are counted in
        n_progress.
        """
        self.send(b"D", b"Ei\0" + self.queue_id.encode() + b"\0")
        self.send(b"E")
        edits, self.n_progress = [], 0
        while True:
            letter, data = self.receive()
            if letter in (b"c", b"a"):
                return edits
            assert letter in (b"h", b"i", b"m", b"p"), (letter, data)
            if letter == b"p":
                self.n_progress += 1
                assert self.n_progress < MOST_PROGRESS, "reports of progress, and no verdict"
            else:
                edits.append((letter, data))

    def judge(self, mail, **macros):
        """Everything for one mail: the headers after the milter's edits, [(name, value)] as Postfix
        would have them.
        """
        self.envelope(**macros)
        self.content(mail)
        return edited(split(mail)[0], self.end(), bool(self.steps & LEADING_BLANKS))

    def abort(self):
        """As after RSET."""
        self.send(b"A")


def packet(letter, data=b""):
    return struct.pack(">I", 1 + len(data)) + letter + data


def split(mail):
    """([(name, value)], body) as Postfix sends them.

    Spaces before the colon are lost, those after it are part of the value.
    """
    headers, at = [], 0
    while m := HEADER.match(mail, at):
        headers.append((m[1], m[2]))
        at = m.end()
    if mail[at : at + 1] == b"\n":
        at += 1
    return headers, mail[at:]


def edited(headers, edits, with_blank):
    """The headers after inserting and deleting as cleanup_milter.c does."""
    headers = list(headers)
    for letter, data in edits:
        index = struct.unpack(">I", data[:4])[0]
        name, value = data[4:-1].split(b"\0")
        if letter == b"i":
            headers.insert(index, (name, value if with_blank else b" " + value))
            continue
        assert letter == b"m" and value == b"", (letter, data)
        at = [i for i, (n, _) in enumerate(headers) if n.lower() == name.lower()]
        del headers[at[index - 1]]
    return headers
