"""The question that a reranker answers about each text, as a question of `classify`.

A model may bring a template of its own, which is text with {query} and {document}. Without one, a
model that knows ChatML gets the form of Qwen3-Reranker (Zhang et al. 2025, arXiv:2506.05176), and
any other one the same words in its chat template.

The control tokens of a template are found before query and document are put in, which stay text.
What stands on one line before the document is tokenized with it, as in training: " a" behind a
colon is one token.
"""

import re

from ..faults import data_error
from ..question import templates
from ..question.question import Question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab

KEY = "tokenizer.chat_template.rerank"
NAME = "general.name"
RANK = 4  # a pooling_type
MAX_TEMPLATE = 64 << 10  # characters
MAX_TOKENS = 8192  # of a document
MAX_CHARACTERS = 1 << 14  # of a query
INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct"
    ' provided. Note that the answer can only be "yes" or "no".'
)
BODY = "<Instruct>: {instruct}\n<Query>: {query}\n<Document>: {document}"
CHATML = (
    "<|im_start|>system\n" + SYSTEM + "<|im_end|>\n<|im_start|>user\n" + BODY + "<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
PLAIN = SYSTEM + "\n\n" + BODY
SLOTS = "{instruct}", "{query}", "{document}"
MARK = re.compile(r"(<\|[^|<>]+\|>|</?[A-Za-z_]+>)")
SPELLINGS = {"yes": ["yes"], "no": ["no"]}
# of models that were not trained on these two alone
CHAT_SPELLINGS = {
    "yes": ["yes", "Yes", " yes", " Yes"],
    "no": ["no", "No", " no", " No"],
}


def check(name: str, text: str) -> None:
    """Check a query or what a search is for. Raises ValueError naming it."""
    if not text.strip():
        raise ValueError(f"{name}: is empty")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{name}: more than {MAX_CHARACTERS} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: is not UTF-8") from None


def is_trained(file: "File") -> bool:
    """Whether the model of a gguf.File was trained to rank, as far as its keys and name tell."""
    arch = file.metadata.get("general.architecture")
    return bool(
        file.get(KEY, "string", None)
        or "cls.output.weight" in file.tensors
        or file.metadata.get(f"{arch}.pooling_type") == RANK
        or "rerank" in str(file.metadata.get(NAME, "")).lower()
    )


def question_of(
    file: "File", vocab: "Vocab", query: str, instruct: str | None = None
) -> tuple[Question, bytes]:
    """Return (question, what its input begins with).

    file, vocab: of the model. query: the user's. instruct: what the search is for; None: INSTRUCT.
    Raises DataError naming the key of a template that cannot be used, or a template without a place
    for an `instruct` that was given.
    """
    own = file.get(KEY, "string", None)
    template, where = CHATML, "the form of Qwen3-Reranker"
    tree: dict[str, Any] = {}
    if own is not None:
        template, where = own, KEY
        _check(file, own)
    elif vocab.control_token("<|im_start|>") is None:
        template = PLAIN
        tree = {"frame": templates.AUTO}
    if instruct is not None and SLOTS[0] not in template:
        raise data_error(file.path, f"{where}: has no place for --instruct")
    segments, lead = _segments(template, vocab, query, instruct or INSTRUCT)
    if not tree and vocab.add_bos and vocab.bos is not None:
        bos = vocab.bytes_of(vocab.bos, special=True).decode("utf-8", "replace")
        if not segments or segments[0] != {"special": bos}:
            segments.insert(0, {"special": bos})
    tree |= {
        "input": {"kind": "text", "head_ids": MAX_TOKENS, "tail_ids": 0},
        "prompt": segments,
        "answers": CHAT_SPELLINGS if tree else SPELLINGS,
        "tokenisations": "canonical",
    }
    return Question(tree, f"{file.path}: {KEY}" if own is not None else "rerank"), lead


def _check(file, template):
    if len(template) > MAX_TEMPLATE:
        raise file.data_error(f"{KEY}: more than {MAX_TEMPLATE} characters")
    for slot in SLOTS[1:]:
        if template.count(slot) != 1:
            raise file.data_error(f"{KEY}: has {slot} {template.count(slot)} times; once is needed")


def _segments(template, vocab, query, instruct):
    """Return (prompt of a Question, what its input begins with)."""
    values = {"{instruct}": instruct, "{query}": query}
    found: list[Any] = []
    text = ""  # since the last control token

    def end_text():
        nonlocal text
        if text:
            found.append({"text": text})
        text = ""

    lead = b""
    for piece in re.split(r"(\{(?:instruct|query|document)\})", template):
        if piece == "{document}":
            line = text.rpartition("\n")[2]
            text = text.removesuffix(line)
            end_text()
            found.append("input")
            lead = line.encode()
        elif piece in values:
            text += values[piece]
        else:
            for part in MARK.split(piece):
                if MARK.fullmatch(part) and vocab.control_token(part) is not None:
                    end_text()
                    found.append({"special": part})
                else:
                    text += part
    end_text()
    return found, lead
