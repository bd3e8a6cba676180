"""How many threads a command starts that was not told: made-up /proc and /sys, and this machine's
under taskset and a quota.
"""

import os
import subprocess
import sys
from contextlib import suppress

import pytest
from conftest import ROOT

from sluice.kernels import lib


@pytest.fixture
def machine(tmp_path):
    """machine(cpus, files): the default on such a machine; files {"proc/..." or "sys/...": its
    text}.
    """

    def default(cpus, files=(), **more):
        for name, text in {**dict(files), **more}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        cpus = list(cpus)
        return lib.threads_default(
            os.fsencode(tmp_path / "proc"), os.fsencode(tmp_path / "sys"), cpus, len(cpus)
        )

    return default


CPU = "sys/devices/system/cpu/"


def siblings(groups):
    """thread_siblings_list of each CPU of "0-1 2,6"."""
    files = {}
    for group in groups.split():
        for part in group.split(","):
            first, _, last = part.partition("-")
            for cpu in range(int(first), int(last or first) + 1):
                files[f"{CPU}cpu{cpu}/topology/thread_siblings_list"] = group + "\n"
    return files


def capacities(*values):
    return {f"{CPU}cpu{i}/cpu_capacity": f"{value}\n" for i, value in enumerate(values)}


def test_without_files_it_is_the_affinity_mask(machine):
    assert [machine(range(n)) for n in (0, 1, 2, 96)] == [1, 1, 2, 96]
    assert machine([5, 9, 8191, 8192, 1 << 30, -1]) == 3


@pytest.mark.parametrize(
    "groups, cpus, n",
    [
        ("0-1 2-3", range(4), 2),
        ("0,4 1,5 2,6 3,7", range(8), 4),
        ("0,4 1,5 2,6 3,7", [4, 5], 2),
        ("0,4 1,5 2,6 3,7", [1, 5], 1),
        ("0 1 2 3", range(4), 4),
        ("0-1 2-3 4 5", range(6), 4),
        ("0-3 4-7", range(8), 2),
    ],
)
def test_siblings_are_one_core(machine, groups, cpus, n):
    assert machine(cpus, siblings(groups)) == n
    assert machine(cpus, {CPU + "smt/active": "1\n"}) == n
    assert machine(cpus, {CPU + "smt/active": "0\n"}) == len(cpus)  # one look is enough


def test_fast_cores_of_intel(machine):
    """Four cores of two threads, eight small ones."""
    files = {
        **siblings("0-1 2-3 4-5 6-7 8 9 10 11 12 13 14 15"),
        "sys/devices/cpu_core/cpus": "0-7\n",
        "sys/devices/cpu_atom/cpus": "8-15\n",
    }
    assert machine(range(16), files) == 4
    assert machine([0, 1, 2, 9, 10], files) == 2
    assert machine(range(9, 15), files) == 6  # a mask of small ones only


@pytest.mark.parametrize(
    "values, cpus, n",
    [
        ((530, 530, 530, 530, 1024, 1024, 1024, 1024), range(8), 4),
        ((714,) * 4 + (1024,) * 4, range(8), 4),
        ((325,) * 4 + (800,) * 3 + (1024,), range(8), 4),
        ((325,) * 4 + (1024,), range(4), 4),
        ((1024,) * 6, range(6), 6),
        ((1009, 1024, 1024, 1009), range(4), 4),
    ],
)
def test_fast_cores_of_arm(machine, values, cpus, n):
    assert machine(cpus, capacities(*values)) == n


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-5",
        "9" * 40,
        "\0",
        b"\xff\xfe",
        "0-",
        "0-99999999999999999999",
        "3-1",
        "4294967296",
    ],
)
def test_malformed_files_of_cpus_say_nothing(machine, text):
    assert machine(range(4), capacities(*[text] * 4)) == 4
    # one bad among good ones
    assert (
        machine(range(4), {**capacities(512, 512, 1024, 1024), f"{CPU}cpu1/cpu_capacity": text})
        == 4
    )
    assert (
        machine(range(4), {f"{CPU}cpu{i}/topology/thread_siblings_list": text for i in range(4)})
        == 4
    )
    assert machine(range(4), {"sys/devices/cpu_core/cpus": text}) == 4


