"""Messages as the texts that the model reads: the same mail.read and the same fold as `classify` uses."""
from collections import namedtuple
from multiprocessing import Pool

from .. import mail

Text = namedtuple("Text", "corpus name is_spam head body")  # head: the folded lines by name ("from", "subject" ...); body: str


def read(message):
    """The Text of a Message."""
    lines = mail.read(message.data).text(fold=True).decode().removesuffix("\n").split("\n")
    head = {line.split(" ", 1)[0]: line for line in lines[:-1]}
    return Text(message.corpus, message.name, message.is_spam, head, lines[-1])


def read_all(messages, n_process=2):
    """The Texts of Messages, in their order."""
    with Pool(n_process) as pool:
        return pool.map(read, messages, chunksize=256)
