"""The turns of a chat around a prompt, as segments, by family. A model's own template (a program in
its metadata) is never run.

`auto` takes the first frame of FRAMES whose `special` segments are all control tokens of the
vocabulary, and whose `seen` texts, if it has any, are all somewhere in the template: that tells the
families apart whose turn marks are plain text. The last one fits every model.
"""

from collections import namedtuple

from ..faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab

AUTO = "auto"
MAX_TEMPLATE = 1 << 20
Frame = namedtuple("Frame", "before after seen", defaults=((),))


def special(text: str) -> tuple[str, str]:
    return ("special", text)


def text(text: str) -> tuple[str, str]:
    return ("text", text)


FRAMES = {
    "chatml": Frame(
        [special("<|im_start|>"), text("user\n")],
        [special("<|im_end|>"), text("\n"), special("<|im_start|>"), text("assistant\n")],
    ),
    "gemma": Frame(
        [special("<start_of_turn>"), text("user\n")],
        [special("<end_of_turn>"), text("\n"), special("<start_of_turn>"), text("model\n")],
    ),
    "llama3": Frame(
        [special("<|start_header_id|>"), text("user"), special("<|end_header_id|>"), text("\n\n")],
        [
            special("<|eot_id|>"),
            special("<|start_header_id|>"),
            text("assistant"),
            special("<|end_header_id|>"),
            text("\n\n"),
        ],
    ),
    "phi3": Frame(
        [special("<|user|>"), text("\n")],
        [special("<|end|>"), text("\n"), special("<|assistant|>"), text("\n")],
    ),
    "sluice": Frame(
        [special("<|user|>"), text("\n")], [special("</s>"), special("<|assistant|>"), text("\n")]
    ),
    "mistral": Frame([special("[INST]")], [special("[/INST]")]),
    "zephyr": Frame(
        [text("<|user|>\n")],
        [special("</s>"), text("\n<|assistant|>\n")],
        ("<|user|>", "<|assistant|>"),
    ),
    "llama2": Frame([text("[INST] ")], [text(" [/INST]")], ("[INST]", "[/INST]")),
    "plain": Frame([text("Question: ")], [text("\nAnswer:")]),
}


def choose(file: "File", vocab: "Vocab") -> str:
    """The name of the frame that `auto` stands for, with the model `file` (a gguf.File) and its
    Vocab.
    """
    template = file.get("tokenizer.chat_template", "string", "")[:MAX_TEMPLATE]
    for name, frame in FRAMES.items():
        marks = [mark for kind, mark in frame.before + frame.after if kind == "special"]
        if all(vocab.control_token(mark) is not None for mark in marks) and all(
            mark in template for mark in frame.seen
        ):
            return name
    raise AssertionError("the last frame needs nothing")


def need(file: "File", vocab: "Vocab", mark: str) -> int:
    """The id of the control token `mark` (str); DataError naming it where the vocabulary has
    none.
    """
    i = vocab.control_token(mark)
    if i is None:
        raise data_error(
            file.path,
            f"the vocabulary has no control token {printable(mark)}, which the question needs; -q"
            " gives another question",
        )
    return i
