"""Read and check a question: prompt, answers (labels), thresholds and calibration, in YAML.

    model: spam.gguf              # optional: a file next to this one, or in the package's data
    input:
      kind: mail                  # mail: a message (RFC 5322); text: the bytes are the text
      fold: true                  # optional: normalize the text (mail-text --normalize)
      head_ids: 384               # of a longer text the first 384 tokens
      tail_ids: 128               # and the last 128 are used
    frame: auto                   # optional: chat template; auto, or a name of templates.py
    prompt:                       # segments, tokenized one by one and joined as tokens
      - special: "<s>"            # a control token, given by its text
      - text: "Is this spam?"     # text, without control tokens
      - input                     # exactly once
    answers:                      # label -> its spellings, the texts that count for it
      yes: ["yes"]
      no: ["no"]
    aliases: {spam: yes, ham: no} # optional: other words for the answers in labelled texts
    tokenisations: all            # optional: all token sequences of a spelling; canonical: the
                                  # tokenizer's only
    thresholds: {yes: 0.9}        # optional: below it the best label becomes "unsure"
    calibration:                  # optional: P(label) ~ exp(scale * log P + bias)
      scale: 1.0
      bias: {yes: 0.0}
    prior: {kind: content-free}   # optional, see priors.py; or log_p: {yes: -1.2, no: -0.3}
    orders: 2                     # optional, see orders.py: average over orders of listed answers

A file may also be a list of questions that are asked together. Each is the name of a bundled
question, the path of another file, or a mapping as above with the key `name`.

A model name without "/" is also looked up in the package's data directory. An unknown key is an
error, so a misspelt threshold is not a threshold of 0.
"""

import os

from .. import stream
from ..faults import NO_INPUT, Error, data_error, printable
from ..kernels import lib
from . import kinds, templates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# the package's directory, which has configs/ and data/
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUNDLED, DATA = os.path.join(HERE, "configs"), os.path.join(HERE, "data")
MAX_BYTES = 64 << 10  # of the file
MAX_TOKENS = 1 << 17  # of head or tail
MAX_ANSWERS, MAX_SPELLINGS = kinds.MAX_ANSWERS, 64
MAX_SPELLING_BYTES = 256
MAX_ALIASES = 1000
UNSURE = kinds.UNSURE
SUFFIX = ".question"  # of a parsed question in a cache
MAX_CACHED = 64  # parsed questions in a cache
MAX_QUESTIONS = 64  # in a file


