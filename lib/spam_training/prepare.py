"""Everything before the first step, kept in one file of the work folder: texts, near twins, the
split, vocabulary, ids, the teacher's word.
"""

import hashlib
import pickle
from collections import Counter
from pathlib import Path

import numpy as np

from sluice.mail import message

from . import (
    begun,
    corpora,
    export,
    judge,
    lists,
    phrases,
    teacher,
    texts,
    twins,
    views,
    vocabulary,
    written,
)

QUESTION = "\nis this mail spam ?\n"  # folded, as the text that follows
BEFORE, AFTER = ("<s>", "<|user|>", QUESTION), ("</s>", "<|assistant|>", "\n")
VALIDATION = 28  # of 256 clusters
MODULES = (
    begun,
    corpora,
    export,
    judge,
    lists,
    phrases,
    teacher,
    texts,
    twins,
    views,
    vocabulary,
    written,
)
MADE_BY = [
    *map(Path(__file__).with_name, ("encoder.py", "near.py")),
    *(Path(module.__file__) for module in MODULES),
    *sorted(Path(message.__file__).parent.glob("*.py")),
]


class Prepared:
    """key: what all of it was made of; texts; is_spam, is_val, is_listed (whether lists.py changed
    the text): bool [n]; corpus: str [n]; cluster: int [n]; lines: marked ids by text and name of
    the line; bodies: ids by text; fold: int [n]; teachers: those of teacher.of_folds; margin: float
    [n], the logit of spam by the one that has not seen the text, before its sharpness (of
    validation texts by the yardstick); encoded: float [n], that by the encoder, nan where it has
    seen the text or was not asked; joint: by whether for written texts, (what the teacher's word
    counts where the encoder speaks as well, what the encoder's); near: the near.Near of that
    encoder, or None; evidence: float [n_vocab], weights of a linear model of single ids;
    vocabulary: (tokens, scores, types); begun: the Begun that is gone on from, or None; before,
    after: ids around a text; yes, no: ids.
    """

    def whole(self, i):
        """The marked ids of text i as `classify` reads it, without the question."""
        return views.whole(self.lines[i], self.bodies[i])


def load(
    work,
    folder,
    leave_out=(),
    begins=None,
    with_encoder=False,
    n_vocab=8192,
    seed=1,
    n_written=corpora.N_WRITTEN,
    say=print,
    float32=False,
):
    """The Prepared of the corpora, from work/prepared.pickle where that was made of the same.
    begins: a Begun, whose vocabulary and weights are taken, None: new ones; with_encoder: whether
    encoder.py judges as well, float32: in products of f32; n_vocab: of a new vocabulary, pieces
    before phrases are added.
    """
    key = key_of(folder, leave_out, begins, with_encoder, n_vocab, seed, n_written, float32)
    p = kept(work, key, say)
    if p and p.key == key:
        return p
    if with_encoder:
        from . import encoder

        encoder.check()  # what is missing is said before hours are spent
    if not p or p.key[-1]:  # that of another encoder or of none: its teachers are the same
        p = p or made(work, folder, leave_out, begins, n_vocab, seed, n_written, say)
        p.key, p.encoded, p.joint, p.near = (
            (*key[:-1], False),
            np.full(len(p.texts), np.nan),
            {},
            None,
        )
        _keep(p, work)  # so that teachers are not lost where the encoder is interrupted
    if with_encoder:
        ask_encoder(p, seed, say, float32=float32)
        p.key = key
        _keep(p, work)
    return p


def key_of(
    folder,
    leave_out=(),
    begins=None,
    with_encoder=False,
    n_vocab=8192,
    seed=1,
    n_written=corpora.N_WRITTEN,
    float32=False,
):
    """What a Prepared is made of, for arguments of load(); its last element is what of the encoder
    is in it.
    """
    sizes = tuple((file.name, file.stat().st_size) for file in corpora.files(folder, leave_out))
    made_by = digest([Path(__file__), *MADE_BY, *written.files()])
    encoder = with_encoder and ("float32" if float32 else True)
    return (
        tuple(sorted(leave_out)),
        n_vocab,
        seed,
        n_written,
        sizes,
        made_by,
        begins and begins.digest,
        encoder,
    )


def kept(work, key, say):
    """The Prepared that load() left in `work`, where it was made of what `key` says, but for the
    encoder; else None.
    """
    path = Path(work) / "prepared.pickle"
    if not path.exists():
        return None
    try:
        with open(path, "rb") as f:
            p = pickle.load(f)
    except (MemoryError, OSError):
        raise
    except Exception as e:  # of bytes that are no pickle, or a part of one, any kind may come
        say(f"{path}: damaged or cut ({type(e).__name__}): what was in it is made again")
        return None
    return p if (getattr(p, "key", None) or ())[:-1] == key[:-1] else None


def _keep(p, work):
    path = Path(work) / "prepared.pickle"
    with open(f"{path}.new", "wb") as f:
        pickle.dump(p, f)
    Path(f"{path}.new").replace(path)


def made(work, folder, leave_out, begins, n_vocab, seed, n_written, say):
    """The Prepared of load() but for its key and the encoder's word."""
    p = Prepared()
    p.texts = texts.read_all(corpora.messages(folder, leave_out, seed, n_written))
    p.is_spam = np.array([t.is_spam for t in p.texts])
    p.corpus = np.array([t.corpus for t in p.texts])
    say(
        f"{len(p.texts)} texts: "
        + ", ".join(f"{name} {n}" for name, n in sorted(Counter(p.corpus.tolist()).items()))
    )
    p.cluster = twins.clusters(p.texts)
    p.is_val = np.array([_draw(p.texts[c]) < VALIDATION for c in p.cluster])
    say(f"{len(set(p.cluster.tolist()))} clusters, {int(p.is_val.sum())} texts for validation")
    p.texts, p.is_listed = lists.shown(p.texts, p.is_val)
    p.begun = begins
    if begins:
        p.vocabulary = begins.vocabulary
        _encode(p, Path(work) / "vocabulary.gguf")
    else:
        new_vocabulary(p, Path(work) / "vocabulary.gguf", n_vocab, seed)
    say(f"{len(p.vocabulary[0])} pieces, {sum(map(len, p.bodies))} ids of bodies")
    judge_all(p, say)
    return p