@pytest.mark.parametrize("text", ["3x", "0-1,", "0-1 ", "2,x", "0,3-1"])
def test_lists_that_begin_well_say_nothing_either(machine, text):
    assert machine(range(4), {"sys/devices/cpu_core/cpus": text}) == 4
    assert (
        machine(range(4), {f"{CPU}cpu{i}/topology/thread_siblings_list": text for i in range(4)})
        == 4
    )
    assert machine(range(4), {"sys/devices/cpu_core/cpus": text[0] + "\n"}) == 1


def test_missing_core_capacity_is_ignored(machine):
    files = capacities(*[512] * 4, *[1024] * 4)
    del files[f"{CPU}cpu1/cpu_capacity"]
    assert machine(range(8), files) == 8


V2, GROUP = "sys/fs/cgroup/", {"proc/self/cgroup": "0::/user.slice/app.scope\n"}


@pytest.mark.parametrize(
    "text, n",
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("1000 100000\n", 1),
        ("100000 100000", 1),
        ("300001 100000\n", 4),
        ("9999999 100000\n", 8),
        ("800000 100000", 8),
        ("200000 50000\n", 4),
        ("", 8),
        ("200000", 8),
        ("200000 0\n", 8),
        ("0 100000\n", 8),
        ("-1 100000\n", 8),
        ("200000 100000 1\n", 8),
        ("two 100000\n", 8),
        ("9" * 30 + " 1\n", 8),
        ("1 " + "9" * 30, 1),
        ("200000 100000x", 8),
        (b"\xff" * 9000, 8),
    ],
)
def test_quota_of_version_2(machine, text, n):
    assert machine(range(8), {**GROUP, V2 + "user.slice/app.scope/cpu.max": text}) == n


def test_minimum_quota_of_all_parent_groups_counts(machine):
    assert machine(range(8), {**GROUP, V2 + "user.slice/app.scope/cpu.max": "500000 100000\n"}) == 5
    assert machine(range(8), {V2 + "user.slice/cpu.max": "300000 100000\n"}) == 3
    assert machine(range(8), {V2 + "cpu.max": "200000 100000\n"}) == 2
    assert machine(range(8), {V2 + "user.slice/other/cpu.max": "100000 100000\n"}) == 2  # not ours


def test_quota_where_cores_are_fewer(machine):
    files = {**GROUP, V2 + "user.slice/cpu.max": "300000 100000\n", **siblings("0-1 2-3 4-5 6-7")}
    assert [machine(range(n), files) for n in (2, 4, 6, 8)] == [1, 2, 3, 3]


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize("line", ["3:cpu:", "3:cpu,cpuacct:", "3:cpuacct,cpu:"])
@pytest.mark.parametrize(
    "quota, period, n",
    [(150000, 100000, 2), (-1, 100000, 8), (50000, 100000, 1), (200000, 0, 8), ("", 5, 8)],
)
def test_quota_of_version_1(machine, mount, line, quota, period, n):
    group = f"sys/fs/cgroup/{mount}/a/b/"
    files = {
        "proc/self/cgroup": f"5:cpuset:/\n{line}/a/b\n1:name=systemd:/x\n0::/\n",
        group + "cpu.cfs_quota_us": f"{quota}\n",
        group + "cpu.cfs_period_us": f"{period}\n",
    }
    assert machine(range(8), files) == n


