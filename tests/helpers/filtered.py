"""A private Postfix as configs/postfix/README.md makes it: the filter, a resident worker, and a
sink behind.
"""

import contextlib
import re
import subprocess
import sys

import postfix
from conftest import ROOT, wait_for
from sink import Sink

CONFIGS = ROOT / "configs/postfix"
PLAIN = 10025  # the port without the filter


def settings(name="main.cf"):
    """The settings that configs/postfix recommends."""
    return dict(
        line.split(" = ", 1)
        for line in (CONFIGS / name).read_text().splitlines()
        if " = " in line and line[0] != "#"
    )


def services(text):
    """Debian's master.cf with the filter, as configs/postfix has it, for port 25; port 10025 goes
    without.
    """
    smtpd = re.compile(r"^smtp +inet .*smtpd$", re.M)
    options = (
        "content_filter=filter:dummy",
        "receive_override_options=no_address_mappings",
        "message_size_limit=10240000",
    )
    text = smtpd.sub(lambda m: m[0] + "".join(f"\n  -o {o}" for o in options), text)
    return f"{text}{PLAIN} inet n - y - - smtpd\n" + (CONFIGS / "master.cf").read_text()


@contextlib.contextmanager
def filtered(main=None, worker=True, options="", **kwargs):
    """A private Postfix with the filter, a resident worker, and the sink behind it.

    options: further ones of mail-filter.
    """
    main = {**settings(), "minimal_backoff_time": "1s", **(main or {})}
    master = lambda text: services(text).replace("/mail-filter --", f"/mail-filter {options} --", 1)
    with (
        postfix.Postfix(main, master, show=[ROOT, sys.base_prefix], **kwargs) as p,
        Sink(p) as sink,
    ):
        p.run(
            "sh",
            "-c",
            f"mkdir /opt/sluice /run/sluice; ln -s {ROOT}/bin /opt/sluice/bin; chown filter"
            " /run/sluice",
        )
        if worker:
            start_worker(p)
        yield p, sink


def start_worker(p, *options):
    """As configs/systemd has it; the process outside, whose end is that of the worker."""
    argv = p.argv(
        "/opt/sluice/bin/classify",
        "--listen",
        "/run/sluice/classify.sock",
        "--no-cache",
        *options,
        user="filter",
    )
    process = subprocess.Popen(argv, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    there = lambda: p.run("test", "-S", "/run/sluice/classify.sock", check=False).returncode == 0
    wait_for(lambda: process.poll() is not None or there(), "worker's socket", 60)
    return process
