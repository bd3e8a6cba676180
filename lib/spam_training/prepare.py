"""Prepare a training: texts, near-duplicates, split, vocabulary, tokens, teachers.

The result is cached in one file of the work folder.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sluice.mail import message

from . import (
    augmentation,
    checkpoint,
    corpora,
    evaluate,
    export,
    mailing_lists,
    near_duplicates,
    phrases,
    teacher,
    templates,
    texts,
    vocabulary,
)

QUESTION = "\nis this mail spam ?\n"  # normalized, like the text that follows
BEFORE, AFTER = ("<s>", "<|user|>", QUESTION), ("</s>", "<|assistant|>", "\n")
VALIDATION = 28  # of 256 clusters are for validation
MODULES = (
    checkpoint,
    corpora,
    export,
    evaluate,
    mailing_lists,
    phrases,
    teacher,
    texts,
    near_duplicates,
    augmentation,
    vocabulary,
    templates,
)
SOURCES = [
    *map(Path(__file__).with_name, ("encoder.py", "synonyms.py")),
    *(Path(module.__file__) for module in MODULES),
    *sorted(Path(message.__file__).parent.glob("*.py")),
]


class Prepared:
    """Prepared texts and teachers.

    key             what everything was made from, see key_of()
    texts           [texts.Text]
    is_spam, is_val, is_resent
                    bool [n]: label; kept for validation; changed by mailing_lists.py
    corpus, cluster, fold
                    str [n]; int [n]; int [n]
    lines, bodies   [{header line: marked tokens}], [tokens]
    vocabulary      (tokens, scores, types)
    before, after   tokens before and after a text
    yes, no         tokens of the answers
    teachers        {(fold, is_templated): teacher.Teacher}
    logit           float [n], of spam, before inverse temperature, by the teacher that has not seen
                    the text; by the baseline for validation texts
    encoder_logit   float [n], nan if the encoder was tuned on the text or not used
    joint_weights   {is_templated: (weight of the teachers, weight of the encoder)}
    synonyms        synonyms.Synonyms, or None without an encoder
    evidence        float [n_vocab], weights of a linear model on single tokens
    initial         checkpoint.Checkpoint, or None
    """

    def whole(self, i: int) -> np.ndarray:
        """int64 [n]: marked tokens of text i as `classify` reads it, without the question."""
        return augmentation.whole(self.lines[i], self.bodies[i])


def load(
    work: str | Path,
    folder: str | Path,
    leave_out: Sequence[str] = (),
    initial: checkpoint.Checkpoint | None = None,
    with_encoder: bool = False,
    n_vocab: int = 8192,
    seed: int = 1,
    n_templated: int = corpora.N_TEMPLATED,
    say: Callable[[str], Any] = print,
    float32: bool = False,
) -> Prepared:
    """The Prepared of the corpora in `folder`, from work/prepared.pickle if its key is the same.

    initial: a Checkpoint, whose vocabulary is used, or None. with_encoder: use encoder.py as a
    teacher; float32: in f32 instead of bf16. n_vocab: pieces of a new vocabulary before phrases are
    added. DataError: a corpus cannot be read, or the encoder is missing.
    """
    key = key_of(folder, leave_out, initial, with_encoder, n_vocab, seed, n_templated, float32)
    p = load_cached(work, key, say)
    if p and p.key == key:
        return p
    if with_encoder:
        from . import encoder

        encoder.check()  # fails before hours of work
    if not p or p.key[-1]:  # with another encoder or none, the teachers are the same
        p = p or build(work, folder, leave_out, initial, n_vocab, seed, n_templated, say)
        p.key, p.encoder_logit, p.joint_weights, p.synonyms = (
            (*key[:-1], False),
            np.full(len(p.texts), np.nan),
            {},
            None,
        )
        _save(p, work)  # keeps the teachers if the encoder is interrupted
    if with_encoder:
        apply_encoder(p, seed, say, float32=float32)
        p.key = key
        _save(p, work)
    return p


def key_of(
    folder: str | Path,
    leave_out: Sequence[str] = (),
    initial: checkpoint.Checkpoint | None = None,
    with_encoder: bool = False,
    n_vocab: int = 8192,
    seed: int = 1,
    n_templated: int = corpora.N_TEMPLATED,
    float32: bool = False,
) -> tuple:
    """What a Prepared is made from, for arguments of load(); the last element is the encoder."""
    sizes = tuple((file.name, file.stat().st_size) for file in corpora.files(folder, leave_out))
    made_by = digest([Path(__file__), *SOURCES, *templates.files()])
    encoder = with_encoder and ("float32" if float32 else True)
    return (
        tuple(sorted(leave_out)),
        n_vocab,
        seed,
        n_templated,
        sizes,
        made_by,
        initial and initial.digest,
        encoder,
    )


def load_cached(work: str | Path, key: tuple, say: Callable[[str], Any]) -> Prepared | None:
    """The Prepared in folder `work` if its key, except for the encoder, is `key`; else None."""
    path = Path(work) / "prepared.pickle"
    if not path.exists():
        return None
    try:
        with open(path, "rb") as f:
            p = pickle.load(f)
    except (MemoryError, OSError):
        raise
    except Exception as e:  # pickle raises any kind of exception for damaged files
        say(f"{path}: damaged ({type(e).__name__}); preparing again")
        return None
    return p if (getattr(p, "key", None) or ())[:-1] == key[:-1] else None


def _save(p, work):
    path = Path(work) / "prepared.pickle"
    with open(f"{path}.new", "wb") as f:
        pickle.dump(p, f)
    Path(f"{path}.new").replace(path)


def build(
    work: str | Path,
    folder: str | Path,
    leave_out: Sequence[str],
    initial: checkpoint.Checkpoint | None,
    n_vocab: int,
    seed: int,
    n_templated: int,
    say: Callable[[str], Any],
) -> Prepared:
    """Make a Prepared without key and encoder."""
    p = Prepared()
    p.texts = texts.read_all(corpora.messages(folder, leave_out, seed, n_templated))
    p.is_spam = np.array([t.is_spam for t in p.texts])
    p.corpus = np.array([t.corpus for t in p.texts])
    say(
        f"{len(p.texts)} texts: "
        + ", ".join(f"{name} {n}" for name, n in sorted(Counter(p.corpus.tolist()).items()))
    )
    p.cluster = near_duplicates.clusters(p.texts)
    p.is_val = validation(p.texts, p.cluster)
    say(f"{len(set(p.cluster.tolist()))} clusters, {int(p.is_val.sum())} texts for validation")
    p.texts, p.is_resent = mailing_lists.resend_some(p.texts, p.is_val)
    p.initial = initial
    if initial:
        p.vocabulary = initial.vocabulary
        _encode(p, Path(work) / "vocabulary.gguf")
    else:
        new_vocabulary(p, Path(work) / "vocabulary.gguf", n_vocab, seed)
    say(f"{len(p.vocabulary[0])} pieces, {sum(map(len, p.bodies))} tokens in bodies")
    fit_teachers(p, say)
    return p


def new_vocabulary(p: Prepared, path: Path, n_vocab: int, seed: int) -> None:
    """Make a vocabulary of pieces and phrases from the training texts; tokenize all texts."""
    p.vocabulary = vocabulary.train(
        (_plain_text_of(t) for t, val in zip(p.texts, p.is_val) if not val), n_vocab, seed
    )
    _encode(p, path)
    train = np.flatnonzero(~p.is_val)
    p.vocabulary = phrases.extend(
        p.vocabulary,
        [augmentation.bare(p.whole(i)) for i in train],
        p.is_spam[train],
        p.corpus[train],
    )
    _encode(p, path)


def fit_teachers(p: Prepared, say: Callable[[str], Any]) -> None:
    """Fit the teachers of the folds and the baseline; compute their logits."""
    rows, train, val = (
        [p.whole(i) for i in range(len(p.texts))],
        np.flatnonzero(~p.is_val),
        np.flatnonzero(p.is_val),
    )
    p.fold, is_templated = teacher.folds(p.cluster), p.corpus == "written"
    p.teachers = teacher.of_folds(
        [rows[i] for i in train],
        p.is_spam[train],
        p.fold[train],
        is_templated[train],
        teacher.Words(*p.vocabulary[::2]),
    )
    linear = teacher.baseline([rows[i] for i in train], p.is_spam[train])
    idf, weight, _ = teacher.logistic(
        [np.unique(augmentation.bare(rows[i]), return_counts=True) for i in train],
        p.is_spam[train],
        len(p.vocabulary[0]),
    )
    p.evidence = idf * weight
    p.logit = np.zeros(len(p.texts))
    p.logit[train] = [p.teachers[p.fold[i], is_templated[i]].logit(rows[i]) for i in train]
    p.logit[val] = [linear.logit(rows[i]) for i in val]
    # an ensemble is more accurate than its mean logit says
    for kind in set(is_templated[train].tolist()):
        of = train[is_templated[train] == kind]
        inverse_temperature, _ = evaluate.calibrate(p.logit[of], p.is_spam[of])
        for k in range(teacher.N_FOLD):
            p.teachers[k, kind].inverse_temperature = inverse_temperature
        right = ((p.logit > 0) == p.is_spam)[of].mean()
        say(
            f"teachers of {'templated texts' if kind else 'corpora'}, out of fold: accuracy"
            f" {right:.4f}, inverse temperature {inverse_temperature:.2f}"
        )
    say(f"baseline, validation: accuracy {((p.logit > 0) == p.is_spam)[val].mean():.4f}")


def apply_encoder(
    p: Prepared,
    seed: int,
    say: Callable[[str], Any],
    folder: str | None = None,
    float32: bool = False,
) -> None:
    """Compute the encoder's logits, its weight relative to the teachers, and synonyms.

    folder, float32: as for encoder.logits.
    """
    from sklearn.linear_model import LogisticRegression

    from . import encoder, synonyms

    is_tuning = encoder.is_tuned_on(p.cluster)
    p.encoder_logit = encoder.logits(
        p.texts,
        p.is_spam,
        is_tuning & ~p.is_val,
        ~is_tuning & ~p.is_val,
        seed,
        say,
        folder,
        float32,
    )
    is_templated = p.corpus == "written"
    for kind in (False, True):
        of = (is_templated == kind) & ~np.isnan(p.encoder_logit)
        if len(set(p.is_spam[of].tolist())) == 2:
            logits_of = np.stack(
                (p.teachers[0, kind].inverse_temperature * p.logit[of], p.encoder_logit[of]), 1
            )
            p.joint_weights[kind] = tuple(
                LogisticRegression(C=1e4, fit_intercept=False)
                .fit(logits_of, p.is_spam[of])
                .coef_[0]
                .tolist()
            )
            right = [
                ((x > 0) == p.is_spam[of]).mean()
                for x in (logits_of[:, 0], logits_of[:, 1], logits_of @ p.joint_weights[kind])
            ]
            say(
                "{}, teachers, encoder, both: accuracy {:.4f} {:.4f} {:.4f}, "
                "weights {:.2f} {:.2f}".format(
                    "templated texts" if kind else "corpora", *right, *p.joint_weights[kind]
                )
            )
        else:
            p.encoder_logit[of] = np.nan
    p.synonyms = synonyms.read(p.vocabulary, folder)


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of names and contents of files [Path], hexadecimal."""
    return hashlib.sha256(
        b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in paths)
    ).hexdigest()


