"""The headers that say what was found about a mail: X-Spam-*, forged ones out, ours in.  The rules
are in csrc/mail/marking.c.
"""

from ..kernels import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap


def headers(line: bytes) -> bytes:
    """The headers (bytes, each line with its newline) for a line (bytes) such as "yes 0.9931 0.9386
    3f9a0c1b2d4e5f60" or "error timeout", as `classify --long` and its workers print it. ValueError
    where it is anything else.
    """
    verdict, out = ffi.new("mail_verdict *"), ffi.new("char[]", lib.MARK_BYTES)
    if lib.mark_read(verdict, line, len(line)):
        raise ValueError(f"not a verdict: {line!r}")
    return ffi.buffer(out, lib.mark_headers(out, verdict))[:]


def beginning(mail: "bytes | mmap", head: bytes) -> tuple[bytes, int]:
    """(bytes, n): what to write instead of the first n bytes of the mail (bytes, or anything with a
    buffer), so that it has no X-Spam-* headers of others at top level, and `head` (bytes, of
    `headers`) on top.
    """
    m, data = ffi.new("mail_marking *"), ffi.from_buffer("uint8_t[]", mail)
    lib.mark_mail(m, ffi.NULL, data, len(mail), head, len(head))
    out = ffi.new("uint8_t[]", max(1, m.n_out))
    lib.mark_mail(m, out, data, len(mail), head, len(head))
    return ffi.buffer(out, m.n_out)[:], m.n_read


def mark(mail: bytes, head: bytes) -> bytes:
    """The mail (bytes) with another `beginning`."""
    new, n_read = beginning(mail, head)
    return new + mail[n_read:]
