"""Memory that this process holds beyond the files it maps: activations, keys and values, the interpreter.

/proc/self/status has what is no page of a file: RssAnon, and VmSwap of it that was put out. It has no peak of these, but the most pages
that were there at once (VmHWM), those of mapped files among them (RssFile). Once a run has been through all its weights no
more of these come, so the difference is the most that anything else took.
"""

STATUS, CLEAR = "/proc/self/status", "/proc/self/clear_refs"
RESET_PEAK = "5"


def begin():
    """Forget the peak until now, where the kernel lets us; else it stays that of the whole process."""
    try:
        with open(CLEAR, "w") as f:
            f.write(RESET_PEAK)
    except OSError:
        pass


def peak():
    """Bytes since `begin`; None where there is no such /proc."""
    kib = _status("VmHWM", "RssFile")
    return kib and kib[0] - kib[1] << 10


def now():
    """Bytes; None where there is no such /proc."""
    kib = _status("RssAnon", "VmSwap")
    return kib and sum(kib) << 10


def _status(*names):
    try:
        with open(STATUS) as f:
            fields = dict(line.split(":", 1) for line in f)
        return [int(fields[name].split()[0]) for name in names]
    except (OSError, KeyError):
        return None
