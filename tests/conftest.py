"""What every test file may use: the commands, and the files beside the repository."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "bin"
_shared = Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared")
SHARED = _shared if _shared.is_dir() else None


@pytest.fixture
def shared():
    """A function: path of a file of the shared folder by its name there; skips, naming it, where it is absent."""
    def find(name):
        path = SHARED / name if SHARED else _shared / name
        if not path.exists():
            pytest.skip(f"{path} is not there")
        return path
    return find


def run(*argv, input=b"", timeout=60):
    """Run bin/ARGV[0] with the rest as arguments: subprocess.CompletedProcess with bytes."""
    return subprocess.run([BIN / argv[0], *map(str, argv[1:])], input=input, capture_output=True, timeout=timeout)
