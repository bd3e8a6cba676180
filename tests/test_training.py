"""How the shipped model is made. What needs torch runs in build/training-venv (`make training-check`) and is skipped by name elsewhere."""
import math
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from sluice import gguf
from sluice.mail import plain
from sluice.training import corpora, elsewhere, export, judge, phrases, teacher, texts, twins, views, written

CORPORA_BUT_WRITTEN = [name for name in corpora.NAMES if name != "written"]


def messages(n=60):
    return list(corpora.messages("nowhere", CORPORA_BUT_WRITTEN, n_written=n))


def test_messages_absent_corpus_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="enron-spam.tar.xz"):
        list(corpora.messages(tmp_path, ("spamassassin",)))


def test_texts_are_what_classify_reads():
    for message in messages():
        text = texts.read(message)
        assert text.body == plain.fold(text.body)
        assert list(text.head) == [name for name in ("From", "Subject", "Links", "Files") if name in text.head]
        for name, line in text.head.items():
            assert line.startswith(f"{name}: ") and "\n" not in line


def test_texts_of_the_corpora_are_as_mail_text_prints_them(shared):
    folder = shared("data/spam/spamassassin.tar.xz").parent
    from sluice import mail
    for message, _ in zip(corpora.messages(folder, ("written", "enron", "ling", "sms")), range(200)):
        text = texts.read(message)
        lines = "\n".join([*text.head.values(), ""]) + ("\n" if text.head and text.body else "")
        assert mail.read(message.data).text(fold=True).decode() == lines + text.body


def test_twins_one_cluster_for_texts_of_one_mail():
    words = [f"word{i}" for i in range(300)]
    rng = random.Random(1)
    first = [rng.choice(words) for _ in range(120)]
    second = first[:50] + ["changed"] + first[51:]
    other = [rng.choice(words) for _ in range(120)]
    made = [texts.Text("enron", str(i), False, {}, " ".join(body)) for i, body in enumerate((first, other, second))]
    cluster = twins.clusters(made)
    assert cluster[0] == cluster[2] != cluster[1]


def test_twins_one_cluster_a_template():
    made = [texts.read(m) for m in messages(1200)]
    cluster = twins.clusters(made)
    by_name = {}
    for text, c in zip(made, cluster):
        by_name.setdefault(text.name, set()).add(int(c))
    assert all(len(clusters) == 1 for clusters in by_name.values())


def test_views_whole_keeps_head_and_tail():
    lines = {"From": np.arange(100, 110), "Subject": np.arange(200, 220)}
    ids = views.whole(lines, np.arange(1000, 3000))
    assert len(ids) == views.HEAD_IDS + views.TAIL_IDS
    assert ids[:12].tolist() == [*range(100, 110), views.NEWLINE, 200] and ids[-1] == 2999
    short = views.whole(lines, np.array([7]))
    assert short.tolist() == [*range(100, 110), 15, *range(200, 220), 15, 15, 7]
    assert views.whole({}, np.array([7])).tolist() == [7]


def test_views_are_parts_of_the_text():
    rng = np.random.default_rng(1)
    lines, body = {"From": np.arange(100, 110), "Links": np.arange(300, 305)}, np.arange(1000, 1900)
    seen = [views.view(lines, body, rng)[0] for _ in range(300)]
    everything = set(views.whole(lines, body).tolist()) | set(body.tolist())
    assert all(len(v) and set(v.tolist()) <= everything for v in seen)
    with_sender = sum(100 in v or 101 in v or 102 in v for v in seen)
    assert 90 < with_sender < 210  # about half
    assert len({v.tobytes() for v in seen}) > 150


def test_views_mixed_are_stretches_of_their_texts():
    rng = np.random.default_rng(1)
    texts_ = [({"From": np.arange(100, 110)}, np.arange(1000, 1500)), ({}, np.arange(2000, 2005)), ({"Subject": np.arange(50, 60)}, np.arange(0))]
    allowed = {int(i) for lines, body in texts_ for part in (*lines.values(), body) for i in part} | {views.NEWLINE}
    for _ in range(200):
        ids = views.mixed(texts_, rng).tolist()
        assert set(ids) <= allowed and any(1000 <= i < 1500 for i in ids) and len(ids) <= views.HEAD_IDS + views.TAIL_IDS


