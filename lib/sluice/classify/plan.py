"""The texts that `classify` is to classify, by its options, and the form of its output.

Imports are few, because every run of `classify` comes by here.
"""

import os
import stat

from ..faults import USAGE, Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

STDIN = "-"


class Texts:
    """The texts to classify, by the options of `classify`, and the form in which verdicts are
    printed.

    paths: FILE arguments. recursive, mbox, null, jsonl, as_json, as_text: flags. each: "line" or
    None. column: of a table, or None. select: [QUESTION=]ANSWER whose texts are printed, or None.
    state_file: path, or None. folders, mboxes: those of `paths` that are.

    Error 64 for options that do not go together.
    """

    def __init__(
        self,
        paths: "Sequence[str]" = (),
        recursive: bool = False,
        mbox: bool = False,
        each: str | None = None,
        column: str | None = None,
        as_text: bool = False,
        null: bool = False,
        select: str | None = None,
        state_file: str | None = None,
        jsonl: bool = False,
        as_json: bool = False,
    ) -> None:
        self.paths = list(paths)
        self.recursive, self.mbox, self.each, self.column = recursive, mbox, each, column
        self.as_text, self.select, self.state_file = as_text, select, state_file
        self.jsonl, self.as_json, self.null = jsonl, as_json, null
        self._check()
        looks = not (jsonl or each or column is not None or as_text)
        self.folders = [p for p in self.paths if p != STDIN and os.path.isdir(p)]
        self.mboxes = [
            p
            for p in self.paths
            if looks and p != STDIN and p not in self.folders and _holds_messages(p)
        ]

    def _check(self):
        """Raise Error 64 for options that do not go together."""
        forms = {
            "--jsonl": self.jsonl,
            "--each": self.each,
            "--csv": self.column is not None,
            "--mbox": self.mbox,
            "--text": self.as_text,
        }
        given = [name for name, is_given in forms.items() if is_given]
        if len(given) > 1:
            raise Error(USAGE, f"{given[0]} and {given[1]} exclude each other")
        if given and given[0] in ("--each", "--csv") and len(self.paths) > 1:
            raise Error(USAGE, f"{given[0]}: reads one FILE, or stdin")
        if self.recursive and (not self.paths or given and given[0] in ("--jsonl", "--each")):
            raise Error(USAGE, "--recursive: needs a folder as FILE")
        if self.null and (self.jsonl or self.as_json or self.column is not None):
            raise Error(USAGE, "--null: ends lines of names, and JSON and CSV have none")
        if self.as_json and (self.select is not None or self.column is not None):
            other = "--csv" if self.select is None else "--select"
            raise Error(USAGE, f"--json and {other} exclude each other")

    def are_many(self) -> bool:
        """Whether the answer is a line per text. It depends on what was asked for, not on the
        number of texts: options, a folder, an mbox with several messages, or several FILEs.
        """
        return bool(
            self.jsonl
            or self.each
            or self.column is not None
            or self.mbox
            or self.recursive
            or self.null
            or self.select is not None
            or self.state_file
            or len(self.paths) > 1
            or self.folders
            or self.mboxes
        )

    def are_messages(self) -> bool:
        """Whether all texts are messages (RFC 5322): those of mboxes and Maildirs are."""
        n = len(self.mboxes)
        if self.folders:
            from ..texts import folder

            n += sum(map(folder.is_maildir, self.folders))
        return self.mbox or 0 < n == len(self.paths)

    def count(self) -> int | None:
        """The number of texts, if it is known without reading them: of files in folders."""
        if self.mbox or self.mboxes or self.each or self.jsonl or self.column is not None:
            return None
        if not self.paths or STDIN in self.paths:
            return None
        from ..texts import folder

        n = len(self.paths) - len(self.folders)
        return n + sum(1 for p in self.folders for _ in folder.paths(p, self.recursive))


def _holds_messages(path):
    """Whether the file at `path` is an mbox with several messages. Reads a few bytes of others."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # what is read from a pipe is gone
            return False
        with open(path, "rb", buffering=0) as f:
            if f.read(5) != b"From ":
                return False
    except (OSError, ValueError):  # reading the text says why
        return False
    from ..texts import one_file

    return one_file.file_holds_messages(path)
