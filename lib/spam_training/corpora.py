"""The corpora as messages: bytes as they came, with what they are.

Expected in one folder, each under the name it was packed with (the model card says where they come
from and on what terms):

    spamassassin.tar.xz, enron-spam.tar.xz, ling-spam.tar.xz    <corpus>/<ham|spam>/<name>
    sms-spam-collection.tsv                                     ham|spam, a tab, the text; UTF-8

and one that is our own: written/, expanded from templates. Any of them can be left out.
"""

import lzma
import tarfile
import zlib
from collections import namedtuple
from pathlib import Path

from sluice.faults import data_error

from . import written

Message = namedtuple("Message", "corpus name is_spam data")
ARCHIVES = {
    "spamassassin": "spamassassin.tar.xz",
    "enron": "enron-spam.tar.xz",
    "ling": "ling-spam.tar.xz",
}
SMS = "sms-spam-collection.tsv"
NAMES = (*ARCHIVES, "sms", "written")
N_WRITTEN = 34000  # texts made of the templates


def files(folder, leave_out=()):
    """[Path] of what is expected in the folder."""
    return [
        Path(folder) / file
        for corpus, file in (*ARCHIVES.items(), ("sms", SMS))
        if corpus not in leave_out
    ]


def messages(folder, leave_out=(), seed=1, n_written=N_WRITTEN):
    """All Messages, in a fixed order. FileNotFoundError names a corpus that is neither there nor
    left out, an Error one that cannot be read.
    """
    folder = Path(folder)
    for corpus, file in ARCHIVES.items():
        if corpus not in leave_out:
            yield from _archive(corpus, folder / file)
    if "sms" not in leave_out:
        yield from _sms(folder / SMS)
    if "written" not in leave_out:
        for label, kind, template, text in written.texts(seed, n_written):
            yield Message("written", f"{kind}/{template}", label == "spam", text.encode())


def labelled(path):
    """Messages of a tar archive or of a folder: files below a folder ham or spam, in the order of
    their names.
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
            f"not an archive that can be read: {str(e).splitlines()[0] if str(e) else 'it is cut'}",
        ) from None


def _sms(path):
    with open(path, "rb") as lines:
        for i, line in enumerate(lines):
            try:
                label, text = line.decode().rstrip("\n").split("\t", 1)
            except ValueError:  # no tab, or not UTF-8
                label = None
            if label not in ("ham", "spam"):
                raise data_error(
                    path, f"line {i + 1}: is not ham or spam, a tab and a text in UTF-8"
                )
            yield Message("sms", str(i), label == "spam", text.encode())
