"""Memory that this process holds beyond the files it maps: activations, keys and values, the
interpreter; and what it could have.

/proc/self/status has what is no page of a file: RssAnon, and VmSwap of it that was put out. It has
no peak of these, but the most pages that were there at once (VmHWM), those of mapped files among
them (RssFile). Once a run has been through all its weights no more of these come, so the difference
is the most that anything else took.
"""

STATUS, CLEAR = "/proc/self/status", "/proc/self/clear_refs"
RESET_PEAK = "5"
MACHINE, GROUP, GROUPS = "/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"


def begin() -> None:
    """Forget the peak until now, where the kernel lets us; else it stays that of the whole
    process.
    """
    try:
        with open(CLEAR, "w") as f:
            f.write(RESET_PEAK)
    except OSError:
        pass


def peak() -> int | None:
    """Bytes since `begin`; None where there is no such /proc."""
    kib = _status("VmHWM", "RssFile")
    return kib and kib[0] - kib[1] << 10


def now() -> int | None:
    """Bytes; None where there is no such /proc."""
    kib = _status("RssAnon", "VmSwap")
    return kib and sum(kib) << 10


def available() -> int | None:
    """Bytes that this process could have more without swapping: of the machine, and of the groups
    that it is in (cgroup v2), less what is no page of a file there. None where no one says.
    """
    kib = _fields(MACHINE, ":", "MemAvailable")
    limits = ([kib[0] << 10] if kib else []) + list(_group_limits())
    return min(limits) if limits else None


def _group_limits():
    """Yield what each group with a limit has left."""
    try:
        with open(GROUP) as f:
            path = next((line.partition("::")[2] for line in f if line.startswith("0::")), "")
    except OSError:
        return
    parts = [part for part in path.strip().split("/") if part]
    for n in range(len(parts) + 1):
        directory = "/".join([GROUPS, *parts[:n]])
        try:
            with open(f"{directory}/memory.max") as f:
                most = f.read().strip()
        except OSError:
            continue
        held = _fields(f"{directory}/memory.stat", " ", "anon")
        if most.isdigit() and held:
            yield int(most) - held[0]


def _status(*names):
    return _fields(STATUS, ":", *names)


def _fields(path, mark, *names):
    """[number before any unit] of the lines "name<mark>number" of a file, in the order of `names`;
    None where one is missing.
    """
    try:
        with open(path) as f:
            fields = dict(line.split(mark, 1) for line in f if mark in line)
        return [int(fields[name].split()[0]) for name in names]
    except (OSError, KeyError):
        return None
