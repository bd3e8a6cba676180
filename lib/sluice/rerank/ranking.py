"""The texts that were found, best first. They lie in a file without a name, their places in memory.

Texts that are as probable as each other stay in the order in which they came.
"""

import tempfile

from .. import stream
from ..classify.writers import Output, why
from ..faults import one_line
from ..jsonl import BadLine, dump
from ..texts.sources import Item

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..classify.classifier import Verdict

IN_MEMORY = 1 << 24  # bytes of texts before they go into a file
PIECE = 1 << 16
YES = "yes"


class Ranking(Output):
    """key: the field in JSON that says which text it is, "name" or "id"; None: plain lines."""

    def __init__(self, key: str | None) -> None:
        super().__init__()
        self._key, self.says_errors = key, key == "id"
        # probability of each text, begin and length in _texts of what is printed, number
        self._found: list[tuple[float, int, int, int]] = []
        self._errors: list[bytes] = []
        self._texts = tempfile.SpooledTemporaryFile(IN_MEMORY)
        self._at = 0

    def put(self, item: Item, found: "Verdict | Exception | None") -> int:
        """Keep what was found of a text."""
        if isinstance(found, Exception):
            if self.says_errors:
                problem = str(found) if isinstance(found, BadLine) else why(item, found)
                self._errors.append(dump({"id": item.id, "error": problem}))
            return 0
        if found is None:
            return 0
        shown = self._shown(item)
        self._texts.write(shown)
        self._found.append((found.scores[YES], self._at, len(shown), len(self._found)))
        self._at += len(shown)
        return 0

    def _shown(self, item):
        """What is printed of a text besides its probability."""
        if self._key == "id":
            return dump({"id": item.id})[1:]
        name = item.name.encode("utf-8", "surrogateescape")
        line = item.whole if isinstance(item.whole, bytes) else None
        if self._key:
            fields = {"name": name.decode("utf-8", "backslashreplace")}
            if line is not None:
                fields["text"] = line.removesuffix(b"\r").decode("utf-8", "replace")
            return dump(fields)[1:]
        if line is None:
            line = one_line(item.name).encode("utf-8", "surrogateescape")
        return line + b"\n"

    def print(self, n: int | None = None) -> None:
        """Print the `n` best, or all, and the lines of JSON that had errors."""
        self._found.sort(key=lambda found: (-found[0], found[3]))
        for p, at, n_bytes, _ in self._found[:n]:
            self._texts.seek(at)
            head = f'{{"score": {p:.6f}, ' if self._key else f"{p:.6f}\t"
            self._out += [head.encode(), self._texts.read(n_bytes)]
            if len(self._out) > PIECE:
                self._flush()
        self._out += self._errors
        self._flush()

    def _flush(self):
        stream.write_all(1, b"".join(self._out))
        self._out.clear()

    def flush(self) -> None:
        """Do nothing: the first may come last."""
