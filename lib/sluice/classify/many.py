"""Classify many texts: files, folders, mboxes, lines, tables and JSON lines.

A text that cannot be classified never stops the rest. It is named on stderr, its place in the
output says "error", and the exit status is 65 at the end.
"""

import os

from .. import stream
from ..faults import BAD_DATA, Error, data_error
from ..jsonl import BadLine, lines_at_once
from ..messages import say as to_stderr
from ..probability.doubts import Doubts
from ..texts import folder, objects, sources
from ..texts.one_file import called, open_path
from ..texts.sources import Item
from . import writers
from .plan import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from ..texts.state import State
    from .classifier import Verdict
    from .panel import Panel
    from .plan import Texts
    from .replay import Replay
    from .writers import Found, Output

    class Answering(Protocol):
        """What answers texts: a Panel, or what embeds or ranks them."""

        def prepare(self) -> None: ...
        def ask_many(self, inputs: Sequence[bytes]) -> Iterator[Any]: ...


def run(
    texts: "Texts",
    panel: "Panel",
    say: "Callable[[str], None]",
    progress: "Callable[[int], None] | None" = None,
    note: "Callable[[Item, list[Verdict]], None] | None" = None,
    save_prior: str | None = None,
) -> int:
    """Classify all of `texts`; print the verdicts. Returns the exit status.

    progress: called with the number of texts that were done since the last call. note: called with
    a text and its verdicts before these are printed. save_prior: path of a file for the prior of
    the first question, or None. Raises DataError
    at the end if there were bad texts, and Error 64 for a --select that the questions lack.
    """
    doubts = Doubts(panel)
    answering: Panel | Replay = panel
    if any(c.asked_prior and c.asked_prior.kind == "texts" for c in panel.classifiers):
        answering, progress = _read_first(texts, panel, progress, bool(note)), None
    if save_prior:
        from ..probability import priors

        priors.save(save_prior, panel.first)
    source, writer = _source_and_writer(texts, panel, say)
    if len(texts.paths) < 2:
        writer.name = called(*texts.paths or [STDIN])
    state = None
    if texts.state_file:
        from ..texts.state import State

        state = State(texts.state_file, _key(texts, panel), 1, _learned(panel))
        if state.has_learned:
            say(
                f"{texts.state_file}: something was learned or forgotten since this run began;"
                " the answers so far stay"
            )
    if not state or not state.n:
        writer.begin()
        writer.flush()
    n = run_source(answering, source, writer, say, state, progress, note, doubts)
    for line in doubts.lines():
        say(line)
    code = outcome(n, writer, say)
    return code or (1 if texts.select is not None and not n.selected else 0)


def outcome(
    n: "Counts", writer: "Output", say: "Callable[[str], None]", what: str = "answer"
) -> int:
    """Say at the end which texts have no answer (`what`). Returns the exit status, 0 or 65.

    Raises DataError if there were bad texts, unless all is said.
    """
    if n.missing:
        say(f"{writer.name}: {n.missing} of {n.all} texts have no {what}, because they are empty")
    if n.bad == n.all == 1 and not writer.says_errors:
        return BAD_DATA
    if n.bad:
        which = 'lines are invalid; their objects have "error"'
        if not writer.says_errors:
            which = f"texts have no {what}, because of errors"
        raise data_error(writer.name, f"{n.bad} of {n.all} {which}")
    return 0


def _read_first(texts: "Texts", panel: "Panel", progress: "Any", keeps_text: bool) -> "Replay":
    """Classify all texts, and find the prior of each question over them."""
    from . import replay

    back = replay.begin_twice(texts.paths or [STDIN])
    found = replay.Replay(panel, keeps_text)
    source, writer = _source_and_writer(texts, panel)
    found.read(source, progress)
    found.set_priors(writer.name)
    back()
    return found


def _key(texts, panel):
    """What a state must have in common with this run."""
    from ..question.calibration import digest

    form = texts.each, texts.column, texts.select, texts.as_json, texts.null, texts.jsonl
    questions = [
        f"{q.name} {digest(q)} {q.thresholds} {q.scale} {q.bias}"
        for q in (c.question for c in panel.classifiers)
    ]
    return {
        "model": panel.model.file.id[:8].hex(),
        "question": " ".join(questions),
        "arithmetic": panel.model.arithmetic,
        "form": " ".join(map(str, form)),
        "fit": " ".join(c.fitted.digest if c.fitted else "-" for c in panel.classifiers),
        "calibration": " ".join(
            os.path.abspath(c.learned.path) if c.learned else "-" for c in panel.classifiers
        ),
        "rule file": panel.first.rules.origin if panel.first.rules else "-",
    }


def _learned(panel):
    """A digest of what was learned; None with --auto-learn, by which a run changes it."""
    if any(c.auto for c in panel.classifiers):
        return None
    sections = [c.learned and c.learned.section(c.model.file) for c in panel.classifiers]
    return " ".join(s.digest() if s else "-" for s in sections)


def source_of(texts: "Texts", panel: "Panel") -> "Iterable[list[Item]]":
    """The texts, in lists of those that may be classified together."""
    return _source_and_writer(texts, panel, to_stderr)[0]