def test_features_count_ids_and_pairs():
    columns, counts = teacher.features([5, 6, 5, 6, 7], 10)
    single = dict(zip(columns[columns < 10].tolist(), counts[columns < 10].tolist()))
    assert single == {5: 2, 6: 2, 7: 1}
    assert sorted(counts[columns >= 10].tolist()) == [1, 1, 2] and columns.max() < 10 + teacher.N_PAIR and (np.diff(columns) > 0).all()


def test_phrases_merged_first_pair_first():
    pairs = [2 * 10 + 3, 1 * 10 + 2, 3 * 10 + 3]  # 2 3 -> 10, 1 2 -> 11, 3 3 -> 12
    rows = [np.array(row) for row in ([1, 2, 3], [1, 2, 1, 2], [3, 3, 3, 3, 3], [5], [], [2, 3, 3, 1, 2, 2, 3])]
    assert [row.tolist() for row in phrases.merged(rows, pairs, 10)] == [[1, 10], [11, 11], [12, 12, 3], [5], [], [10, 3, 11, 10]]
    assert phrases.merged(rows, [], 10) is rows


def test_phrases_best_are_pairs_that_tell_in_two_corpora():
    """Single ids tell nothing here; 7 8 is spam and 8 7 ham everywhere, 1 2 is spam in one corpus, and id 9 may be no part of a piece."""
    pytest.importorskip("sklearn", reason="sklearn is not here, so which phrases are chosen is not tested: make training-check")
    rng = np.random.default_rng(1)
    is_spam, corpus = rng.random(300) < 0.5, np.repeat(["enron", "ling"], 150)
    rows = []
    for spam, name in zip(is_spam, corpus):
        pair = [7, 8] if spam else [8, 7]
        habit = ([1, 2] if spam else [2, 1]) if name == "ling" else []
        rows.append(np.array([*rng.integers(20, 50, 20), *pair, 9, *habit, *rng.integers(20, 50, 20)]))
    is_text = np.arange(50) != 9
    assert set(phrases.best(rows, is_spam, corpus, is_text, 2).tolist()) == {7 * 50 + 8, 8 * 50 + 7}
    pairs = phrases.best(rows, is_spam, corpus, is_text, 10000)
    assert 1 * 50 + 2 not in pairs and 8 * 50 + 9 not in pairs
    assert 1 * 50 + 2 in phrases.best(rows, is_spam, np.repeat("ling", 300), is_text, 10000)
    assert len(phrases.best(rows[:4], is_spam[:4], corpus[:4], is_text, 10)) == 0  # too few texts for any


def test_phrases_are_ids_of_our_tokeniser(tmp_path):
    """What phrases.merged foresees is what the vocabulary with the new pieces makes of the text."""
    pytest.importorskip("sklearn", reason="sklearn is not here, so that phrases are ids of our tokeniser is not tested: make training-check")
    from sluice import vocab
    letters = [f"\u2581{c}" for c in "abcdefgh"]
    types = [2, 3, 3, 3, 3] + [6] * 256 + [1] * 17
    tokens = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", *(f"<0x{i:02X}>" for i in range(256)), *"abcdefgh", *letters, "\u2581"]
    base = tokens, [-float(i) for i in range(len(tokens))], types
    rng = np.random.default_rng(2)
    spam = rng.random(200) < 0.5
    said = ["".join(rng.choice([" a b c", " d e"] if s else [" b a c", " e d"]) + " " + rng.choice(list("fgh")) for _ in range(6)) for s in spam]
    encode = lambda vocabulary: [np.array(list(table.encode(text.encode(), bos=False))) for table in [_vocab(tmp_path, vocabulary, vocab)] for text in said]
    rows = encode(base)
    extended = phrases.extend(base, rows, spam, np.repeat("enron", 200), (3, 2))
    new = extended[0][len(tokens):]
    assert len(new) == 5 and all(piece.count("\u2581") >= 2 for piece in new) and len(set(extended[0])) == len(extended[0])
    assert max(extended[1][len(tokens):]) < min(base[1]) and set(extended[2][len(tokens):]) == {1}
    shorter = encode(extended)
    assert all(len(a) < len(b) for a, b in zip(shorter, rows))
    assert {int(i) for row in shorter for i in row if i >= len(tokens)} <= set(range(len(tokens), len(tokens) + 5))
    assert all("".join(extended[0][i] for i in row) == "".join(extended[0][i] for i in old) for row, old in zip(shorter, rows))


