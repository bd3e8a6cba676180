"""What a client asks beyond its message: the name of its socket.

A client may bind its socket to an abstract name (unix(7)) before it connects:

    \\0sluice/1 RANDOM [WORD...]

RANDOM makes the name unique. The words:

    w              answer with further words (classify/further_words.py), if there are any
    e              explain the answer, too
    u=USER         use the calibration of USER (--learned-in)
    c=ADDRESS      the host that delivered the message, for --rules

Words that are not known are passed over. The name is no part of the message, so a message cannot
forge it; a client without one, as those of earlier versions, gets the line of four words. A daemon
of an earlier version does not look at the name and answers with four words.
"""

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

MAGIC = b"\0sluice/1 "
MAX_BYTES = 107  # sun_path without its first byte, which marks an abstract name


class Request(NamedTuple):
    user: str | None = None
    client: str | None = None
    has_words: bool = False
    explains: bool = False


def of(client: "socket.socket") -> Request:
    """Return the Request of a connected client. Raises nothing."""
    try:
        name = client.getpeername()
    except OSError:
        return Request()
    return parse(name) if isinstance(name, bytes) else Request()


def parse(name: bytes) -> Request:
    """Return the Request in the name of a socket."""
    if not name.startswith(MAGIC) or not name.isascii():
        return Request()
    words = name[len(MAGIC) :].decode().split(" ")[1:]
    values = dict(word.partition("=")[::2] for word in words)
    return Request(values.get("u"), values.get("c"), "w" in values, "e" in values)


def name(request: Request) -> bytes:
    """Return a new name for `request`. Raises ValueError if it is too long."""
    words = [os.urandom(4).hex()]
    words += ["w"] * request.has_words + ["e"] * request.explains
    words += [f"u={request.user}"] if request.user else []
    words += [f"c={request.client}"] if request.client else []
    found = MAGIC + " ".join(words).encode()
    if len(found) > MAX_BYTES + 1:
        raise ValueError(f"{len(found)} bytes of a name")
    return found
