"""Whole processes: a prompt that `prefill` reads, from exec to exit, so with all that a shell waits
for before the first id's logits are there: the interpreter, the model's file, the products, and a
snapshot that is synced to the disk.
"""

import os
import subprocess
import sys
import tempfile
import time

from .. import stream
from ..faults import IO_ERROR, Error, unsupported_error


def times(engine, tokens, repetitions, kv, command=None):
    """Nanoseconds of each run of prefill with the model, threads and instruction set of `engine`
    (measure.Engine), the first thrown away. Snapshots go to the temporary directory ($TMPDIR).
    `command`: prefill, by default the one beside this command.
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


def beside():
    """Path of the prefill that belongs to this command. UnsupportedError where there is none."""
    path = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "prefill")
    if not os.access(path, os.X_OK):
        raise unsupported_error("--start", f"{path}: no such command")
    return path
