"""classify --listen --stats: the file for node_exporter, what SIGUSR1 prints, and files that cannot
be written.
"""

import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from conftest import run
from worker_client import connect
from worker_process import DATA, ENV, long_lines

from sluice.serve import handing, statistics

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def metrics(text):
    """{(name, label values): value} by the parser of Prometheus' Python client."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def filled(outcomes=("yes", "no", "no", "timeout", "killed")):
    s = statistics.Statistics()
    for i, outcome in enumerate(outcomes):
        if outcome in handing.ANSWERS or outcome == "killed":
            s.add_result(handing.Result(outcome, 0.0, 1.0, 1.25, 1.5 + i))
        else:
            s.add(outcome)
    return s


@pytest.mark.parametrize("s", [statistics.Statistics(), filled()], ids=["empty", "filled"])
def test_metrics_have_the_format_of_prometheus(s):
    text = s.text(3, 2)
    found = metrics(text)
    assert found["sluice_clients", "arriving"] == 3 and found["sluice_clients", "waiting"] == 2
    counts = [v for k, v in found.items() if k[0] == "sluice_messages_total"]
    assert len(counts) == len(handing.OUTCOMES) and sum(counts) in (0, 5)
    assert text.endswith("\n") and text.isascii()
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text.encode(), capture_output=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_metrics_count_answers_and_their_times():
    found = metrics(filled().text(0, 0))
    assert found["sluice_messages_total", "answer", "no"] == 2
    assert found["sluice_messages_total", "error", "timeout"] == 1
    assert found["sluice_messages_total", "lost", "killed"] == 1
    assert found["sluice_answer_seconds_count",] == 3  # a killed worker has no time
    assert found["sluice_answer_seconds_sum",] == 0.5 + 1.5 + 2.5
    assert found["sluice_answer_seconds", "0.5"] == 1.5
    assert found["sluice_answer_seconds", "0.99"] == 2.5
    assert found["sluice_wait_seconds", "0.99"] == 0.25
    assert found["sluice_answers_per_minute",] == 3
    empty = metrics(statistics.Statistics().text(0, 0))
    assert math.isnan(empty["sluice_answer_seconds", "0.99"])


def test_quantiles_are_those_of_the_last_answers():
    t = statistics.Times()
    for i in range(3000):
        t.add(float(i))
    assert (t.n, t.quantile(0.5), t.quantile(0.99)) == (3000, 2500.0, 2990.0)
    assert t.quantile(0.0) == 3000 - statistics.N_TIMES


def test_answers_per_minute_are_those_of_the_last_minute(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(statistics.time, "monotonic", lambda: now[0])
    s = statistics.Statistics()
    for _ in range(120):
        s.add_result(handing.Result("yes", 0.0, 0.0, 0.0, 0.0))
        now[0] += 1
    assert s.per_minute() == 59  # the seconds before this one
    now[0] += 30
    assert s.per_minute() == 29
    now[0] += 60
    assert s.per_minute() == 0


@pytest.mark.full
def test_daemon_writes_metrics(start, tmp_path):
    path = tmp_path / "sluice.prom"
    w = start("--stats", path, constants={"STATS_SECONDS": 0.2})
    assert [w.ask(data) for data in DATA] == long_lines()
    w.ask(b"")
    connect(w.path).close()
    idle = connect(w.path)
    idle.sendall(b"From")

    def found():
        m = metrics(path.read_text())
        n = sum(v for k, v in m.items() if k[0] == "sluice_messages_total")
        return n == len(DATA) + 2 and m["sluice_clients", "arriving"] == 1 and m

    m = w.wait_for(found, "counts")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert m["sluice_messages_total", "error", "empty"] == 1
    assert m["sluice_messages_total", "lost", "left"] == 1
    yes = sum(line.startswith(b"yes") for line in long_lines())
    assert m["sluice_messages_total", "answer", "yes"] == yes
    assert m["sluice_answer_seconds_count",] == m["sluice_answers_per_minute",] == len(DATA)
    assert 0 < m["sluice_answer_seconds", "0.5"] <= m["sluice_answer_seconds", "0.99"] < 60
    assert abs(m["sluice_start_time_seconds",] - time.time()) < 600
    w.restart()  # a reload keeps the counts
    w.ask(DATA[0])
    w.wait_for(
        lambda: metrics(path.read_text())["sluice_answer_seconds_count",] == len(DATA) + 1, "count"
    )
    idle.close()
    w.end()
    assert w.log() == "" and sorted(os.listdir(tmp_path)) == ["s.log", "sluice.prom"]


def test_metrics_are_never_half_written(start, tmp_path):
    path = tmp_path / "sluice.prom"
    w = start("--stats", path, constants={"STATS_SECONDS": 0.001})
    seen = set()
    for _ in range(300):
        with open(path) as f:
            seen.add(os.fstat(f.fileno()).st_mtime_ns)
            text = f.read()
        assert text.count("\n") == statistics.Statistics().text(0, 0).count("\n")
        w.ask(b"")
    assert len(seen) > 20


def test_signal_prints_counts_and_times(start):
    w = start()
    assert [w.ask(data) for data in DATA] == long_lines()
    for number in range(1, 4):
        w.process.send_signal(signal.SIGUSR1)
        w.wait_for(lambda: w.log().count("\n") == number, "line")
    line = w.log().splitlines()[-1]
    assert line.startswith(f"classify: answers={len(DATA)} yes=") and " killed=0 " in line
    assert f" per_minute={len(DATA)} p50_ms=" in line and " arriving=0 waiting=0 full=0" in line


@pytest.mark.full
def test_stats_file_is_checked_before_anything_is_served(tmp_path):
    (tmp_path / "dir.prom").mkdir()
    (tmp_path / "link.prom").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "fifo.prom")
    for name, code in (
        ("sluice.txt", 64),
        ("", 66),
        ("prom", 64),
        ("none/sluice.prom", 73),
        ("dir.prom", 73),
        ("link.prom", 73),
        ("fifo.prom", 73),
    ):
        done = run(
            *("classify", "--listen", tmp_path / "s", "--no-cache", "--stats"),
            tmp_path / name if name else "",
            env=ENV,
        )
        assert done.returncode == code and done.stderr.count(b"\n") == 1, (name, done.stderr)
        assert not (tmp_path / "s").exists()
    done = run("classify", "--stats", tmp_path / "a.prom", input=b"x", env=ENV)
    assert done.returncode == 64 and b"--stats: needs --listen" in done.stderr


def test_metrics_that_cannot_be_written_are_reported_once(start, tmp_path):
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "sluice.prom"
    w = start("--stats", path, constants={"STATS_SECONDS": 0.05})
    w.wait_for(path.exists, "file")
    shutil.rmtree(tmp_path / "there")
    w.wait_for(lambda: "sluice.prom: cannot write" in w.log(), "report")
    for _ in range(5):
        assert w.ask(DATA[0]) == long_lines()[0]
    assert w.log().count("\n") == 1
    (tmp_path / "there").mkdir()
    w.wait_for(path.exists, "file again")


def test_no_message_content_is_in_the_metrics(start, tmp_path):
    path = tmp_path / "sluice.prom"
    w = start("--stats", path, constants={"STATS_SECONDS": 0.1})
    s = connect(w.path)
    s.sendall(b"Subject: secret\n\nsecret\n")
    s.shutdown(socket.SHUT_WR)
    s.close()
    w.ask(b"Subject: secret\n\nsecret\n")
    w.wait_for(
        lambda: "_count 1\n" in path.read_text() or "_count 2\n" in path.read_text(), "count"
    )
    assert "secret" not in path.read_text() + w.log()
