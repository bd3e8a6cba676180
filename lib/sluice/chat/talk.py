"""Talks: a conversation in a file, with the state of the model beside it.

FILE has the messages as JSON lines, as --messages reads them. The model's own also have the tokens
that it generated, which the text alone does not tell, and whose they are:

    {"role": "assistant", "content": "Hi", "tokens": {"model": "3f9c0a12b4d57e60", "ids": [9707]}}

FILE.kv is a snapshot of the cache. It is used for the tokens with which it and the conversation
begin, so a conversation that goes on is not processed again, and no answer depends on whether the
snapshot is there. Both files are written atomically; if only one of two runs wrote one of them,
they have fewer tokens in common, no more. If the snapshot cannot be written, the talk is kept
without it.

A run holds a lock (flock) on FILE from before it reads it to its end, so two runs cannot replace
each other's messages. A new FILE is locked before it gets its name. Commands that only read FILE
need no lock.
"""

import errno
import fcntl
import os

from ..faults import IO_ERROR, NO_INPUT, NO_OUTPUT, TRY_AGAIN, Error, printable
from ..generate.generation import Answer
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..system import files as paths
from . import messages as files
from .message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..model.model import Model
    from ..tokenizer.vocabulary import Vocab

SUFFIX = ".kv"
ID_BYTES = 8  # of the model ID that tokens have


def read(path: str, model: "Model", vocab: "Vocab") -> list[Message]:
    """Return the messages of the talk in the file `path`, [] if there is none or it is empty.

    Tokens of another model are ignored. DataError for tokens that are not those of the message's
    text: no message brings a control token. OSError.
    """

    def own(tokens: "Any", message: Message) -> list[int] | None:
        ids = tokens.get("ids") if isinstance(tokens, dict) else None
        if not isinstance(ids, list) or not isinstance(tokens.get("model"), str):
            raise ValueError("not an object with model and ids")
        if tokens["model"] != _name(model):
            return None
        for token in ids:
            if type(token) is not int or not 0 <= token < vocab.n_vocab:
                raise ValueError(f"{printable(str(token))[:40]} is not a token ID of the model")
            if vocab.is_control(token):
                raise ValueError(f"{token} is a control token")
        if not are_tokens_of(ids, message.content, vocab):
            raise ValueError("their text is not the content")
        return ids

    is_new = not os.path.lexists(path) or (os.path.isfile(path) and not os.path.getsize(path))
    return [] if is_new else files.read(path, own)


def check_exists(path: str) -> None:
    """Error 66 if there is no talk in the file `path` with an answer that could go on."""
    if not os.path.lexists(path):
        raise Error(
            NO_INPUT,
            f"{path}: {os.strerror(errno.ENOENT)}: --continue needs an answer to go on with",
        )


class Lock:
    """The lock of the talk in the file `path`, within `with`. A talk that does not exist is an
    empty file until messages are written, and is removed if none are.

    Error 75 if another run holds it, 73 or 75 if FILE cannot be opened, 74 if it cannot be locked.
    """

    def __init__(self, path: str) -> None:
        self.path, self._is_new = path, False
        while True:
            self._fd = self._open()
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._has_name():
                    break
            except BlockingIOError:
                os.close(self._fd)
                raise Error(
                    TRY_AGAIN,
                    f"{path}: another chat has it open; end that one, or give another FILE",
                ) from None
            except OSError as e:
                os.close(self._fd)
                raise Error(IO_ERROR, f"{path}: cannot lock: {e.strerror}") from None
            os.close(self._fd)  # replaced or removed before the lock was held

    def _open(self):
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            try:
                self._is_new = True
                return os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                self._is_new = False
                return os.open(self.path, flags | os.O_CREAT, 0o600)
        except OSError as e:
            raise paths.write_error(self.path, e, NO_OUTPUT) from None

    def _has_name(self):
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def take(self, fd: int) -> None:
        """Hold `fd` instead, the locked file that has replaced FILE."""
        os.close(self._fd)
        self._fd, self._is_new = fd, False

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *exception: "Any") -> None:
        if self._is_new and self._has_name() and not os.fstat(self._fd).st_size:
            paths.unlink(self.path)
        os.close(self._fd)


def write(
    path: str, messages: list[Message], model: "Model", vocab: "Vocab", lock: Lock | None = None
) -> None:
    """Write the messages of a talk, whose lock goes to the new file. Error 73, 74 or 75."""
    name = _name(model)

    def tokens(message: Message) -> "dict[str, Any]":
        ids = lasting_tokens(message, vocab)
        return {} if ids is None else {"tokens": {"model": name, "ids": ids}}

    fd = files.replace(path, messages, tokens)
    if lock:
        lock.take(fd)
    else:
        os.close(fd)


def lasting_tokens(message: Message, vocab: "Vocab") -> list[int] | None:
    """Return the tokens that a message keeps in a talk, or None: those that `read` would refuse are
    not kept. An answer in which the model wrote a control token has none.
    """
    ids = message.tokens
    if ids is None or any(map(vocab.is_control, ids)):
        return None
    return ids if are_tokens_of(ids, message.content, vocab) else None


def are_tokens_of(tokens: list[int], content: str, vocab: "Vocab") -> bool:
    """Whether an answer of `tokens` has the text `content`."""
    text = Answer(vocab)
    data = b"".join(map(text.add, tokens)) + text.remainder()
    return data.decode("utf-8", "replace") == content


def open_state(
    path: str, model: "Model", kv: str, capacity: int, report: "Callable[[str], object]"
) -> Scratch:
    """Return a cache of `capacity` tokens with the state beside the talk `path`, if that can be
    used. If not, `report` is called with the reason.

    The cache is in memory, not in a map of the file: a full disk is found when the state is kept.
    """
    cache, state = Scratch(model.geometry(kv), capacity, logits=True), None
    try:
        state = model.open_snapshot(path + SUFFIX, kv)
    except FileNotFoundError:
        pass
    except (Error, OSError) as e:
        report(f"{e if isinstance(e, Error) else f'{path}{SUFFIX}: {e.strerror}'}; not used")
    if state:
        with state:
            state.cut(min(state.n_tok, capacity))
            cache.copy_rows_from(state)
    return cache


def keep_state(
    path: str, model: "Model", cache: "Scratch | Snapshot", report: "Callable[[str], object]"
) -> None:
    """Keep `cache` as the state beside the talk `path`. If that fails, `report` is called with the
    reason: the talk goes on without it.
    """
    directory = os.path.dirname(path)
    try:
        with Snapshot.create(
            cache.geometry, cache.capacity, model.file.id, model.arithmetic, directory
        ) as made:
            made.copy_rows_from(cache)
            made.seal(path + SUFFIX)
    except Error as e:
        problem = str(e).removeprefix(f"{directory or '.'}: ").removeprefix(f"{path}{SUFFIX}: ")
        report(f"{path}{SUFFIX}: {problem}; the talk is kept without it")


def _name(model):
    return model.file.id[:ID_BYTES].hex()
