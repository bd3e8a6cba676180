"""Chat templates of `classify`, one per model family, as lists of segments around a prompt.

`classify` never runs the model's own template, which is a program in its metadata. `auto` selects
the first of TEMPLATES whose special segments are all control tokens of the vocabulary and whose
`must_contain` texts all occur in the model's template. These texts tell families apart that write
turn markers as plain text. The last template fits every model.

`chat` is `auto` for a model that has a template of its own. One that has none was not trained to
chat, even if its vocabulary has the tokens; it gets "answer", a text to continue.
"""

from collections import namedtuple

from ..faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..gguf import File
    from ..tokenizer.vocabulary import Vocab

AUTO, CHAT = "auto", "chat"
MAX_TEMPLATE = 1 << 20
Template = namedtuple("Template", "before after must_contain", defaults=((),))


def special(text: str) -> tuple[str, str]:
    """A segment that is one control token, given by its text."""
    return ("special", text)


def text(text: str) -> tuple[str, str]:
    """A segment of plain text, without control tokens."""
    return ("text", text)


TEMPLATES = {
    "chatml": Template(
        [special("<|im_start|>"), text("user\n")],
        [special("<|im_end|>"), text("\n"), special("<|im_start|>"), text("assistant\n")],
    ),
    "gemma": Template(
        [special("<start_of_turn>"), text("user\n")],
        [special("<end_of_turn>"), text("\n"), special("<start_of_turn>"), text("model\n")],
    ),
    "llama3": Template(
        [special("<|start_header_id|>"), text("user"), special("<|end_header_id|>"), text("\n\n")],
        [
            special("<|eot_id|>"),
            special("<|start_header_id|>"),
            text("assistant"),
            special("<|end_header_id|>"),
            text("\n\n"),
        ],
    ),
    "phi3": Template(
        [special("<|user|>"), text("\n")],
        [special("<|end|>"), text("\n"), special("<|assistant|>"), text("\n")],
    ),
    "sluice": Template(
        [special("<|user|>"), text("\n")], [special("</s>"), special("<|assistant|>"), text("\n")]
    ),
    "mistral": Template([special("[INST]")], [special("[/INST]")]),
    "zephyr": Template(
        [text("<|user|>\n")],
        [special("</s>"), text("\n<|assistant|>\n")],
        ("<|user|>", "<|assistant|>"),
    ),
    "llama2": Template([text("[INST] ")], [text(" [/INST]")], ("[INST]", "[/INST]")),
    "plain": Template([text("Question: ")], [text("\nAnswer:")]),
}
# what `auto` does not select
ALL = {**TEMPLATES, "answer": Template([], [text("\nAnswer:")])}


def choose(file: "File", vocab: "Vocab", frame: str = AUTO) -> str:
    """Return the name of the template for a model and its vocabulary. frame: AUTO or CHAT."""
    model_template = file.get("tokenizer.chat_template", "string", "")[:MAX_TEMPLATE]
    if frame == CHAT and not model_template:
        return "answer"
    for name, template in TEMPLATES.items():
        marks = [mark for kind, mark in template.before + template.after if kind == "special"]
        if all(vocab.control_token(mark) is not None for mark in marks) and all(
            mark in model_template for mark in template.must_contain
        ):
            return name
    raise AssertionError("the last template fits every model")


def need(file: "File", vocab: "Vocab", mark: str) -> int:
    """Return the ID of the control token `mark`. Raises DataError if the vocabulary has none."""
    i = vocab.control_token(mark)
    if i is None:
        raise data_error(
            file.path,
            f"the vocabulary has no control token {printable(mark)}, which the question needs;"
            " choose another model or question (-m, -q)",
        )
    return i