def new_vocabulary(p, path, n_vocab, seed):
    """Pieces, then phrases, of the texts that are learnt from; and the ids of all texts."""
    p.vocabulary = vocabulary.train(
        (_plain(t) for t, val in zip(p.texts, p.is_val) if not val), n_vocab, seed
    )
    _encode(p, path)
    train = np.flatnonzero(~p.is_val)
    p.vocabulary = phrases.extend(
        p.vocabulary, [views.bare(p.whole(i)) for i in train], p.is_spam[train], p.corpus[train]
    )
    _encode(p, path)


def judge_all(p, say):
    """The teachers of the folds, the yardstick, and what they say."""
    rows, train, val = (
        [p.whole(i) for i in range(len(p.texts))],
        np.flatnonzero(~p.is_val),
        np.flatnonzero(p.is_val),
    )
    p.fold, is_written = teacher.folds(p.cluster), p.corpus == "written"
    p.teachers = teacher.of_folds(
        [rows[i] for i in train],
        p.is_spam[train],
        p.fold[train],
        is_written[train],
        teacher.Words(*p.vocabulary[::2]),
    )
    linear = teacher.yardstick([rows[i] for i in train], p.is_spam[train])
    idf, weight, _ = teacher.logistic(
        [np.unique(views.bare(rows[i]), return_counts=True) for i in train],
        p.is_spam[train],
        len(p.vocabulary[0]),
    )
    p.evidence = idf * weight
    p.margin = np.zeros(len(p.texts))
    p.margin[train] = [p.teachers[p.fold[i], is_written[i]].margin(rows[i]) for i in train]
    p.margin[val] = [linear.margin(rows[i]) for i in val]
    # several together are right more often than their logit says
    for kind in set(is_written[train].tolist()):
        of = train[is_written[train] == kind]
        sharpness, _ = judge.calibrate(p.margin[of], p.is_spam[of])
        for k in range(teacher.N_FOLD):
            p.teachers[k, kind].sharpness = sharpness
        right = ((p.margin > 0) == p.is_spam)[of].mean()
        say(
            f"teachers of {'written texts' if kind else 'corpora'}, out of fold: accuracy"
            f" {right:.4f}, sharpness {sharpness:.2f}"
        )
    say(f"yardstick, validation: accuracy {((p.margin > 0) == p.is_spam)[val].mean():.4f}")


def ask_encoder(p, seed, say, folder=None, float32=False):
    """What the encoder says of texts that it has not learnt, how far it is to be believed beside
    the teachers, and which words are near to which. folder, float32: as in encoder.margins.
    """
    from sklearn.linear_model import LogisticRegression

    from . import encoder, near

    learns = encoder.learnt(p.cluster)
    p.encoded = encoder.margins(
        p.texts, p.is_spam, learns & ~p.is_val, ~learns & ~p.is_val, seed, say, folder, float32
    )
    is_written = p.corpus == "written"
    for kind in (False, True):
        of = (is_written == kind) & ~np.isnan(p.encoded)
        if len(set(p.is_spam[of].tolist())) == 2:
            said = np.stack((p.teachers[0, kind].sharpness * p.margin[of], p.encoded[of]), 1)
            p.joint[kind] = tuple(
                LogisticRegression(C=1e4, fit_intercept=False)
                .fit(said, p.is_spam[of])
                .coef_[0]
                .tolist()
            )
            right = [
                ((x > 0) == p.is_spam[of]).mean()
                for x in (said[:, 0], said[:, 1], said @ p.joint[kind])
            ]
            say(
                "{}, teachers, encoder, both: accuracy {:.4f} {:.4f} {:.4f}, "
                "weights {:.2f} {:.2f}".format(
                    "written texts" if kind else "corpora", *right, *p.joint[kind]
                )
            )
        else:
            p.encoded[of] = np.nan
    p.near = near.read(p.vocabulary, folder)


def digest(paths):
    """Of names and contents of files: what is made by them is not made by others."""
    return hashlib.sha256(
        b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in paths)
    ).hexdigest()


def _draw(text):
    return hashlib.sha256(f"validation {text.corpus} {text.name}".encode()).digest()[0]


def _plain(text):
    return "\n".join([*text.head.values(), text.body]).strip()


def _encode(p, path):
    """ids of all texts by our own tokeniser: the one that `classify` uses."""
    table = export.table(path, p.vocabulary)
    tokens = p.vocabulary[0]
    ids = lambda text: np.array(list(table.encode(text.encode(), bos=False)), np.int32)
    of_part = lambda part: [vocabulary.CONTROL[part]] if part in vocabulary.CONTROL else ids(part)
    control = lambda parts: np.concatenate([of_part(part) for part in parts]).astype(np.int32)
    p.lines = [
        {name: views.marked(name, ids(line)) for name, line in text.head.items()}
        for text in p.texts
    ]
    p.bodies = [ids(text.body) for text in p.texts]
    p.before, p.after = control(BEFORE), control(AFTER)
    p.yes, p.no = (tokens.index(word) for word in vocabulary.ANSWERS)
