"""An SMTP server that stores messages byte for byte, with envelope and time of arrival."""

import collections
import contextlib
import re
import socket
import threading
import time

# sender: text of MAIL FROM between <>; options: what followed it; recipients: of RCPT TO; data: the
# bytes after DATA, dots unstuffed, lines as they came; time: time.time() of the answer to the end
# of data.
Mail = collections.namedtuple("Mail", "sender options recipients data time")
EXTENSIONS = ("mx.example.org", "PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "SIZE 100000000")
PATH = re.compile(r'\w+:<((?:"(?:\\.|[^"\\])*"|[^">])*)>(.*)')


class Sink:
    """Listens inside a private Postfix's network: `with Sink(instance) as sink: ... sink.mails`."""

    def __init__(self, instance, port=2526, extensions=EXTENSIONS):
        self.mails, self.extensions = [], extensions
        self.listener = instance.inside(socket.create_server, ("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept returns
        self.listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as f:
            say(f, "220 sink")
            sender = options = None
            recipients = []
            for line in f:
                word, _, rest = (
                    line.rstrip(b"\r\n").decode("utf-8", "surrogateescape").partition(" ")
                )
                word = word.upper()
                if word in ("EHLO", "HELO"):
                    say(
                        f,
                        *(
                            f"250{' ' if e == self.extensions[-1] else '-'}{e}"
                            for e in self.extensions
                        ),
                    )
                elif word == "MAIL":
                    sender, options = PATH.match(rest).groups()
                    say(f, "250 ok")
                elif word == "RCPT":
                    recipients.append(PATH.match(rest)[1])
                    say(f, "250 ok")
                elif word == "DATA":
                    say(f, "354 go")
                    data = until_dot(f)
                    if data is None:  # cut off: not taken over
                        return
                    self.mails.append(Mail(sender, options.strip(), recipients, data, time.time()))
                    say(f, "250 kept")
                    recipients = []
                elif word == "RSET":
                    recipients = []
                    say(f, "250 ok")
                elif word == "QUIT":
                    say(f, "221 bye")
                    return
                else:
                    say(f, "250 ok")

    def wait(self, n, timeout=60):
        """Wait for the first n messages and return them."""
        end = time.monotonic() + timeout
        while len(self.mails) < n:
            assert time.monotonic() < end, f"{len(self.mails)} of {n} mails came in {timeout} s"
            time.sleep(0.02)
        return self.mails[:n]


def say(f, *lines):
    f.write("".join(line + "\r\n" for line in lines).encode())
    f.flush()


def until_dot(f):
    """The data up to the line of one dot, or None where the connection ended before."""
    lines = []
    for line in f:
        if line == b".\r\n":
            return b"".join(lines)
        lines.append(line[1:] if line.startswith(b".") else line)
    return None
