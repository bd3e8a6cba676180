"""Time whole processes of `prefill`, from exec to exit.

This is how long a shell waits: interpreter, model file, prompt, and a snapshot synced to disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import stream
from ..faults import IO_ERROR, Error, unsupported_error

if TYPE_CHECKING:
    from .measure import Engine


def times(
    engine: Engine, tokens: Sequence[int], repetitions: int, kv: str, command: str | None = None
) -> list[int]:
    """Nanoseconds of each run of prefill after one that does not count.

    engine: model, threads and instruction set. command: path of prefill, by default the one next to
    this command. Snapshots go to the temporary directory ($TMPDIR). An Error has prefill's exit
    code and last message.
    """
    command = command or beside()
    argv = [
        command,
        "-m",
        engine.file.path,
        "-j",
        str(engine.threads),
        "--kv",
        kv,
        "--arithmetic",
        engine.arithmetic,
        *(("--vocab", engine.vocab) if engine.vocab else ()),
        "-o",
    ]
    lines = "".join(f"{id}\n" for id in tokens).encode()
    out = []
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as prompt:
        prompt.write(
            stream.tokens_header(engine.file.id, engine.h.n_vocab)
            + lines
            + stream.tokens_end("text")
        )
        prompt.flush()
        snapshot = os.path.join(directory, "snapshot")
        for _ in range(repetitions + 1):
            prompt.seek(0)
            began = time.perf_counter_ns()
            done = subprocess.run(
                [*argv, snapshot],
                stdin=prompt,
                stderr=subprocess.PIPE,
                env={**os.environ, "SLUICE_ISA": engine.isa},
            )
            out.append(time.perf_counter_ns() - began)
            if done.returncode:
                raise Error(
                    max(done.returncode, 0) or IO_ERROR,
                    done.stderr.decode(errors="replace").strip().split("\n")[-1]
                    or f"prefill ended with {done.returncode}",
                )
            os.unlink(snapshot)
    return out[1:]


def beside() -> str:
    """Path of prefill next to this command. UnsupportedError: there is none."""
    path = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "prefill")
    if not os.access(path, os.X_OK):
        raise unsupported_error("--start", f"{path}: no such command")
    return path
