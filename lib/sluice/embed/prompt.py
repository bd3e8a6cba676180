"""What stands around a text before it is embedded, from a YAML file.

    before: "Instruct: Find passages that answer the query\nQuery:"
    after: ""                     # optional
    pooling: last                 # optional: last, mean or cls, in place of the model's own

Text and prompt are tokenized as one, as the models were trained. Neither becomes a control token.
"""

import os

from .. import stream
from ..faults import NO_INPUT, Error, data_error, printable
from ..model.architecture import POOLINGS

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUNDLED = os.path.join(HERE, "configs", "embed")
NAMES = ("search", "similarity")
KEYS = ("before", "after", "pooling")
MAX_BYTES = 64 << 10


class Prompt:
    """before, after: bytes around the text. pooling: one of POOLINGS, or None."""

    def __init__(self, before: bytes = b"", after: bytes = b"", pooling: str | None = None) -> None:
        self.before, self.after, self.pooling = before, after, pooling


def read(name: str) -> Prompt:
    """Return the Prompt in the file `name`, or the bundled one that is called so.

    Raises Error 66 for an unknown name, DataError naming file and key, or OSError.
    """
    path = name
    if os.sep not in name and not name.endswith((".yaml", ".yml")):
        if name not in NAMES:
            raise Error(
                NO_INPUT,
                f"-q {printable(name)}: unknown; use {', '.join(NAMES)}, or a path that has"
                ' "/" or ends in ".yaml"',
            )
        path = os.path.join(BUNDLED, f"{name}.yaml")
    from .. import yamlfile

    return parse(yamlfile.parse(stream.read_file(path, MAX_BYTES), path), path)


def parse(tree: object, path: str) -> Prompt:
    """Return the Prompt of a parsed file. Raises DataError naming file and key."""
    if not isinstance(tree, dict) or not tree:
        raise data_error(path, f"is not a mapping; use {', '.join(KEYS)}")
    for key in tree:
        if key not in KEYS:
            raise data_error(path, f"there is no key {printable(str(key))}; use {', '.join(KEYS)}")
    before, after = (_text(tree.get(key, ""), key, path) for key in KEYS[:2])
    pooling = tree.get("pooling")
    if "pooling" in tree and pooling not in POOLINGS:
        raise data_error(path, f"pooling: is none of {', '.join(POOLINGS)}")
    return Prompt(before, after, pooling)


def _text(value, key, path):
    if not isinstance(value, str):
        raise data_error(path, f"{key}: is not a text; put quotes around a number or true")
    return value.encode()