def _vocab(folder, vocabulary, vocab):
    path = folder / "vocabulary.gguf"
    export.write(str(path), {"general.architecture": ("string", "llama"), **export.tokenizer(vocabulary)}, [])
    return vocab.Vocab(gguf.File(str(path)))


def test_teacher_separates_what_ids_tell():
    pytest.importorskip("sklearn", reason="sklearn is not here, so what the teacher learns is not tested: make training-check")
    rng = np.random.default_rng(1)
    labels = rng.random(400) < 0.5
    rows = [np.concatenate((rng.integers(0, 50, 30), [60 if spam else 61])) for spam in labels]
    linear = teacher.fit(rows, labels, 64)
    assert all((linear.margin(ids) > 0) == spam for ids, spam in zip(rows, labels))
    assert linear.product[60] > 0 > linear.product[61]


def test_teachers_of_folds_have_not_seen_their_texts():
    """Labels that are pure chance are known to who has seen them; out of fold they are guesses."""
    pytest.importorskip("sklearn", reason="sklearn is not here, so that teachers of folds have not seen their texts is not tested: make training-check")
    rng = np.random.default_rng(2)
    rows, labels = [rng.integers(0, 500, 40) for _ in range(500)], rng.random(500) < 0.5
    fold = teacher.folds(np.arange(500))
    assert set(fold.tolist()) == set(range(teacher.N_FOLD))
    teachers = teacher.of_folds(rows, labels, fold, 512)
    right = np.mean([(teachers[k].margin(ids) > 0) == spam for k, ids, spam in zip(fold, rows, labels)])
    seen = np.mean([(teachers[(k + 1) % teacher.N_FOLD].margin(ids) > 0) == spam for k, ids, spam in zip(fold, rows, labels)])
    assert right < 0.65 and seen > 0.9


def test_elsewhere_judges_a_corpus_by_the_others_alone():
    """Ids 60 and 61 tell spam and ham everywhere but in the corpus left out, where it is the other way round."""
    pytest.importorskip("sklearn", reason="sklearn is not here, so that a corpus is judged by the others alone is not tested: make training-check")
    rng = np.random.default_rng(3)
    is_spam, corpus = rng.random(600) < 0.5, np.repeat(["enron", "ling", "written"], 200)
    rows = [np.concatenate((rng.integers(0, 50, 30), [60 if spam != (name == "ling") else 61])) for spam, name in zip(is_spam, corpus)]
    cells = [[cell.strip() for cell in elsewhere.line(rows, is_spam, corpus, name, (), 64).split("|")[1:-1]] for name in ("enron", "ling")]
    assert [row[:3] for row in cells] == [["enron", "all others", "200"], ["ling", "all others", "200"]]
    assert float(cells[1][3]) < 0.1 and float(cells[1][6]) < 0.1
    without = elsewhere.line(rows, is_spam, corpus, "enron", ("ling",), 64).split("|")
    assert float(without[4]) > 0.85 and "but ling" in without[2]


def test_elsewhere_calibrated_finds_where_to_cut():
    rng = np.random.default_rng(4)
    is_spam = rng.random(2000) < 0.3
    margin = np.where(is_spam, 6.0, 3.0) + rng.normal(0, 0.5, 2000)
    assert (margin > 0).mean() == 1 and elsewhere.calibrated(margin, is_spam) > 0.98
    assert elsewhere.calibrated(rng.normal(0, 1, 2000), is_spam) == pytest.approx(0.7, abs=0.03)  # what says nothing ends in the commoner label


def test_export_q8_0_equals_the_gguf_package():
    gguf_package = pytest.importorskip("gguf", reason="gguf is not here, so our Q8_0 is not compared with that package's: make test")
    x = (np.random.default_rng(2).standard_normal((64, 256)) * np.logspace(-6, 2, 64)[:, None]).astype(np.float32)
    x[3] = 0
    assert export.q8_0(x) == gguf_package.quantize(x, gguf_package.GGMLQuantizationType.Q8_0).tobytes()
    assert (export.dequantised(x) == gguf_package.dequantize(gguf_package.quantize(x, gguf_package.GGMLQuantizationType.Q8_0),
                                                             gguf_package.GGMLQuantizationType.Q8_0)).all()


