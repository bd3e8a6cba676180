"""Messages as the model reads them: read and normalized by the functions of `classify`."""

from collections import namedtuple
from multiprocessing import Pool

from sluice.mail import message as mail
from sluice.mail import normalize

# head: {"From": normalized line, ...}; body: str, normalized
Text = namedtuple("Text", "corpus name is_spam head body")


def read(message):
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


def read_all(messages, n_process=2):
    """[Text] of an iterable of Messages, in their order, by n_process processes."""
    with Pool(n_process) as pool:
        return pool.map(read, messages, chunksize=256)
