"""Commands of bin/ without a start of Python each: a fork of this process, in which their modules are loaded, runs them.

What a start itself proves (the shell's lines, closed descriptors, imports) is for conftest.run and conftest.shell, which start commands
as users do. Nor do chat templates get a process of their own here: what that one must withstand is in test_template.py.
"""
import functools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sluice.chat import renderer
from sluice.chat.template import Template

BIN = Path(__file__).resolve().parent.parent / "bin"


@functools.cache
def _program(tool):
    return compile((BIN / tool).read_bytes(), str(BIN / tool), "exec")


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
    patch.setattr(Template, "_ask", lambda self, request: renderer.answer(request))


def run(tool, *argv, input=b"", cwd=None, timeout=60):
    """As conftest.run: a CompletedProcess with bytes."""
    argv = [str(BIN / tool), *map(str, argv)]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
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
        sys.argv, sys.stdout, sys.stderr = argv, open(1, "w", closefd=False), open(2, "w", closefd=False)
        exec(_program(os.path.basename(argv[0])), {"__name__": "__main__", "__file__": argv[0]})
    finally:
        os._exit(99)
