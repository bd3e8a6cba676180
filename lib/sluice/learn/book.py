"""All texts of a file in memory, to change them and to write the file again.

The bytes of a file depend on its salt, its texts and the priors alone. So neither order nor
repetition of what was learned matters, and a text that is learned and forgotten leaves the file as
it was.

Texts by --auto-learn count under a cap. Of each answer at most as many count as the user has given,
the latest ones, and none unless the user has given texts of every answer. They are tokens only:
no row of the fit, and no answer to their own text.
"""

import os

import numpy as np

from . import evidence, format1, joint, layout
from .joint import Joint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FITTED = 4000  # texts of a fit: a second


class Text:
    """A learned text.

    label: index of its answer. date: seconds since 1970. is_auto: learned by --auto-learn. log_p:
    float32 [k], nats. tokens: uint32, digests, ascending.
    """

    __slots__ = ("date", "is_auto", "label", "log_p", "tokens")

    def __init__(
        self,
        label: int,
        date: int,
        is_auto: bool,
        log_p: "np.ndarray",
        tokens: "np.ndarray",
    ) -> None:
        self.label, self.date, self.is_auto = label, date, is_auto
        self.log_p, self.tokens = log_p, tokens


class Part:
    """The texts of one model and question.

    k: number of answers. prior: [scale, *biases] of the question. texts: {digest: Text}.
    joint: the fit.
    """

    def __init__(self, model: bytes, question: bytes, k: int, prior: "Iterable[float]") -> None:
        self.model, self.question, self.k, self.prior = model, question, k, list(prior)
        self.texts: dict[int, Text] = {}
        self.joint = Joint(self.prior[0], 0.0, self.prior[1:])

    def counting(self) -> "set[int]":
        """Return the digests of the texts whose tokens count."""
        by_hand: list[set[int]] = [set() for _ in range(self.k)]
        auto: list[list[tuple[int, int]]] = [[] for _ in range(self.k)]
        for digest, text in self.texts.items():
            if not len(text.tokens):
                continue
            if text.is_auto:
                auto[text.label].append((-text.date, digest))
            else:
                by_hand[text.label].add(digest)
        found = set().union(*by_hand)
        if all(by_hand):
            for some, own in zip(auto, by_hand):
                found.update(digest for _, digest in sorted(some)[: len(own)])
        return found

    def left_out(self) -> "tuple[list[Text], np.ndarray]":
        """Return (texts by hand, float64 [n][k]: the evidence of each as if it was not learned).

        Of more than MAX_FITTED texts those with the smallest digests: a sample that does not depend
        on the order of learning.
        """
        own = [d for d in sorted(self.texts) if not self.texts[d].is_auto][:MAX_FITTED]
        counted = sorted(self.counting())
        at = {d: i for i, d in enumerate(counted)}
        asked = [i for i, d in enumerate(own) if d in at]
        t = np.zeros((len(own), self.k))
        if asked:
            some = [self.texts[d] for d in counted]
            t[asked] = evidence.taught(
                [x.tokens for x in some],
                np.array([x.label for x in some]),
                self.k,
                np.array([at[own[i]] for i in asked]),
            )
        return [self.texts[d] for d in own], t

    def fit(self) -> None:
        """Fit the joint to the texts by hand."""
        own, t = self.left_out()
        log_p = np.array([x.log_p for x in own], np.float64).reshape(-1, self.k)
        labels = np.array([x.label for x in own], np.int64)
        self.joint = joint.fit(log_p, t, labels, self.prior[0], self.prior[1:])

    def dump(self) -> "tuple[layout.Entry, bytes]":
        """Return (entry, bytes of the section)."""
        digests = sorted(self.texts)
        texts = [self.texts[d] for d in digests]
        counting = self.counting()
        n_each = np.array([len(x.tokens) for x in texts], np.int64)
        labels = np.array([x.label for x in texts], np.uint8)
        counts = np.array([d in counting for d in digests], bool)
        every = (
            np.concatenate([x.tokens for x in texts]).astype(np.uint64)
            if texts
            else np.zeros(0, np.uint64)
        )
        keys = every << np.uint64(32) | np.repeat(labels, n_each).astype(np.uint64) << np.uint64(24)
        pairs, which = np.unique(keys, return_inverse=True)
        n_texts = np.bincount(
            which, weights=np.repeat(counts, n_each), minlength=len(pairs)
        ).astype(np.uint64)
        codes, starts = _coded(which, n_each)
        totals = np.bincount(labels[counts], minlength=self.k)
        entry = layout.Entry(
            self.model,
            self.question,
            self.k,
            len(texts),
            len(pairs),
            len(codes),
            int(counts.sum()),
        )
        arrays = {
            "prior": np.array(self.prior, "<f8"),
            "joint": np.array([self.joint.scale, self.joint.trust, *self.joint.bias], "<f8"),
            "pairs": (pairs | n_texts).astype("<u8"),
            "texts": np.array(digests, "<u8"),
            "log_p": np.array([x.log_p for x in texts], "<f4"),
            "dates": np.array([x.date for x in texts], "<u4"),
            "starts": starts.astype("<u4"),
            "totals": totals.astype("<u4"),
            "labels": labels,
            "flags": np.array([layout.AUTO * x.is_auto for x in texts], np.uint8),
            "codes": codes.astype("<u2"),
        }
        out = bytearray(entry.n_bytes)
        for name, (begin, end) in entry.offsets.items():
            out[begin:end] = arrays[name].tobytes()
        return entry, bytes(out)


