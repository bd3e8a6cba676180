"""The file of what was learned: it depends on the texts alone, and no damage goes unseen or ends
more than one line.
"""

import os
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.faults import DataError, Error
from sluice.learn import auto, book, evidence, layout, learned, teach
from sluice.learn.teach import Lesson

SALT = bytes(range(16))
MODEL, QUESTION = b"modelone", b"question"
WORDS = "ash birch cedar elm fir hazel larch maple oak pine rowan yew from:ann has:list-id".split()
PRIOR = [1.5, 0.5, 0.0]


def new(k=2):
    found = book.Book(SALT)
    part = book.Part(MODEL, QUESTION, k, [1.5, *[0.0] * k] if k != 2 else PRIOR)
    found.parts[MODEL, QUESTION] = part
    return found, part


def change(found, part, lessons):
    """As teach.Teacher does, with a date for each text."""
    teacher = teach.Teacher(None, "")
    teacher.put(found, part, lessons)
    for text in part.texts.values():
        text.date = 1_700_000_000


def lesson(i, label, draw_seed=0, k=2, is_auto=False):
    draw = random.Random(i * 1000 + draw_seed)
    p = [draw.random() for _ in range(k)]
    words = draw.sample(WORDS, draw.randrange(len(WORDS)))
    log_p = [float(np.log(x / sum(p))) for x in p]
    return Lesson(b"%08d" % i, label, log_p, words, is_auto)


def dumped(lessons, k=2):
    found, part = new(k)
    change(found, part, lessons)
    part.fit()
    return found.dump()


def write(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)


def section_of(path):
    (section,) = learned.sections(str(path), layout.Opened(str(path)))
    return section


taught_texts = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=25)


