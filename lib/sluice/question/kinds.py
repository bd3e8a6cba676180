"""Typed questions: yesno, choice and score, turned into the full form that question.Question reads.

    type: choice                  # yesno (also called noul), choice or score
    question: "Who must act?"     # the text of the question
    answers:                      # choice: 2 to 255 answers, a mapping to descriptions or null, or
      billing: "money, invoices"  # a list; yesno: optional, describes yes, no or both
      technical: null
    levels: [mild, bad, worst]    # score, in place of answers: 2 to 10, low to high; a list, or a
                                  # mapping to descriptions or null
    order: text-first             # optional: text-first or question-first
    list: true                    # optional: whether the prompt lists the answers
    prompt: [...]                 # optional: segments in place of those made here

The keys input, model, frame, aliases, tokenisations, thresholds, calibration, prior and orders are
those of the full form, and optional; `thresholds` may also be one number for all answers.

With the text first, all questions begin with the same tokens, so several of them read a text once.
A list of many answers is more tokens than most texts; with more than MANY_ANSWERS the question and
its list come first, so that many texts share them. Each token of a text attends to a list all the
same, so one of more than MAX_LIST bytes is left out, unless it has descriptions: the tree of the
answers allows no others anyway.
"""

from ..faults import data_error, printable
from . import templates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..classify.classifier import Verdict
    from ..faults import Error

YESNO, CHOICE, SCORE = "yesno", "choice", "score"
TYPES = {YESNO: YESNO, "noul": YESNO, CHOICE: CHOICE, SCORE: SCORE}
TEXT_FIRST, QUESTION_FIRST = "text-first", "question-first"
MAX_ANSWERS, MAX_LEVELS = 255, 10
MANY_ANSWERS = 16  # with more, the question comes first unless `order` says otherwise
MAX_LIST = 2048  # bytes of a list without descriptions
MAX_NAME = 80  # characters of an answer
MAX_TEXT = 16 << 10  # bytes of the question's text, or of a description
OPTIONAL = tuple("model frame aliases tokenisations thresholds calibration prior orders".split())
OWN = ("type", "question", "order", "list", "prompt")
ANSWERS_KEY = {YESNO: "answers", CHOICE: "answers", SCORE: "levels"}
DEFAULT_INPUT = {"kind": "text", "head_ids": 768, "tail_ids": 256}
UNSURE = "unsure"
ASKED = "-q"  # in place of the file of a question whose text was given
BEFORE_TEXT, BEFORE_QUESTION = "Text:\n---\n", "Question: "  # with which a prompt begins
UNSURE_BELOW = 0.6  # threshold of yes and of no, as in the bundled questions


class Full(dict[str, "Any"]):
    """The full form of a typed question, with two keys more: type, and options, the lines that list
    its answers.
    """


def expand(tree: "dict[str, Any]", path: str) -> Full:
    """Return the full form of a typed question.

    tree: the parsed file. path: named in errors. Raises DataError naming file and key.
    """
    kind = TYPES.get(tree["type"]) if isinstance(tree["type"], str) else None
    if not kind:
        raise data_error(path, f"type: is none of {', '.join(TYPES)}")
    key = ANSWERS_KEY[kind]
    known = (*OWN, key, "input", *OPTIONAL)
    for name in tree:
        if name not in known:
            raise data_error(
                path,
                f"a question of type {kind} has no key {printable(name)}; use {', '.join(known)}",
            )
    listed = _listed(tree, kind, path)
    question = None
    if "question" in tree or "prompt" not in tree:
        question = _text(tree.get("question"), "question", path)
    order = tree.get("order")
    if "order" in tree and order not in (TEXT_FIRST, QUESTION_FIRST):
        raise data_error(path, f"order: is none of {TEXT_FIRST}, {QUESTION_FIRST}")
    is_listed = tree.get("list")
    if "list" in tree and not isinstance(is_listed, bool):
        raise data_error(path, "list: is not true or false")
    given = {name: tree[name] for name in ("input", *OPTIONAL) if name in tree}
    threshold = given.get("thresholds", UNSURE_BELOW if kind == YESNO else 0.0)
    if type(threshold) in (int, float):
        given["thresholds"] = dict.fromkeys(listed, threshold)
    made = full(kind, question or "", listed, order, is_listed)
    if "prompt" in tree:
        given["prompt"] = tree["prompt"]
    return Full({**made, **given})