class Book:
    """All texts of a file. salt: its key. parts: {(model, question): Part}."""

    def __init__(self, salt: bytes | None = None) -> None:
        self.salt = salt or os.urandom(16)
        self.parts: dict[tuple[bytes, bytes], Part] = {}
        self.salted = layout.Salted(self.salt)

    @property
    def n_texts(self) -> int:
        """The number of all texts."""
        return sum(len(part.texts) for part in self.parts.values())

    def rename(self, earlier: bytes, model: bytes) -> None:
        """Give the texts of the model `earlier` to `model`; those that both have stay as they are
        in `model`.
        """
        for (name, question), part in list(self.parts.items()):
            if name == earlier != model:
                del self.parts[name, question]
                own = self.parts.setdefault(
                    (model, question), Part(model, question, part.k, part.prior)
                )
                is_new = not own.texts
                if own.k == part.k:
                    own.texts = {**part.texts, **own.texts}
                if is_new:
                    own.joint = part.joint
                else:
                    own.fit()

    def kept(self, words: "Iterable[str]") -> "np.ndarray":
        """Return the digests of the tokens that are kept of a text. uint32, ascending."""
        return np.array(self.salted.kept(words), np.uint32)

    def dump(self) -> bytes:
        """Return the bytes of the file. Drops the oldest texts beyond the limits, and fits the
        parts that lose some.
        """
        self.parts = {key: part for key, part in sorted(self.parts.items()) if part.texts}
        n_over = self.n_texts - layout.MAX_TEXTS
        while True:
            if n_over > 0:
                self._drop(n_over)
            dumped = [part.dump() for part in self.parts.values()]
            body = b"".join(data for _, data in dumped)
            head = layout.head_of(self.salt, [e for e, _ in dumped], layout.checksum(body))
            excess = len(head) + len(body) - layout.MAX_BYTES
            if excess <= 0 and len(dumped) <= layout.MAX_SECTIONS:
                return head + body
            n_over = max(1, self.n_texts * max(0, excess) // (len(head) + len(body)))

    def _drop(self, n):
        """Drop the `n` oldest texts, or those of the part that changed the longest ago if there are
        too many parts.
        """
        if len(self.parts) > layout.MAX_SECTIONS:
            latest = lambda part: (max(x.date for x in part.texts.values()), part.model)
            oldest = min(self.parts.values(), key=latest)
            del self.parts[oldest.model, oldest.question]
            return
        every = sorted(
            (text.date, digest, key)
            for key, part in self.parts.items()
            for digest, text in part.texts.items()
        )
        for _, digest, key in every[:n]:
            del self.parts[key].texts[digest]
        for key in {key for _, _, key in every[:n]}:
            if self.parts[key].texts:
                self.parts[key].fit()
            else:
                del self.parts[key]


def read(path: str) -> Book:
    """Read the file at `path`; an absent one is an empty Book. Raises DataError, OSError."""
    try:
        opened = layout.Opened(path)
    except (FileNotFoundError, NotADirectoryError):
        return Book()
    data = bytes(opened.data)  # the map could change
    if data[: len(layout.MAGIC_1)] == layout.MAGIC_1:
        return _of_format1(path, data)
    salt, entries, crc = layout.parse(path, data, len(data))
    begin = layout.HEAD.size + layout.ENTRY.size * len(entries)
    if layout.checksum(data[begin:]) != crc:
        raise layout.damaged(path, "wrong checksum")
    book = Book(salt)
    for i, entry in enumerate(entries, 1):
        try:
            part = _part(data, entry)
        except (ValueError, IndexError, OverflowError):
            raise layout.damaged(path, f"section {i}") from None
        book.parts[part.model, part.question] = part
    return book


def _part(data, entry):
    """Parse a section. Raises ValueError or IndexError."""

    def array(name, form):
        begin, end = entry.offsets[name]
        return np.frombuffer(data, form, (end - begin) // np.dtype(form).itemsize, entry.at + begin)

    prior, numbers = array("prior", "<f8"), array("joint", "<f8")
    log_p = array("log_p", "<f4").reshape(entry.n, entry.k)
    labels = array("labels", "u1")
    for some in (prior, numbers, log_p):
        _require(bool((np.abs(some) <= layout.MAX_NUMBER).all()))  # NaN fails, too
    _require(prior[0] > 0 and numbers[0] >= 0)
    _require(not entry.n or int(labels.max()) < entry.k)
    digests, dates = array("texts", "<u8"), array("dates", "<u4")
    _require(bool((digests[1:] > digests[:-1]).all()))
    pairs, starts = array("pairs", "<u8"), array("starts", "<u4").astype(np.int64)
    which, n_each = _decoded(array("codes", "<u2").astype(np.int64), starts)
    if len(which):
        _require(0 <= int(which.min()) and int(which.max()) < len(pairs))
    found = (pairs[which] >> np.uint64(32)).astype(np.uint32)
    ends = np.cumsum(n_each)
    part = Part(entry.model, entry.question, entry.k, prior.tolist())
    part.joint = Joint(float(numbers[0]), float(numbers[1]), numbers[2:].tolist())
    flags = array("flags", "u1")
    for i in range(entry.n):
        some = np.unique(found[ends[i] - n_each[i] : ends[i]])
        part.texts[int(digests[i])] = Text(
            int(labels[i]), int(dates[i]), bool(flags[i] & layout.AUTO), log_p[i].copy(), some
        )
    return part


def _require(is_right):
    if not is_right:
        raise ValueError


def _coded(which, n_each):
    """Return (codes, starts) of indices of pairs, ascending within each text (see layout)."""
    ends = np.cumsum(n_each)
    before = np.concatenate(([-1], which[:-1])) if len(which) else which
    begins = (ends - n_each)[n_each > 0]
    before[begins] = -1
    steps = which - before
    n_jumps = steps // layout.JUMP  # what is left is less, so no last code is a jump
    n_codes = n_jumps + 1
    codes = np.full(int(n_codes.sum()), layout.JUMP, np.int64)
    codes[np.cumsum(n_codes) - 1] = steps - n_jumps * layout.JUMP
    totals = np.concatenate(([0], np.cumsum(n_codes)))
    return codes, totals[np.concatenate(([0], ends))]


def _decoded(codes, starts):
    """Return (indices, number of each text): the reverse of _coded. Raises ValueError."""
    _require(not starts[0] and starts[-1] == len(codes))
    n_codes = np.diff(starts)
    _require(bool((n_codes >= 0).all()))
    sums = np.cumsum(codes)
    base = np.concatenate(([0], sums))[starts[:-1]]
    which = sums - np.repeat(base, n_codes) - 1
    is_last = codes != layout.JUMP
    n_each = np.concatenate(([0], np.cumsum(is_last)))[starts]
    return which[is_last], np.diff(n_each)


def _of_format1(path, data):
    book = Book()
    priors = {(s.model, s.question): s for s in format1.sections(path, data)}
    for date, example in enumerate(format1.examples(path, data), 1):
        key, k = (example.model, example.question), len(example.log_p)
        known = priors.get(key)
        if known and len(known.prior) != 1 + k:
            raise layout.damaged(path, f"{k} answers, where the fit has another number")
        if key not in book.parts:
            part = Part(*key, k, known.prior if known else [1.0] + [0.0] * k)
            part.joint = known.joint if known else part.joint
            book.parts[key] = part
        if book.parts[key].k == k:
            log_p, digest = np.array(example.log_p, np.float32), book.salted.text(example.name)
            empty = np.zeros(0, np.uint32)
            book.parts[key].texts[digest] = Text(example.label, date, False, log_p, empty)
    return book