class Question:
    """A checked question. Its attributes are named as the keys of the file.

    path: str, the file. name: str, in output. model, frame: str or None. kind, tokenisations: str.
    fold: bool. head_ids, tail_ids: int. prompt: [(kind, text)]. answers: {label: [spelling]}.
    type: "yesno", "choice", "score", or None for a question in full form. options: the lines that
    list the answers of a typed question, in their order; [] in full form. aliases: {word: label}.
    thresholds, bias: {label: float} for every label. scale: float. prior: priors.Asked or None.
    orders: int.

    Raises DataError naming file and key.
    """

    model: "Any"
    head_ids: int
    tail_ids: int
    type: str | None
    options: list[str]

    def __init__(self, tree: "Any", path: str, name: str | None = None) -> None:
        self.path, self.name = path, name or name_of(path)
        self.type, self.options = None, []
        if isinstance(tree, dict) and "type" in tree:
            tree = dict(tree if isinstance(tree, kinds.Full) else kinds.expand(tree, path))
            self.type, self.options = tree.pop("type"), tree.pop("options")
        top = self._dict(
            tree,
            "",
            ("input", "prompt", "answers"),
            kinds.OPTIONAL,
        )
        self.model = self._string(top, "model", 1000) if "model" in top else None
        self.frame = (
            self._choice(top, "frame", (templates.AUTO, *templates.ALL, templates.CHAT))
            if "frame" in top
            else None
        )
        self.tokenisations = (
            self._choice(top, "tokenisations", ("all", "canonical"))
            if "tokenisations" in top
            else "all"
        )
        self._read_input(top["input"])
        self._read_prompt(top["prompt"])
        self._read_answers(top["answers"])
        self.aliases = self._read_aliases(top.get("aliases", {}))
        self.thresholds = self._per_answer(top.get("thresholds", {}), "thresholds", 0, 1)
        calibration = self._dict(top.get("calibration", {}), "calibration", (), ("scale", "bias"))
        self.scale = self._number(calibration.get("scale", 1.0), "calibration.scale", 1e-3, 1e3)
        self.bias = self._per_answer(calibration.get("bias", {}), "calibration.bias", -1e3, 1e3)
        self.prior, self.orders = None, 1
        if "prior" in top:
            from ..probability import priors

            self.prior = priors.asked_by(self, top["prior"])
        if "orders" in top:
            from . import orders

            n = top["orders"]
            if type(n) is not int or not 1 <= n <= orders.MAX_ORDERS:
                raise self._data_error("orders", f"is not a number from 1 to {orders.MAX_ORDERS}")
            if n > 1:
                orders.check(self, n)
            self.orders = n

    def _read_input(self, value):
        value = self._dict(value, "input", ("kind", "head_ids", "tail_ids"), ("fold",))
        self.kind = self._choice(value, "kind", ("mail", "text"), "input.")
        self.fold = value.get("fold", False)
        if not isinstance(self.fold, bool):
            raise self._data_error("input.fold", "is not true or false")
        for key in ("head_ids", "tail_ids"):
            n = value[key]
            if type(n) is not int or not 0 <= n <= MAX_TOKENS:
                raise self._data_error(
                    f"input.{key}", f"is not a number of tokens from 0 to {MAX_TOKENS}"
                )
            setattr(self, key, n)
        if not self.head_ids + self.tail_ids:
            raise self._data_error("input", "head_ids and tail_ids are both 0: no text is left")

    def _read_prompt(self, value):
        self.prompt = []
        for i, segment in enumerate(self._list(value, "prompt")):
            where = f"prompt, segment {i + 1}"
            if segment == "input":
                self.prompt.append(("input", ""))
                continue
            if segment == "options" and self.options:
                self.prompt.append(("options", kinds.listing(self.options)))
                continue
            if not (
                isinstance(segment, dict)
                and len(segment) == 1
                and set(segment) <= {"special", "text"}
            ):
                raise self._data_error(where, "is none of: input, {special: ...}, {text: ...}")
            kind, text = next(iter(segment.items()))
            self.prompt.append((kind, self._text(text, where, MAX_BYTES)))
        n = sum(kind == "input" for kind, _ in self.prompt)
        if n != 1:
            raise self._data_error(
                "prompt", f"the segment input occurs {n} times; exactly one is needed"
            )

    def _read_answers(self, value):
        if not isinstance(value, dict) or not 2 <= len(value) <= MAX_ANSWERS:
            raise self._data_error(
                "answers", f"is not a mapping of 2 to {MAX_ANSWERS} answers to their spellings"
            )
        self.answers, seen = {}, {}
        for name, spellings in value.items():
            where = f"answers.{name}" if name.isprintable() else f"answers.{printable(name)}"
            if why := kinds.fault_of(name):
                raise self._data_error("answers", f"{printable(name)} {why}")
            for s in self._list(spellings, where, MAX_SPELLINGS):
                self._text(s, where, MAX_SPELLING_BYTES)
                if s in seen:
                    raise self._data_error(
                        where, f"the spelling {printable(s)} occurs twice; {seen[s]} has it, too"
                    )
                seen[s] = name
            self.answers[name] = list(spellings)

    def _read_aliases(self, value):
        if not isinstance(value, dict) or len(value) > MAX_ALIASES:
            raise self._data_error(
                "aliases", f"is not a mapping of at most {MAX_ALIASES} words to answers"
            )
        for word, answer in value.items():
            if not word.isprintable() or not 0 < len(word) <= 80 or word == UNSURE:
                raise self._data_error(
                    "aliases",
                    f"{printable(word)} is not a printable word, or is the reserved word {UNSURE}",
                )
            if word in self.answers:
                raise self._data_error("aliases", f"{printable(word)} is an answer")
            self._choice(value, word, tuple(self.answers), "aliases.")
        return dict(value)

    # Types of values.

    def _data_error(self, where, what):
        return data_error(self.path, f"{where}: {what}" if where else what)

    def _dict(self, value, where, needed, optional):
        if not isinstance(value, dict):
            raise self._data_error(where, "is not a mapping of keys to values")
        for key in value:
            if key not in needed and key not in optional:
                raise self._data_error(
                    where,
                    f"there is no key {printable(key)}; use {', '.join((*needed, *optional))}",
                )
        for key in needed:
            if key not in value:
                raise self._data_error(where, f"the key {key} is missing")
        return value

    def _list(self, value, where, maximum=1000):
        if not isinstance(value, list) or not 1 <= len(value) <= maximum:
            raise self._data_error(where, f"is not a list of 1 to {maximum}")
        return value

    def _text(self, value, where, maximum):
        if not isinstance(value, str) or not value:
            raise self._data_error(
                where,
                "is not a text, or is empty; put quotes around a number or true that is meant as"
                " text",
            )
        try:
            n_bytes = len(value.encode())
        except UnicodeEncodeError:
            raise self._data_error(
                where, "has half of a surrogate pair, which is not a character"
            ) from None
        if n_bytes > maximum:
            raise self._data_error(where, f"more than {maximum} bytes")
        return value

    def _string(self, tree, key, maximum):
        value = self._text(tree[key], key, maximum)
        if "\0" in value:
            raise self._data_error(key, "has a NUL")
        return value

    def _choice(self, tree, key, choices, prefix=""):
        if not isinstance(tree[key], str) or tree[key] not in choices:
            raise self._data_error(prefix + key, f"is none of {', '.join(choices)}")
        return tree[key]

    def _number(self, value, where, minimum, maximum):
        if type(value) not in (int, float) or not minimum <= value <= maximum:  # NaN fails, too
            raise self._data_error(where, f"is not a number from {minimum} to {maximum}")
        return float(value)

    def _per_answer(self, value, where, minimum, maximum):
        value = self._dict(value, where, (), tuple(self.answers))
        return {
            name: self._number(value.get(name, 0.0), f"{where}.{name}", minimum, maximum)
            for name in self.answers
        }