def test_export_file_reads_back(tmp_path):
    path = tmp_path / "x.gguf"
    matrix, vector = np.arange(512, dtype=np.float32).reshape(2, 256), np.arange(5, dtype=np.float32)
    meta = {"general.architecture": ("string", "llama"), "general.tags": ("[string]", ["a", "b"]), "x.y": ("f32", 0.5), "x.z": ("[i32]", [1, -2])}
    export.write(path, meta, [("matrix", matrix), ("vector", vector)])
    file = gguf.File(str(path))
    assert file.get("x.y", "f32") == 0.5 and file.get("x.z", "[i32]").values() == [1, -2]
    assert {name: (t.type, tuple(t.shape)) for name, t in file.tensors.items()} == {"matrix": (export.Q8_0, (256, 2)), "vector": (export.F32, (5,))}


def test_export_pairs_are_side_by_side():
    """A head's scores are the same with halves turned (as trained) and neighbours turned (as `llama` files have it)."""
    class Shape:
        n_layer, n_rot, n_embd = 1, 8, 16
    rng = np.random.default_rng(3)
    state = {f"blk.0.{name}.weight": rng.standard_normal((16, 16)) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    state.update({f"blk.0.{name}.weight": np.ones(16) for name in ("attn_norm", "ffn_norm")})
    state.update({f"blk.0.{name}.weight": np.ones((16, 16)) for name in ("ffn_gate", "ffn_up", "ffn_down")}, **{
        "token_embd.weight": np.ones((4, 16)), "output_norm.weight": np.ones(16)})
    files = dict(export.tensors(state, Shape))
    x, angle = rng.standard_normal((2, 16)), np.outer([3.0, 11.0], 10.0 ** -np.arange(4))

    def halves(y, a):
        return np.concatenate((y[:4] * np.cos(a) - y[4:] * np.sin(a), y[:4] * np.sin(a) + y[4:] * np.cos(a)))

    def neighbours(y, a):
        return np.stack((y[0::2] * np.cos(a) - y[1::2] * np.sin(a), y[0::2] * np.sin(a) + y[1::2] * np.cos(a)), 1).ravel()

    for head in (slice(0, 8), slice(8, 16)):
        trained = [halves((state[f"blk.0.attn_{n}.weight"] @ x[i])[head], angle[i]) for i, n in ((0, "q"), (1, "k"))]
        filed = [neighbours((files[f"blk.0.attn_{n}.weight"] @ x[i])[head], angle[i]) for i, n in ((0, "q"), (1, "k"))]
        assert math.isclose(trained[0] @ trained[1], filed[0] @ filed[1], rel_tol=1e-12)


def test_figures_of_a_known_case():
    p, spam = np.array([0.9, 0.8, 0.3, 0.6, 0.2, 0.1]), np.array([1, 1, 1, 0, 0, 0], bool)
    f = judge.figures(p, spam)
    assert f["accuracy"] == pytest.approx(4 / 6) and f["precision"] == pytest.approx(2 / 3) and f["recall"] == pytest.approx(2 / 3)
    assert f["auc"] == pytest.approx(8 / 9) and f["rare"] == pytest.approx(2 / 3)  # no ham may be called spam: from above 0.6
    assert judge.auc(np.array([0.5, 0.5]), np.array([True, False])) == 0.5


def test_calibration_recovers_a_known_curve():
    rng = np.random.default_rng(4)
    margin = rng.normal(0, 4, 40000)
    spam = rng.random(40000) < judge.sigmoid(0.5 * margin - 1)
    scale, bias = judge.calibrate(margin, spam)
    assert scale == pytest.approx(0.5, abs=0.02) and bias == pytest.approx(-1, abs=0.05)


def test_thresholds_keep_their_promise():
    rng = np.random.default_rng(5)
    spam = rng.random(20000) < 0.4
    p = judge.sigmoid(rng.normal(np.where(spam, 4, -4), 2))
    yes, no = judge.thresholds(p, spam, 0.001, 0.002)
    assert ((p >= yes) & ~spam).mean() <= 0.001 and ((1 - p >= no) & spam).mean() <= 0.002
    wrong, unsure = judge.decided(p, spam, yes, no)
    assert wrong <= 0.0035 and unsure < 0.2


def test_rate_warms_stays_and_cools():
    loop = pytest.importorskip("sluice.training.loop", reason="torch is not here, so the rate of learning is not tested: make training-check", exc_type=ImportError)
    rates = [loop.rate(step, 7600) for step in range(7600)]
    assert rates[:loop.WARM_STEPS] == sorted(rates[:loop.WARM_STEPS]) and rates[0] < 0.01 and rates[-1] < 0.001
    assert set(rates[loop.WARM_STEPS:3800]) == {1} and rates[3800:] == sorted(rates[3800:], reverse=True)
    assert all(0 < loop.rate(step, n) <= 1 for n in (1, 2, 3, 40) for step in range(n))  # a short training, too


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which a model was trained for some steps, in two pieces, on the written texts alone; its options."""
    for module in ("torch", "sklearn", "sentencepiece", "matplotlib"):
        pytest.importorskip(module, reason=f"{module} is not here, so no model is trained and exported: make training-check")
    folder = tmp_path_factory.mktemp("training")
    options = [str(folder), "--work", str(folder / "work"), "--out", str(folder / "out"), "--question", str(folder / "spam.yaml"), "--written", "700",
               "--steps", "40", "--layers", "1", "--plain", "--date", "2026-01-01", *(x for name in CORPORA_BUT_WRITTEN for x in ("--leave-out", name))]
    first = train(options + ["--seconds", "0"])  # one step
    assert first.returncode == 75 and "call again to go on" in first.stderr
    done = train(options)
    assert done.returncode == 0, done.stderr
    return folder, options


def train(options):
    return subprocess.run([sys.executable, "-m", "sluice.training", *options], cwd=ROOT, env={"PYTHONPATH": str(ROOT / "lib"), "PATH": "/usr/bin:/bin"},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)


def test_training_in_pieces_writes_model_card_and_question(trained):
    folder, _ = trained
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["spam-calibration.svg", "spam.gguf", "spam.md"]
    file = gguf.File(str(folder / "out" / "spam.gguf"))
    assert file.get("general.date", "string") == "2026-01-01" and file.get("general.license", "string") == "MIT"
    assert "templates written for this project" in (folder / "out" / "spam.md").read_text()
    from sluice import question
    from sluice.question import classifier
    c = classifier.Classifier(question.read(str(folder / "spam.yaml")), str(folder / "out" / "spam.gguf"))
    assert c.ask(b"Subject: hello\n\nHow are you?\n").answer in ("yes", "no", "unsure")


def test_training_resumed_equals_training_in_one_piece(trained):
    folder, options = trained
    out = folder / "again"
    changed = [str(out / "work") if x == str(folder / "work") else str(out) if x == str(folder / "out") else x for x in options]
    assert train(changed).returncode == 0
    assert (out / "spam.gguf").read_bytes() == (folder / "out" / "spam.gguf").read_bytes()


def test_trained_net_equals_the_engine(trained):
    """Of the same weights (as Q8_0 gives them back) torch in float32 and our engine differ by what rounding activations to int8 makes."""
    import torch

    from sluice.training import loop, net, prepare
    folder, _ = trained
    p = prepare.load(folder / "work", folder, CORPORA_BUT_WRITTEN, n_written=700)
    kept = torch.load(folder / "work" / "train.pt", weights_only=True)
    shape = net.Shape(**kept["shape"])
    trainer = loop.Trainer(p, shape, 40, compiled=False)
    state = {name: torch.from_numpy(export.dequantised(x.numpy())) if x.ndim == 2 and x.shape[1] % 32 == 0 and name != "probe.weight" else x
             for name, x in kept["average"].items()}
    rows = np.arange(50)
    ours = judge.answers(str(folder / "out" / "spam.gguf"), str(folder / "spam.yaml"), [corpora.Message("", "", False, _text(p, i)) for i in rows])
    theirs = loop.margins(trainer, rows, state)
    assert np.abs(ours - theirs).max() < 0.1 * max(1.0, np.abs(theirs).max())
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


def _text(p, i):
    """A message whose text is that of text i, without Links and Files."""
    p.lines[i] = {name: ids for name, ids in p.lines[i].items() if name in ("From", "Subject")}
    head = [line for name, line in p.texts[i].head.items() if name in ("From", "Subject")]
    return "\n".join([*head, "", p.texts[i].body]).encode()


def test_written_texts_of_one_seed_are_the_same():
    assert [m.data for m in messages(50)] == [m.data for m in messages(50)]
    assert written.texts(1, 50) != written.texts(2, 50)