def _source_and_writer(texts, panel, say=None):
    paths = texts.paths or [STDIN]
    end = b"\0" if texts.null else b"\n"
    selected = None if texts.select is None else panel.selects(texts.select)
    if texts.column is not None:
        table = _table_at(paths[0])
        items = _table_items(table, table.column(texts.column), say)
        return sources.groups(items), writers.Rows(panel, table, selected)
    by_name = bool(texts.folders)
    source = plain_source(texts, panel.is_mail, panel.first.as_mail, bool(selected))
    if selected:
        return source, writers.Selected(panel, *selected, end, by_name)
    if texts.jsonl or texts.as_json:
        key = "id" if texts.jsonl else "name"
        return source, writers.Objects(panel, key, texts.as_json, by_name)
    return source, writers.Lines(panel, end, by_name)


def plain_source(
    texts: "Texts", is_mail: bool, as_mail: bool = False, keep: bool = False
) -> "Iterable[list[Item]]":
    """The texts, in lists of those that may go through a model together.

    is_mail: files are messages. as_mail: the texts of JSON lines are, too, as Latin-1. keep: Items
    of mboxes have `whole`.
    """
    paths = texts.paths or [STDIN]
    if texts.column is not None:
        table = _table_at(paths[0])
        return sources.groups(_table_items(table, table.column(texts.column), to_stderr))
    if texts.jsonl:
        return _json_items(paths, "latin-1" if as_mail else "utf-8")
    if texts.each:
        return sources.lines(paths[0], _open(paths[0]))
    return sources.Files(paths, is_mail, texts.recursive, texts.mbox, texts.as_text, keep)


def _table_at(path):
    from ..texts.table import Table

    return Table(_reader(path), called(path))


def _open(path):
    return 0 if path == STDIN else open_path(path)


def _reader(path):
    fd = _open(path)
    return lambda: stream.read_some(fd)


class Counts:
    """Numbers of texts: all, bad (with an error), missing (empty) and selected."""

    def __init__(self) -> None:
        self.all = self.bad = self.missing = self.selected = 0


def run_source(
    panel: "Answering",
    source: "Iterable[list[Item]]",
    writer: "Output",
    say: "Callable[[str], None]",
    state: "State | None" = None,
    progress: "Callable[[int], None] | None" = None,
    note: "Callable[[Item, list[Verdict]], None] | None" = None,
    doubts: Doubts | None = None,
) -> Counts:
    """Classify the texts of `source`, and give each with its verdicts to `note` and `writer`."""
    n = Counts()
    left = state.n if state and not writer.by_name else 0  # texts that were answered before
    panel.prepare()
    for items in source:
        if state and writer.by_name:
            items = [item for item in items if folder.lasting_name(item.name) not in state.names]
        items, left = items[left:], max(0, left - len(items))
        for item, found in zip(items, found_of(panel, items)):
            n.all += 1
            n.missing += found is None
            if doubts and isinstance(found, list):
                doubts.add(found)
            if isinstance(found, Exception):
                n.bad += 1
                if not writer.says_errors:
                    say(writers.why(item, found))
            elif found and note:
                note(item, found)
            n.selected += writer.put(item, found)
            if writer.at_once:
                writer.flush()
        writer.flush()
        if state and items:
            names = [folder.lasting_name(item.name) for item in items] if writer.by_name else None
            state.done(len(items), names)
        if progress:
            progress(len(items))
    return n


def found_of(panel: "Answering", items: "Sequence[Item]") -> "Iterator[Found]":
    """Yield what was found for each Item. Raises an Error that is not about a text."""
    answered = panel.ask_many([item.data for item in items if item.data is not None])
    for item in items:
        found: Any = item.error or (None if item.data is None else next(answered))
        if isinstance(found, Error) and found.code != BAD_DATA:
            raise found
        yield found


def _table_items(table, column, say):
    """Yield an Item for each row of a Table, of the text in `column`. say: called at the end with
    what is doubtful about the table; None: not.
    """
    for row in table.rows():
        name = f"{table.name}:{row.line}"
        if row.error:
            yield Item(name, None, data_error(table.name, f"line {row.line} {row.error}"), row)
        elif not row.fields or not row.fields[column]:
            yield Item(name, None, whole=row)
        else:
            yield Item(name, table.bytes_of(row.fields[column]), whole=row)
    for line in table.doubts() if say else ():
        say(line)


def _json_items(paths, charset) -> "Iterator[list[Item]]":
    """Yield lists of Items of JSON lines: those that arrived together."""
    for path in paths:
        fd = _open(path)
        n = 0
        for arrived in lines_at_once(fd):
            items = []
            for line in arrived:
                n += 1
                items.append(_json_item(f"{path}:{n}", line, charset))
            yield from sources.groups(items)
        if fd:
            os.close(fd)


def _json_item(name, line, charset):
    try:
        id, data = objects.parse(line, charset)
        if not data:
            raise BadLine("text is empty", id)
    except BadLine as e:
        return Item(name, None, e, line, e.id)
    return Item(name, data, None, line, id)