def test_other_controllers_have_no_quota(machine):
    files = {
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "100000\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
    }
    assert (
        machine(
            range(8), files, **{"proc/self/cgroup": "3:cpuset:/a\n2:cpuacct:/a\n1:name=cpu:/a\n"}
        )
        == 8
    )
    assert machine(range(8), files, **{"proc/self/cgroup": "3:cpuset,cpu:/a\n"}) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/docker/0123abcd",
        "/../../system.slice/x",
        "/",
        "/..",
        "/kubepods/" + "x" * 5000,
        "",
        "no slash",
    ],
)
def test_cgroup_of_a_container_is_the_root(machine, path):
    """/proc/self/cgroup may have a path of the host; what is mounted is the group."""
    long = 5000 < len(path)
    assert machine(
        range(8), {"proc/self/cgroup": f"0::{path}\n", V2 + "cpu.max": "200000 100000\n"}
    ) == (8 if long else 2)
    files = {
        "proc/self/cgroup": f"4:cpu,cpuacct:{path}\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert machine(range(8), files) == (8 if long else 3)


def test_cgroup_path_stays_in_the_mount(machine):
    assert (
        machine(
            range(8), {"proc/self/cgroup": "0::/../up\n", "sys/fs/up/cpu.max": "100000 100000\n"}
        )
        == 8
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        ":",
        "::",
        "0::",
        "0:cpu\n:/x",
        "0::/a",
        b"\xff:\xff:\xff\n0:\0:/",
        "0::/a\n" * 3000,
    ],
)
def test_malformed_lists_of_groups_say_nothing(machine, text):
    assert machine(range(8), {"proc/self/cgroup": text}) == 8


# ---- this machine ----

COUNT = (
    "from sluice.model import model; from sluice.kernels import lib; model.start({});"
    " print(lib.threads_count())"
)


def count(*prefix, threads=None, **kwargs):
    """Threads of a process that starts as commands do."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", COUNT.format(threads)],
        capture_output=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "lib"), **os.environ},
        **kwargs,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return int(done.stdout)


def test_system_without_affinity_masks_counts_its_processors(monkeypatch):
    from sluice.model import model

    monkeypatch.delattr(os, "sched_getaffinity")
    model.start(None)
    assert model.lib.threads_count() >= 1


def test_under_taskset():
    cpus = sorted(os.sched_getaffinity(0))
    assert 1 <= count() <= len(cpus)
    assert count(preexec_fn=lambda: os.sched_setaffinity(0, cpus[-1:])) == 1
    # who says how many has them
    assert count(preexec_fn=lambda: os.sched_setaffinity(0, cpus[:1]), threads=3) == 3


@pytest.fixture
def group():
    """A CPU control group of its own below this process's: (its folder, how to write a quota),
    where that may be made.
    """
    own = dict(line.split(":", 2)[1:] for line in open("/proc/self/cgroup").read().splitlines())
    v1 = "cpu" in ",".join(own).split(",")
    path = next(
        (path for kinds, path in own.items() if "cpu" in kinds.split(",")), own.get("", "/")
    )
    made = (
        ("/sys/fs/cgroup/cpu" if v1 else "/sys/fs/cgroup")
        + path.rstrip("/")
        + f"/sluice-test-{os.getpid()}"
    )

    def limit(quota, period):
        names = (
            {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota}
            if v1
            else {"cpu.max": f"{quota} {period}"}
        )
        for name, text in names.items():
            with open(f"{made}/{name}", "r+") as f:
                f.write(str(text))

    try:
        os.mkdir(made)
    except OSError:
        pytest.skip("no control group can be made: run as root on a writable /sys/fs/cgroup")
    try:
        try:
            limit(100000, 100000)
        except OSError:
            pytest.skip(
                "a control group has no CPU quota: run where the cpu controller is delegated"
            )
        yield made, limit
    finally:
        with suppress(OSError):
            os.rmdir(made)


@pytest.mark.full
def test_in_a_control_group(group):
    made, limit = group

    def join():
        with open(f"{made}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    free = count()
    for quota, n in ((50000, 1), (100000, 1), (150000, 2), (400000, 4)):
        limit(quota, 100000)
        assert count(preexec_fn=join) == min(n, free)
    limit(50000, 100000)
    assert count(preexec_fn=join, threads=2) == 2