def name_of(path: str) -> str:
    """Return the name of the question in the file `path`: the file's name without its suffix."""
    return os.path.splitext(os.path.basename(path))[0]


def find(name: str) -> str:
    """Return the path of a question: `name` if it has "/" or ends in .yaml, else a bundled file.

    Raises Error 66 if no bundled question has this name.
    """
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return name
    bundled = sorted(f[:-5] for f in os.listdir(BUNDLED) if f.endswith(".yaml"))
    if name not in bundled:
        raise Error(
            NO_INPUT,
            f"-q {printable(name)}: unknown question; use {', '.join(bundled)}, or a path that has"
            ' "/" or ends in ".yaml"'
            + ("" if _is_name(name) else "; or give --answers A,B to ask this text"),
        )
    return os.path.join(BUNDLED, name + ".yaml")


def _is_name(text):
    """Whether `text` looks like the name of a question, not like its text."""
    return text.replace("-", "").replace("_", "").replace(".", "").isalnum()


def model_path(question: "Question") -> str:
    """Return the path of the question's model: next to the question, else in the package's data."""
    adjacent = os.path.join(os.path.dirname(question.path), question.model)
    bundled = os.path.join(DATA, question.model)
    return (
        bundled
        if os.sep not in question.model and os.path.exists(bundled) and not os.path.exists(adjacent)
        else adjacent
    )


def read(path: str, cache_dir: str | None = None) -> "Question":
    """Read the question in the file `path`, which must be the only one there: see `read_all`."""
    return read_all(path, cache_dir, only_one=True)[0]


