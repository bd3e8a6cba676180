"""Messages as the texts that the model reads: the same mail.read and the same fold as `classify`
uses.
"""

from collections import namedtuple
from multiprocessing import Pool

from sluice.mail import message as mail
from sluice.mail import normalize

# head: {"From": its folded line, ...}; body: str, folded
Text = namedtuple("Text", "corpus name is_spam head body")


def read(message):
    """The Text of a Message."""
    found = mail.read(message.data)
    # its lines Links and Files say what links and attachments would
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
    """The Texts of Messages, in their order."""
    with Pool(n_process) as pool:
        return pool.map(read, messages, chunksize=256)
