"""Memory that this process holds beyond the files it maps: activations, keys and values, the interpreter.

/proc/self/status has the most pages that were there at once (VmHWM), those of mapped files among them (RssFile). Once a run has been
through all its weights no more of these come, so the difference is the most that anything else took.
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
    try:
        with open(STATUS) as f:
            fields = dict(line.split(":", 1) for line in f)
        kb = {name: int(fields[name].split()[0]) for name in ("VmHWM", "RssFile")}
    except (OSError, KeyError):
        return None
    return (kb["VmHWM"] - kb["RssFile"]) << 10
