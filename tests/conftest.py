"""What every test file uses: where the commands are, how to run one, where the shared data lies."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "bin"
_shared = Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared")
SHARED = _shared if _shared.is_dir() else None


def run(*argv, input=b"", timeout=60, **kwargs):
    """Run a command of bin/ (`run("sample", "-t", 0)`) with bytes on stdin; a CompletedProcess with bytes."""
    argv = [str(BIN / argv[0]), *map(str, argv[1:])]
    kwargs.setdefault("stdout", subprocess.PIPE)
    kwargs.setdefault("stderr", subprocess.PIPE)
    if "stdin" not in kwargs:
        kwargs["input"] = input
    return subprocess.run(argv, timeout=timeout, **kwargs)


@pytest.fixture
def shared():
    """shared("data/vocab/x.gguf"): the path of a file of the shared directory, or a skip that names it."""
    def find(name):
        if SHARED is None or not (SHARED / name).exists():
            pytest.skip(f"missing: shared/{name}")
        return SHARED / name
    return find