def read_all(path: str, cache_dir: str | None = None, only_one: bool = False) -> "list[Question]":
    """Read the questions in the file `path`: one, or with only_one=False a list.

    Raises DataError naming file and key, or OSError.

    cache_dir: directory for parsed files, or None. Parsing YAML takes longer than a small model's
    evaluation, so the parsed file is cached with its text, under the CRC of the text. It is used
    for the same text only, and checked as a file is. Cache errors are ignored. The package has the
    parsed files of the bundled questions (`write_bundled`).
    """
    data = stream.read_file(path, MAX_BYTES)
    cached = cache_dir and _cache_name(cache_dir, data)
    for name, is_ours in ((_cache_name(DATA, data), True), (cached, False)):
        try:
            if name:
                return _questions(_load(name, data, is_ours), path, cache_dir, only_one)
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            Error,
        ):  # absent, damaged, or written by others
            pass
    from .. import yamlfile

    tree = yamlfile.parse(data, path)
    questions = _questions(tree, path, cache_dir, only_one)
    if cached:
        try:
            _store(cached, data, tree)
        except (OSError, Error):
            pass
    return questions


def _questions(tree, path, cache_dir, only_one):
    """Return the Questions of a parsed file: one, or a list of names, paths and questions that have
    a name.
    """
    if not isinstance(tree, list):
        return [Question(tree, path)]
    if only_one:  # lists do not nest, so there is no circle
        raise data_error(path, "is a list of questions, and one is needed here")
    if not 1 <= len(tree) <= MAX_QUESTIONS:
        raise data_error(path, f"is not a list of 1 to {MAX_QUESTIONS} questions")
    found = []
    for i, item in enumerate(tree, 1):
        if isinstance(item, str) and item and "\0" not in item:
            other = find(item)
            if other == item:  # a path, from where this file is
                other = os.path.join(os.path.dirname(path), item)
            found.append(read(other, cache_dir))
        elif isinstance(item, dict) and isinstance(item.get("name"), str):
            rest = {key: value for key, value in item.items() if key != "name"}
            if not item["name"].isprintable() or not 1 <= len(item["name"]) <= 80:
                raise data_error(path, f"question {i}: name is not printable, or is too long")
            found.append(Question(rest, path, item["name"]))
        else:
            raise data_error(
                path, f"question {i}: is no name or path of a question, and no mapping with a name"
            )
    return found


def _cache_name(cache_dir, data):
    return os.path.join(cache_dir, f"{lib.crc32c(0, data, len(data)):08x}{SUFFIX}")


def _checksum(data):
    """Return the first line of a cached question: the CRC-32C of the rest."""
    return b"%08x\n" % lib.crc32c(0, data, len(data))


def _load(path, data, is_ours):
    """Load the parsed form of `data` from `path`, in the package (is_ours) or in a cache."""
    with open(path if is_ours else _trusted(path), "rb") as f:
        checksum, data_kept = f.read(9), f.read(16 * MAX_BYTES)
    import json

    if checksum != _checksum(data_kept):
        raise ValueError("damaged")
    text, tree = json.loads(data_kept)
    if text.encode() != data:
        raise ValueError("of another file")
    return tree


def _trusted(path):
    from ..system import cache_directory, files

    cache_directory.check(os.path.dirname(path))
    return files.open_trusted(path)


def _packed(data, tree):
    """Return the bytes of a cached question."""
    import json

    cached = json.dumps([data.decode(), tree]).encode()
    return _checksum(cached) + cached


def _store(path, data, tree):
    from ..system import cache_directory, files

    cache_directory.prepare(os.path.dirname(path))
    cache_directory.trim(os.path.dirname(path), SUFFIX, MAX_CACHED)
    fd, temporary = files.nameless(os.path.dirname(path))
    with open(fd, "wb") as f:
        f.write(_packed(data, tree))
        f.flush()
        files.publish(fd, temporary, path)


def write_bundled(directory: str = DATA) -> None:
    """Write the parsed form of each bundled question to `directory`; delete all other ones."""
    from .. import yamlfile
    from ..system import files

    for name in os.listdir(directory):
        if name.endswith(SUFFIX):
            os.unlink(os.path.join(directory, name))
    for name in sorted(os.listdir(BUNDLED)):
        if name.endswith(".yaml"):
            with open(os.path.join(BUNDLED, name), "rb") as f:
                data = f.read()
            packed = _packed(data, yamlfile.parse(data, name))
            files.write(_cache_name(directory, data), lambda f: f.write(packed))
