"""Run commands of bin/ in a fork of this process, which saves the start of Python.

Tests of the start itself (shell lines, closed descriptors, imports) use conftest.run and
conftest.shell, which start commands as users do. Chat templates have no process of their own here;
test_template.py tests that process.
"""

import functools
import importlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sluice import cli
from sluice.chat import renderer, sandbox

BIN = Path(__file__).resolve().parents[2] / "bin"


def _main(tool):
    return importlib.import_module("sluice.commands." + tool.replace("-", "_")).main


_environment, _made = renderer._environment, []


def _once(strftime_now):
    """The environment, made once, that compiles a template once."""
    if not _made:
        _made.append(_environment(strftime_now))
        _made[0].from_string = functools.lru_cache(_made[0].from_string)
    _made[0].globals["strftime_now"] = strftime_now
    return _made[0]


def render_here(patch):
    """Let templates be rendered in this process: by the same function, without the limits."""
    patch.setattr(renderer, "_environment", _once)
    patch.setattr(renderer, "limit", lambda: None)
    patch.setattr(sandbox, "ask", lambda request, name: renderer.answer(request))


def run(tool, *argv, input=b"", cwd=None, timeout=60):
    """As conftest.run: a CompletedProcess with bytes."""
    argv = [str(BIN / tool), *map(str, argv)]
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(input)
        stdin.seek(0)
        pid = os.fork()
        if not pid:
            _become(argv, [f.fileno() for f in (stdin, stdout, stderr)], cwd, timeout)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(argv, code, stdout.read(), stderr.read())


def _become(argv, files, cwd, timeout):
    """Run the command and end: cli.run does not return."""
    try:
        signal.alarm(timeout)
        for fd, file in enumerate(files):
            os.dup2(file, fd)
        os.chdir(cwd or ".")
        render_here(pytest.MonkeyPatch())
        sys.argv, sys.stdout, sys.stderr = (
            argv,
            open(1, "w", closefd=False),
            open(2, "w", closefd=False),
        )
        cli.run(_main(os.path.basename(argv[0])))
    finally:
        os._exit(99)


def ring(*stages, timeout=60):
    """Commands as the loop of README.md: the first reads what the one before the last writes, as
    the last does.

    stages: lists of arguments, such as ["decode", "-m", path, snapshot]. Returns the statuses of
    all, stdout of the last, stderr of all, and what went through tee.
    """
    n = len(stages)
    # from stage i to stage i + 1; the last but one goes through tee
    forth = [os.pipe() for _ in range(n - 1)]
    back, copy = os.pipe(), os.pipe()
    ends = {fd for pair in [*forth, back, copy] for fd in pair}
    with (
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        tempfile.TemporaryFile() as passed,
    ):
        pids = []
        for i, argv in enumerate(stages):
            fds = [
                back[0] if i == 0 else copy[0] if i == n - 1 else forth[i - 1][0],
                stdout.fileno() if i == n - 1 else forth[i][1],
                stderr.fileno(),
            ]
            pids.append(os.fork())
            if not pids[-1]:
                for fd in ends - set(fds):
                    os.close(fd)
                _become([str(BIN / argv[0]), *map(str, argv[1:])], fds, None, timeout)
        tee = os.fork()
        if not tee:
            mine = {forth[-1][0], back[1], copy[1]}
            for fd in ends - mine:
                os.close(fd)
            _tee(forth[-1][0], [back[1], copy[1], passed.fileno()], timeout)
        for fd in ends:
            os.close(fd)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        os.waitpid(tee, 0)
        for file in (stdout, stderr, passed):
            file.seek(0)
        return codes, stdout.read(), stderr.read(), passed.read()


def _tee(fd, files, timeout):
    """tee(1), that goes on where a reader has left."""
    try:
        signal.alarm(timeout)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        while data := os.read(fd, 1 << 16):
            for file in list(files):
                try:
                    os.write(file, data)
                except BrokenPipeError:
                    files.remove(file)
    finally:
        os._exit(0)
