"""Messages as the model reads them: read and normalized by the functions of `classify`."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from multiprocessing import Pool

from sluice.mail import message as mail
from sluice.mail import normalize

from .corpora import Message

# head: {"From": normalized line, ...}; body: str, normalized
Text = namedtuple("Text", "corpus name is_spam head body")


def read(message: Message) -> Text:
    """The Text of a corpora.Message."""
    found = mail.read(message.data)
    # lines Links and Files of a template stand for links and attachments
    if message.corpus == "written":
        fields = dict(
            line.split(": ", 1)
            for line in message.data.decode().split("\n\n", 1)[0].split("\n")
            if ": " in line
        )
        found.links, found.files = (
            fields[name].split(", ") if name in fields else [] for name in ("Links", "Files")
        )
    head = {line.split(":", 1)[0]: line for line in found.head(normalize.fold).split("\n")[:-1]}
    return Text(message.corpus, message.name, message.is_spam, head, normalize.fold(found.body))


def read_all(messages: Iterable[Message], n_process: int = 2) -> list[Text]:
    """[Text] of an iterable of Messages, in their order, by n_process processes."""
    with Pool(n_process) as pool:
        return pool.map(read, messages, chunksize=256)