def full(
    kind: str,
    question: str,
    listed: "dict[str, str | None]",
    order: str | None = None,
    is_listed: bool | None = None,
    names: "Sequence[str] | None" = None,
) -> Full:
    """Return the full form of a question. listed: {answer as the model writes it: description or
    None}. order, is_listed: None: as it suits the answers. names: of the answers in the results;
    None: as the model writes them.
    """
    options = [option(name, about) for name, about in listed.items()]
    if is_listed is None:
        is_listed = any(listed.values()) or (
            kind != YESNO and sum(len(line.encode()) + 1 for line in options) <= MAX_LIST
        )
    if order is None:
        order = QUESTION_FIRST if is_listed and len(listed) > MANY_ANSWERS else TEXT_FIRST
    return Full(
        type=kind,
        options=options,
        input=dict(DEFAULT_INPUT),
        frame=templates.CHAT,
        prompt=prompt(kind, question, order, is_listed),
        answers=dict(zip(names or listed, spellings(list(listed)))),
        tokenisations="canonical",
    )


def is_word(name: str) -> bool:
    """Whether `name` can be an answer in lines of words: printable, without a space."""
    return not fault_of(name)


def fault_of(name: str) -> str:
    """Why `name` cannot be an answer, with a remedy; "" if it can: see `is_word`."""
    if name == UNSURE:
        return "is reserved for texts without a probable answer; write undecided"
    if not name or not name.isprintable():
        return "is not printable; write letters, digits or marks"
    if len(name) > MAX_NAME:
        return f"has more than {MAX_NAME} characters; write fewer"
    if " " in name:
        return f"has a space, by which an answer ends in the output; write {'-'.join(name.split())}"
    return ""


def check_names(
    names: "Sequence[Any]",
    fault: "Callable[[str], Error]",
    maximum: int = MAX_ANSWERS,
    what: str = "answers",
) -> None:
    """Raise fault(message) unless `names` are 2 to `maximum` answers, each a word of its own."""
    if not 2 <= len(names) <= maximum:
        raise fault(f"{len(names)} given; give 2 to {maximum} {what}")
    for i, name in enumerate(names, 1):
        if not isinstance(name, str) or not name:
            raise fault(
                f"number {i} is not a text, or is empty; put quotes around a number or true that is"
                " meant as text"
            )
        if name in names[: i - 1]:
            raise fault(f"{printable(name)} is given twice")
        if why := fault_of(name):
            raise fault(f"{printable(name)} {why}")


def check_given(names: "Sequence[str]", option: str) -> None:
    """Raise DataError naming `option` unless `names`, which it gives, can be answers."""
    if len(names) == 1:
        raise data_error(option, "1 answer; give at least two")
    check_names(names, lambda message: data_error(option, message))


def ad_hoc(text: str, answers: "str | Sequence[str]") -> "dict[str, Any]":
    """Return the typed question of `-q TEXT --answers A,B`, as its file would be parsed.

    answers: the words, or one text of them with commas between. yes and no make a yesno question,
    others a choice.
    """
    if isinstance(answers, str):
        answers = [word.strip() for word in answers.split(",")]
    if list(answers) == ["yes", "no"]:
        return {"type": YESNO, "question": text}
    return {"type": CHOICE, "question": text, "answers": list(answers)}


def option(name: str, about: str | None = None) -> str:
    """Return the line that lists an answer. about: its description, or None."""
    return f"- {name}: {' '.join(about.split())}" if about else f"- {name}"


def other_order(segments: "Sequence[tuple[str, str]]") -> str | None:
    """Return the `order` that a typed question's prompt does not have; None for a prompt that was
    not made by `prompt`.
    """
    first = segments[0]
    if first == ("text", BEFORE_TEXT):
        return QUESTION_FIRST
    return TEXT_FIRST if first[0] == "text" and first[1].startswith(BEFORE_QUESTION) else None


def listing(options: "Sequence[str]", shift: int = 0) -> str:
    """Return the text of the prompt segment `options`: lines, the one numbered `shift` first."""
    return "\n".join((*options[shift:], *options[:shift]))


