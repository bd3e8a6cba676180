"""Read the corpora as labelled messages, byte for byte.

They lie in one folder under these names; the model card has their origins and licences:

    spamassassin.tar.xz, enron-spam.tar.xz, ling-spam.tar.xz    <corpus>/<ham|spam>/<name>
    sms-spam-collection.tsv                                     ham|spam, a tab, the text; UTF-8

The corpus "written" is made from the templates of this package. Each corpus can be left out.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path

from sluice.faults import data_error

from . import templates

Message = namedtuple("Message", "corpus name is_spam data")
ARCHIVES = {
    "spamassassin": "spamassassin.tar.xz",
    "enron": "enron-spam.tar.xz",
    "ling": "ling-spam.tar.xz",
}
SMS = "sms-spam-collection.tsv"
NAMES = (*ARCHIVES, "sms", "written")
N_TEMPLATED = 34000  # texts made from templates


def files(folder: str | Path, leave_out: Sequence[str] = ()) -> list[Path]:
    """[Path] of the files that must be in the folder."""
    return [
        Path(folder) / file
        for corpus, file in (*ARCHIVES.items(), ("sms", SMS))
        if corpus not in leave_out
    ]


def messages(
    folder: str | Path, leave_out: Sequence[str] = (), seed: int = 1, n_templated: int = N_TEMPLATED
) -> Iterator[Message]:
    """Yield all Messages, in a fixed order.

    FileNotFoundError names a corpus that is missing and not left out, DataError a corpus that
    cannot be read.
    """
    folder = Path(folder)
    for corpus, file in ARCHIVES.items():
        if corpus not in leave_out:
            yield from _archive(corpus, folder / file)
    if "sms" not in leave_out:
        yield from _sms(folder / SMS)
    if "written" not in leave_out:
        for label, kind, template, text in templates.texts(seed, n_templated):
            yield Message("written", f"{kind}/{template}", label == "spam", text.encode())


def labelled(path: Path) -> Iterator[Message]:
    """Yield the Messages of a tar archive or folder: files below ham or spam, sorted by name.

    DataError: not a readable archive. OSError: a file cannot be read.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            label = [part for part in file.relative_to(path).parts[:-1] if part in ("ham", "spam")]
            if label and file.is_file():
                yield Message(
                    path.name, str(file.relative_to(path)), label[-1] == "spam", file.read_bytes()
                )
    else:
        yield from _archive(path.name, path)


def _archive(corpus, path):
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                parts = member.name.split("/", 2)
                if member.isfile() and len(parts) == 3 and parts[1] in ("ham", "spam"):
                    yield Message(
                        corpus, parts[2], parts[1] == "spam", tar.extractfile(member).read()
                    )
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as e:
        raise data_error(
            path,
            f"not a readable archive: {str(e).splitlines()[0] if str(e) else 'truncated'}",
        ) from None


def _sms(path):
    with open(path, "rb") as lines:
        for i, line in enumerate(lines):
            try:
                label, text = line.decode().rstrip("\n").split("\t", 1)
            except ValueError:  # no tab, or not UTF-8
                label = None
            if label not in ("ham", "spam"):
                raise data_error(path, f"line {i + 1}: not ham or spam, a tab and UTF-8 text")
            yield Message("sms", str(i), label == "spam", text.encode())
