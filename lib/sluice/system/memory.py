"""Memory use of this process beyond mapped files, and available memory.

/proc/self/status has the pages that belong to no file: RssAnon, and VmSwap for those swapped out.
It has no peak of these, only the peak of all resident pages (VmHWM), mapped files included
(RssFile). After a run has read all its weights RssFile no longer grows, so the difference is the
peak of all other memory.
"""

STATUS, CLEAR = "/proc/self/status", "/proc/self/clear_refs"
RESET_PEAK = "5"
MACHINE, GROUP, GROUPS = "/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"


def begin() -> None:
    """Reset the peak, if the kernel permits it; otherwise the peak is that of the whole process."""
    try:
        with open(CLEAR, "w") as f:
            f.write(RESET_PEAK)
    except OSError:
        pass


def peak() -> int | None:
    """Return the peak in bytes since `begin`; None without /proc."""
    kib = _status("VmHWM", "RssFile")
    return kib and kib[0] - kib[1] << 10


def now() -> int | None:
    """Return the current use in bytes; None without /proc."""
    kib = _status("RssAnon", "VmSwap")
    return kib and sum(kib) << 10


def available() -> int | None:
    """Return the bytes this process could allocate without swapping, or None if unknown.

    The limits are the memory of the machine, and of the process's groups (cgroup v2), less the
    pages in use that belong to no file.
    """
    kib = _fields(MACHINE, ":", "MemAvailable")
    limits = ([kib[0] << 10] if kib else []) + list(_group_limits())
    return min(limits) if limits else None


def _group_limits():
    """Yield the bytes left in each group that has a limit."""
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
                maximum = f.read().strip()
        except OSError:
            continue
        anonymous = _fields(f"{directory}/memory.stat", " ", "anon")
        if maximum.isdigit() and anonymous:
            yield int(maximum) - anonymous[0]


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