def validation(found: Sequence[texts.Text], cluster: np.ndarray) -> np.ndarray:
    """bool [n]: whether a text is kept for validation. cluster: see near_duplicates.clusters."""
    return np.array([_validation_byte(found[c]) < VALIDATION for c in cluster])


def _validation_byte(text):
    return hashlib.sha256(f"validation {text.corpus} {text.name}".encode()).digest()[0]


def _plain_text_of(text):
    return "\n".join([*text.head.values(), text.body]).strip()


def _encode(p, path):
    """Tokenize all texts with the tokenizer of `classify`."""
    table = export.table(path, p.vocabulary)
    pieces = p.vocabulary[0]
    tokens = lambda text: np.array(list(table.encode(text.encode(), bos=False)), np.int32)
    of_part = lambda part: (
        [vocabulary.CONTROL[part]] if part in vocabulary.CONTROL else tokens(part)
    )
    control = lambda parts: np.concatenate([of_part(part) for part in parts]).astype(np.int32)
    p.lines = [
        {name: augmentation.marked(name, tokens(line)) for name, line in text.head.items()}
        for text in p.texts
    ]
    p.bodies = [tokens(text.body) for text in p.texts]
    p.before, p.after = control(BEFORE), control(AFTER)
    p.yes, p.no = (pieces.index(word) for word in vocabulary.ANSWERS)
