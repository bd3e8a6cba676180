"""Talks: a conversation in a file, with the state of the model beside it.

FILE has the messages as JSON lines, as --messages reads them. The model's own also have the tokens
that it generated, which the text alone does not tell, and whose they are:

    {"role": "assistant", "content": "Hi", "tokens": {"model": "3f9c0a12b4d57e60", "ids": [9707]}}

FILE.kv is a snapshot of the cache. It is used for the tokens with which it and the conversation
begin, so a conversation that goes on is not processed again, and no answer depends on whether the
snapshot is there. Both files are written atomically; if only one of two runs wrote one of them,
they have fewer tokens in common, no more.
"""

import os

from ..faults import Error, printable
from ..generate.generation import Answer
from ..kvcache.snapshot import Snapshot
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


def write(path: str, messages: list[Message], model: "Model", vocab: "Vocab") -> None:
    """Write the messages of a talk. Error 73, 74 or 75."""
    name = _name(model)

    def tokens(message: Message) -> "dict[str, Any]":
        ids = lasting_tokens(message, vocab)
        return {} if ids is None else {"tokens": {"model": name, "ids": ids}}

    files.write(path, messages, tokens)


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
) -> Snapshot:
    """Return a Snapshot of `capacity` tokens, in the directory of the talk `path`, with the state
    beside the talk if that can be used. If not, `report` is called with the reason.

    Error 73 or 75.
    """
    geometry, state = model.geometry(kv), None
    try:
        state = model.open_snapshot(path + SUFFIX, kv)
    except FileNotFoundError:
        pass
    except (Error, OSError) as e:
        report(f"{e if isinstance(e, Error) else f'{path}{SUFFIX}: {e.strerror}'}; not used")
    if state and state.capacity >= capacity:
        state.cut(min(state.n_tok, capacity))
        state.capacity = capacity
        return state
    made = Snapshot.create(
        geometry, capacity, model.file.id, model.arithmetic, os.path.dirname(path)
    )
    if state:
        made.copy_rows_from(state)
    return made


def _name(model):
    return model.file.id[:ID_BYTES].hex()