@settings(max_examples=60)
@given(taught_texts, st.randoms())
def test_order_and_repetition_change_no_bit(texts, draw):
    texts = list(dict(texts).items())  # of a text one answer
    one = dumped([lesson(i, label, k=3) for i, label in texts], 3)
    again = texts + texts[: len(texts) // 2]
    draw.shuffle(again)
    assert dumped([lesson(i, label, k=3) for i, label in again], 3) == one


@settings(max_examples=60)
@given(taught_texts, taught_texts, st.integers(0, 25))
def test_forgetting_undoes_whatever_came_between(texts, more, n_first):
    texts = list(dict(texts).items())
    more = [(i + 100, label) for i, label in dict(more).items()]
    one = dumped([lesson(i, label, k=3) for i, label in texts], 3)
    lessons = [lesson(i, label, k=3) for i, label in texts[:n_first] + more + texts[n_first:]]
    lessons += [Lesson(b"%08d" % i, None) for i, _ in more]
    assert dumped(lessons, 3) == one


@settings(max_examples=40)
@given(taught_texts, st.integers(0, 30))
def test_another_answer_replaces_the_one_before(texts, i):
    before = [lesson(j, label, k=3) for j, label in texts]
    assert dumped([*before, lesson(i, 0, k=3), lesson(i, 2, k=3)], 3) == dumped(
        [*(x for x in before if x.name != b"%08d" % i), lesson(i, 2, k=3)], 3
    )


@settings(max_examples=40)
@given(texts=taught_texts)
def test_what_was_written_is_read_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("book") / "f"
    data = dumped([lesson(i, label, k=3) for i, label in texts], 3)
    read = book.read(write(path, data))
    assert read.dump() == data
    assert not read.parts or section_of(path).n_texts == read.n_texts


def test_counts_of_a_verdict_are_those_of_the_texts(tmp_path):
    lessons = [lesson(i, i % 2) for i in range(20)]
    section = section_of(write(tmp_path / "f", dumped(lessons)))
    totals = [sum(bool(x.words) and x.label == a for x in lessons) for a in (0, 1)]
    rows = [
        [sum(word in x.words.split("\n") and x.label == a for x in lessons) for a in (0, 1)]
        for word in WORDS
    ]
    of_sender = [digest & 1 for digest in layout.Salted(SALT).tokens(WORDS)]
    t, weights = section.evidence([*WORDS, "unknown"])
    assert t == evidence.of(rows, totals, of_sender)[0] and any(t)
    assert set(weights) == {word for word, row in zip(WORDS, rows) if any(row)}
    for x in lessons:
        digest = layout.Salted(SALT).text(x.name)
        assert digest in list(section._texts)


def test_long_steps_between_tokens_are_kept(tmp_path):
    """Indices that are further apart than a code can say."""
    found, part = new()
    draw = np.random.default_rng(1)
    for i in range(30):
        tokens = np.unique(draw.integers(0, 2**32, 8000, dtype=np.uint32))
        part.texts[i] = book.Text(0, 7, False, np.array([-1, -1], np.float32), tokens)
    few = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    part.texts[99] = book.Text(0, 7, False, np.array([-1, -1], np.float32), few)
    data = found.dump()
    part = book.read(write(tmp_path / "f", data)).parts[MODEL, QUESTION]
    assert part.texts[99].tokens.tolist() == few.tolist()
    for step in (layout.JUMP - 1, layout.JUMP, layout.JUMP + 1, 2 * layout.JUMP, 1):
        which = np.array([step - 1, 2 * step - 1])
        codes, starts = book._coded(which, np.array([2, 0]))
        back, n_each = book._decoded(codes, starts)
        assert back.tolist() == which.tolist() and n_each.tolist() == [2, 0]


# A full file.


def test_oldest_give_way_when_the_file_is_full(monkeypatch, tmp_path):
    monkeypatch.setattr(layout, "MAX_TEXTS", 7)
    found, part = new()
    change(found, part, [lesson(i, i % 2) for i in range(10)])
    salted = layout.Salted(SALT)
    for i in range(10):
        part.texts[salted.text(b"%08d" % i)].date = 1_700_000_000 + (i * 7) % 10
    latest = {d for d, x in part.texts.items() if x.date > 1_700_000_002}
    read = book.read(write(tmp_path / "f", found.dump()))
    assert set(read.parts[MODEL, QUESTION].texts) == latest
    monkeypatch.setattr(layout, "MAX_BYTES", 500)
    assert len(found.dump()) <= 500 and 0 < found.n_texts < 7
    newest = sorted(latest, key=lambda d: -part.texts[d].date if d in part.texts else 0)
    assert set(part.texts) == set(newest[: found.n_texts])


def test_part_that_changed_the_longest_ago_gives_way(monkeypatch):
    monkeypatch.setattr(layout, "MAX_SECTIONS", 2)
    found = book.Book(SALT)
    for n in (3, 1, 2):
        part = book.Part(b"%08d" % n, QUESTION, 2, PRIOR)
        text = book.Text(0, n, False, np.zeros(2, np.float32), np.zeros(0, np.uint32))
        part.texts[n] = text
        found.parts[part.model, QUESTION] = part
    found.dump()
    assert {model for model, _ in found.parts} == {b"00000002", b"00000003"}


def test_kept_tokens_do_not_depend_on_order_and_have_the_header_first():
    found, _ = new()
    words = [f"word{i}" for i in range(1000)] + [f"x:{i}" for i in range(100)]
    kept = found.kept(words)
    assert len(kept) == layout.MAX_KEPT and kept.tolist() == found.kept(set(words)).tolist()
    header = set(layout.Salted(SALT).tokens(f"x:{i}" for i in range(100)))
    assert header <= set(kept.tolist())


# --auto-learn.


def teach_auto(found, lessons):
    class Asked:
        pass

    part = found.parts[MODEL, QUESTION]
    real, auto.part_of = auto.part_of, lambda book, c, create: part
    try:
        auto._put(Asked(), found, {x.name: x for x in lessons})
    finally:
        auto.part_of = real
    return part


def test_texts_by_auto_learn_count_at_most_as_much_as_those_by_hand(tmp_path):
    found, part = new()
    change(found, part, [lesson(i, i % 2) for i in range(10)])
    n_own = [sum(x.label == a and len(x.tokens) > 0 for x in part.texts.values()) for a in (0, 1)]
    part = teach_auto(found, [lesson(i, 0, is_auto=True) for i in range(100, 160)])
    n_auto = sum(x.is_auto for x in part.texts.values())
    assert 0 < n_auto <= n_own[0]
    section = section_of(write(tmp_path / "f", found.dump()))
    assert section._totals[0] <= 2 * n_own[0] and section._totals[1] == n_own[1]
    # their answers are not the user's
    auto_digest = next(d for d, x in part.texts.items() if x.is_auto)
    at = list(section._texts).index(auto_digest)
    assert section._flags[at] == layout.AUTO


def test_texts_by_auto_learn_are_no_rows_of_the_fit():
    found, part = new()
    change(found, part, [lesson(i, i % 2) for i in range(10)])
    own, _ = part.left_out()
    part = teach_auto(found, [lesson(i, 0, is_auto=True) for i in range(100, 160)])
    assert [x.label for x in part.left_out()[0]] == [x.label for x in own]


def test_texts_by_auto_learn_count_nothing_while_an_answer_has_none_by_hand():
    found, part = new()
    change(found, part, [lesson(i, 1) for i in range(10)])
    change(found, part, [lesson(i, 0, is_auto=True) for i in range(100, 110)])
    assert part.counting() <= {d for d, x in part.texts.items() if not x.is_auto}


def test_text_by_hand_is_not_replaced_by_auto_learn():
    found, part = new()
    change(found, part, [lesson(1, 1), lesson(1, 0, is_auto=True), lesson(2, 0, is_auto=True)])
    change(found, part, [lesson(2, 1)])
    assert {(x.label, x.is_auto) for x in part.texts.values()} == {(1, False)}


# Damage.


def looked_at(path):
    """What a verdict does with a file: numbers, or DataError of one line."""
    try:
        for section in learned.sections(str(path), layout.Opened(str(path))):
            section.label((b"some text", None))
            if section.has_evidence:
                t, _ = section.evidence([*WORDS, *map(str, range(50))])
                assert all(abs(x) < 1e6 for x in t)
            assert all(abs(x) <= layout.MAX_NUMBER for x in section.joint.bias)
    except Error as e:
        assert e.code == 65 and "\n" not in str(e) and str(path) in str(e)
        return str(e)
    return None


def changed_or_refused(path):
    with pytest.raises(DataError) as e:
        book.read(str(path))
    assert str(e.value).startswith(f"{path}: ") and "\n" not in str(e.value)


@pytest.mark.full
def test_any_byte_damaged_is_refused_by_a_change_and_bounded_for_a_verdict(tmp_path):
    path = tmp_path / "f"
    data = dumped([lesson(i, i % 2) for i in range(6)])
    for n in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            write(path, data[:n] + bytes([data[n] ^ flip]) + data[n + 1 :])
            said = looked_at(path)
            changed_or_refused(path)
            assert said or n >= layout.HEAD.size + layout.ENTRY.size, n


def test_cut_or_longer_files_are_refused(tmp_path):
    path = tmp_path / "f"
    data = dumped([lesson(i, i % 2) for i in range(6)])
    for bad in [data[:n] for n in range(len(data))] + [data + b"\0", data * 2, bytes(5000)]:
        write(path, bad)
        assert looked_at(path)
        changed_or_refused(path)


def signed(data):
    """A file with sums that are right."""
    salt, entries, _ = layout.HEAD.unpack_from(data)[1], [], None
    n = layout.HEAD.unpack_from(data)[3]
    for i in range(n):
        entries.append(
            layout.Entry(*layout.ENTRY.unpack_from(data, layout.HEAD.size + 64 * i)[:-1])
        )
    body = data[layout.HEAD.size + 64 * n :]
    return layout.head_of(salt, entries, layout.checksum(body)) + body


@pytest.mark.full
def test_file_that_somebody_made_is_refused_or_harmless(tmp_path):
    """Right sums, and any bytes in the sections: no crash, no long loop, no number out of range."""
    path, draw = tmp_path / "f", random.Random(1)
    data = dumped([lesson(i, i % 2) for i in range(12)])
    begin = layout.HEAD.size + layout.ENTRY.size
    assert signed(data) == data
    n_refused = 0
    for _ in range(600):
        bad = bytearray(data)
        for _ in range(draw.choice((1, 1, 8, 200))):
            at = draw.randrange(begin, len(data))
            bad[at] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        write(path, signed(bytes(bad)))
        looked_at(path)
        try:
            found = book.read(str(path))
            for part in found.parts.values():
                part.fit()
            found.dump()
        except DataError as e:
            n_refused += 1
            assert "\n" not in str(e)
    assert 50 < n_refused < 600


def test_same_digest_without_end_is_not_counted_long(tmp_path):
    """All pairs of a file have the digest of one word."""
    path = tmp_path / "f"
    data = bytearray(dumped([lesson(i, i % 2) for i in range(12)]))
    entry = layout.parse("f", bytes(data), len(data))[1][0]
    begin, end = (entry.at + x for x in entry.offsets["pairs"])
    digest = layout.Salted(SALT).tokens(["oak"])[0]
    data[begin:end] = struct.pack("<Q", digest << 32 | 7) * ((end - begin) // 8)
    write(path, signed(bytes(data)))
    assert looked_at(path) is None


def test_head_with_more_than_is_there_is_refused(tmp_path):
    path = tmp_path / "f"
    for k, n, m, codes in ((2, 1 << 31, 0, 0), (1, 1, 1, 1), (256, 1, 1, 1), (2, 9, 1 << 30, 9)):
        entry = layout.Entry(MODEL, QUESTION, k, n, m, codes, 0)
        write(path, layout.head_of(SALT, [entry], 0))
        assert looked_at(path)
    write(path, struct.pack("<16s16sQIII12s", layout.MAGIC, SALT, 64, 1 << 31, 0, 0, bytes(12)))
    assert "sections" in looked_at(path)
    with open(path, "r+b") as f:
        f.truncate(layout.MAX_BYTES + 1)
    assert "at most" in looked_at(path)


def test_file_of_another_user_is_read_if_it_is_expected(tmp_path, monkeypatch):
    path = write(tmp_path / "f", dumped([lesson(i, i % 2) for i in range(4)]))
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if me == 0:
        os.chown(path, 12345, -1)
        me = 12345
    with pytest.raises(DataError, match="is owned by user"):
        layout.Opened(path)
    opened = layout.Opened(path, owner=me)
    assert opened._map is None and len(learned.sections(path, opened)) == 1
    with pytest.raises(DataError, match="is owned by user"):
        layout.Opened(path, owner=me + 7)


@settings(max_examples=40)
@given(taught_texts.filter(bool), st.data())
def test_evidence_without_itself_is_that_of_a_file_without_it(tmp_path_factory, texts, draw):
    texts = dict(texts)
    one = draw.draw(st.sampled_from(sorted(texts)))
    folder = tmp_path_factory.mktemp("book")
    lessons = {i: lesson(i, label, k=3) for i, label in texts.items()}
    whole = section_of(write(folder / "whole", dumped(list(lessons.values()), 3)))
    others = [x for i, x in lessons.items() if i != one]
    if not others:
        return
    rest = section_of(write(folder / "rest", dumped(others, 3)))
    words = lessons[one].words.split("\n")
    assert whole.evidence(words, texts[one])[0] == rest.evidence(words)[0]
