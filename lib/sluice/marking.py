"""The headers that say what was found about a mail: X-Spam-*, forged ones out, ours in.  The rules are in csrc/marking.c."""
from .kernels import ffi, lib


def headers(line):
    """The headers (bytes, each line with its newline) for a line (bytes) such as "yes 0.9931 0.9386 3f9a0c1b2d4e5f60" or
    "error timeout", as `classify --long` and its workers print it. ValueError where it is anything else."""
    verdict, out = ffi.new("mail_verdict *"), ffi.new("char[]", lib.MARK_BYTES)
    if lib.mark_read(verdict, line, len(line)):
        raise ValueError(f"not a verdict: {line!r}")
    return ffi.buffer(out, lib.mark_headers(out, verdict))[:]


def mark(mail, head):
    """The mail (bytes) without its own X-Spam-* headers at top level, and with `head` (bytes, of `headers`) on top."""
    m = ffi.new("mail_marking *")
    lib.mark_mail(m, ffi.NULL, mail, len(mail), head, len(head))
    out = ffi.new("uint8_t[]", max(1, m.n_out))
    lib.mark_mail(m, out, mail, len(mail), head, len(head))
    return ffi.buffer(out, m.n_out)[:] + mail[m.n_read:]