def level(p: "Sequence[float]") -> float:
    """Return the expected level, from 0 to K - 1, of probabilities `p` [K]. Summed in order."""
    total = 0.0
    for i, x in enumerate(p):  # sum() rounds differently from Python 3.12 on
        total += i * x
    return total


def nearest(p: "Sequence[float]") -> int:
    """Return the index of the level nearest to the expected one."""
    return min(int(level(p) + 0.5), len(p) - 1)


def number(v: "Verdict") -> float:
    """Return the number behind the answer in a plain line: the level, else the probability."""
    return v.score if v.level is None else v.level


def prompt(kind: str, question: str, order: str, is_listed: bool) -> "list[Any]":
    """Return the prompt segments of a typed question.

    Of the wordings that were tried with SmolLM2-135M-Instruct and Gemma 3 270M these gave the
    answers the most mass.
    """
    near, far = "Answer with one of these words.", "Answer with one of the words above."
    if kind == YESNO:
        near = far = "Answer yes or no."
    elif not is_listed:
        near = far = "Answer with one word."
    lines = [{"text": "\n"}, "options"] if is_listed else []
    if order == TEXT_FIRST:
        return [
            {"text": BEFORE_TEXT},
            "input",
            {"text": f"\n---\n\nQuestion: {question}"},
            *lines,
            {"text": f"\n{near}" if is_listed else f" {near}"},
        ]
    return [
        {"text": f"{BEFORE_QUESTION}{question}"},
        *lines,
        {"text": "\n\nText:\n---\n"},
        "input",
        {"text": f"\n---\n\nQuestion: {question} {far}"},
    ]


def spellings(words: "Sequence[str]") -> list[list[str]]:
    """Return the spellings of each answer: the word, and with a space before it. Of few answers
    also both with the first letter in the other case; a changed spelling that two answers would
    have is given to neither.
    """
    changed = _cased if len(words) <= MANY_ANSWERS else lambda word: [word]
    forms = [dict.fromkeys(changed(word)) for word in words]
    taken: dict[str, int] = {}
    for of in forms:
        for form in of:
            taken[form] = taken.get(form, 0) + 1
    out = []
    for word, of in zip(words, forms):
        kept = [form for form in of if form == word or taken[form] == 1]
        out.append([*kept, *(" " + form for form in kept)])
    return out


def _cased(word):
    yield word
    first, rest = word[:1], word[1:]
    if first.islower():
        yield first.upper() + rest
    elif rest == rest.lower():  # not of an abbreviation
        yield first.lower() + rest


def _listed(tree, kind, path):
    """Return {answer: description or None} in the order of the file."""
    key = ANSWERS_KEY[kind]
    if kind == YESNO:
        return _described(tree.get(key), path)
    maximum = MAX_LEVELS if kind == SCORE else MAX_ANSWERS
    what = "levels, low to high" if kind == SCORE else "answers"
    if key not in tree:
        raise data_error(path, f"{key}: the key is missing; give 2 to {maximum} {what}")
    value = tree[key]
    if not isinstance(value, (dict, list)):
        raise data_error(path, f"{key}: is neither a list nor a mapping of 2 to {maximum} {what}")
    check_names(list(value), lambda message: data_error(path, f"{key}: {message}"), maximum, what)
    listed = {}
    for name in value:
        about = value[name] if isinstance(value, dict) else None
        if about is not None:
            about = _text(about, f"{key}.{printable(name)}", path)
        listed[name] = about
    return listed


def _described(value, path):
    """Return the answers of a yesno question. value: the key `answers`, or None."""
    listed = {"yes": None, "no": None}
    if value is None:
        return listed
    if not isinstance(value, dict):
        raise data_error(path, "answers: is not a mapping of yes and no to descriptions")
    for name, about in value.items():
        if name not in listed:
            raise data_error(
                path, f"answers: a question of type yesno has yes and no, not {printable(name)}"
            )
        if about is not None:
            listed[name] = _text(about, f"answers.{name}", path)
    return listed


def _text(value, where, path):
    if not isinstance(value, str) or not value.strip():
        raise data_error(path, f"{where}: is not a text, or is empty")
    if len(value) > MAX_TEXT:
        raise data_error(path, f"{where}: more than {MAX_TEXT} characters")
    return value
