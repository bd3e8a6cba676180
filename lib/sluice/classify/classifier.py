"""Classify texts: process prompt and input, and read label probabilities from the logits."""

from ..faults import Error, data_error
from ..kernels import ffi, lib
from ..kvcache import capacity
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..model import packed
from ..model.model import Model
from ..model.packed import Part
from ..question import kinds, orders
from ..question.answers import Tree, calibrated, log_sum
from ..question.prompt import Prompt
from ..question.question import UNSURE
from ..texts import inputs
from ..tokenizer.vocabulary import Vocab

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from ..learn.auto import Auto
    from ..learn.learned import Learned, Section

KV_TYPE = "f16"
EXIT_OTHER, EXIT_UNSURE = 1, 2
# Tokens before the input * bytes of weights. Below this, processing the tokens is faster than
# opening a snapshot.
MIN_CACHE_COST = 1 << 28


class Verdict:
    """The result for one text.

    answer: the most probable label, or "unsure".
    score: probability of the answer; of the first label if unsure.
    scores: {label: probability}.
    level: expected level of a question of type score, 0 for the first; None for other questions.
    log_p: uncalibrated log probabilities (nats) in the order of the labels.
    learned: the learned.Section in use; None: the question's calibration alone.
    taught: the label that the user gave to this text, or None. The answer is this one.
    is_left_out: the text was learned, and is classified as if it had not been.
    calibration: [scale, *biases] that make the scores of log_p, the evidence of the user's tokens
    in the biases; not of a learned text.
    n_tokens: tokens of prompt and input.
    n_reused: those of them that came from the cache or from an earlier text.
    cut: whether the middle of the text was dropped.
    mass: probability of all labels' paths among all tokens, or None.
    begin_mass: probability of the tokens that begin an answer, of texts that are sampled, or None.
    hidden: hidden state after the prompt, f32 [n_embd], if the Classifier keeps it, or None.
    reasons: problems found in a message (see sluice.mail, inputs.NO_TEXT), or None.
    used: the text that the prompt gets; two parts if its middle is dropped (see inputs.text).
    header: the header of a message, at most tokens.HEADER_BYTES, or None.
    rule: name of the rule that gave the answer (ruled.py), or None: the model did.
    """

    answer: str
    score: float
    scores: dict[str, float]
    level: float | None
    log_p: list[float]
    learned: "Section | None"
    taught: str | None
    is_left_out: bool = False
    calibration: list[float]
    n_tokens: int
    n_reused: int
    cut: bool
    mass: float | None
    begin_mass: float | None
    hidden: "Any"
    reasons: list[str] | None = None
    used: tuple[bytes, bytes | None]
    header: bytes | None = None
    rule: str | None = None


class _Text:
    """tokens: those before the input, and the input's. cut, reasons, used, header: see Verdict."""

    __slots__ = ("cut", "header", "reasons", "tokens", "used")

    def __init__(self, tokens, cut, reasons, used, header):
        self.tokens, self.cut, self.reasons, self.used = tokens, cut, reasons, used
        self.header = header


class Classifier:
    """A question with the model file at `path`, ready for one text after another.

    cache_dir: directory for the model ID and for a snapshot of the tokens before the input, or
    None. Cache errors are ignored.
    as_mail: the inputs are messages (RFC 5322), whatever the question says.
    mass: compute Verdict.mass. learned: a learned.Learned, or None.
    threads, arithmetic, vocab, huge_pages: see model.Model. model: a Model that is open already, in
    place of `path` and these.

    Attributes: head: a heads.Head, whose scores take the place of log_p in the calibration, or
    None. fitted: the fit_file.Fitted in use, or None. asked_prior: priors.Asked, prior: the
    priors.Prior in use, or None. keeps_hidden: set Verdict.hidden. learned: may be set to another
    Learned of the same question before each text. signals: called with the header of a message,
    returns tokens that it has besides those of learn/tokens.py; None: no others. auto: an
    auto.Auto, or None. leaves_out: a learned text is classified as if it had not been learned.
    n_to_sample: of so many texts more, set Verdict.begin_mass. rules: a ruled.Ruled, or None.
    authserv_ids: servers whose word about a message is trusted (mail/signals.py). users: the
    learned_files.LearnedFiles of users, or None.

    Raises DataError or UnsupportedError for a model that is invalid or does not fit the question.
    """

    def __init__(
        self,
        question: "Any",
        path: str,
        threads: int | None = None,
        cache_dir: str | None = None,
        as_mail: bool = False,
        mass: bool = False,
        arithmetic: str = "exact",
        vocab: str | None = None,
        learned: "Learned | None" = None,
        huge_pages: bool = False,
        model: Model | None = None,
    ) -> None:
        self.learned, self.question = learned, question
        self.signals: Callable[[bytes], set[str]] | None = None
        self.leaves_out = False
        self.auto: Auto | None = None
        self.as_mail, self._with_mass = as_mail, mass
        self.is_mail = as_mail or question.kind == "mail"
        self.model = m = model or Model(path, threads, arithmetic, vocab, huge_pages)
        m.file.id_cache = cache_dir
        self._vocab = Vocab(m.file)
        self.tree = Tree(question, self._vocab)
        self.head: Any = None
        self.fitted: Any = None
        self.asked_prior: Any = None
        self.prior: Any = None
        self.keeps_hidden, self.n_to_sample = False, 0
        self.rules: Any = None
        self.authserv_ids: tuple[str, ...] = ()
        self.users: Any = None
        n_ctx = capacity.limit(m.hparams.n_ctx)
        self.orders = [
            Prompt(question, m.file, self._vocab, n_ctx, self.tree.depth, segments)
            for segments in orders.prompts(question)
        ]
        self.prompt = p = min(self.orders, key=lambda p: p.head + p.tail)
        n_around = max(len(p.before) + len(p.after) for p in self.orders)
        self.n_rows = n_around + p.head + p.tail + self.tree.depth
        # tokens before the input that need not be processed again
        n_shared = orders.common([p.before for p in self.orders])
        self.shared, self.shares_all = p.before[:n_shared], n_shared == len(p.before)
        self.cache_state = "none"  # or "found" or "stored": what -v prints as cache
        self._kv = self._cached_prefix(cache_dir) or Scratch(m.geometry(KV_TYPE), self.n_rows)
        self.forward = packed.Packed(m.hparams, self._kv)
        self._hidden: dict[tuple[int, ...], Any] = {}
        self.n_known = self._kv.n_tok

    def _cached_prefix(self, cache_dir):
        """Open or store a snapshot of the tokens before the input in `cache_dir`.

        Returns None if the tokens are too few, or if the cache cannot be used.
        """
        m, tokens = self.model, self.shared
        weights = sum(t.n_bytes for t in m.file.tensors.values())
        if not cache_dir or not tokens or len(tokens) * weights < MIN_CACHE_COST:
            return None
        from ..kvcache import prefix_cache  # seldom needed

        geometry = m.geometry(KV_TYPE)
        known = prefix_cache.get(cache_dir, m.file.id, m.arithmetic, geometry, tokens)
        if known and known.capacity >= self.n_rows:
            self.cache_state = "found"
            return known
        try:
            prefix_cache.prepare(cache_dir)
            new = Snapshot.create(geometry, self.n_rows, m.file.id, m.arithmetic, cache_dir)
            m.fill(new, known, [] if known else tokens)
            m.file.check_unchanged()
            prefix_cache.store(cache_dir, new)
        except (Error, OSError):
            return None
        self.cache_state = "stored"
        return new

    def buffer_bytes(self) -> int:
        """Return the bytes kept from one text to the next: activations, and the KV cache."""
        return self._kv.layout.file_bytes + self.forward.buffer_bytes()

    def prepare(self) -> None:
        """Process the tokens before the input now, once for all texts."""
        if not self.n_known and self.shared:
            if self.model.hparams.n_state:  # the cache has the states from which texts branch off
                self.model.extend(self._kv, self.shared)
            else:
                for _ in packed.run(self.model, self.forward, [Part(0, self.shared)]):
                    pass
            self.n_known = len(self.shared)

    def ask(self, data: bytes) -> "Verdict":
        """Classify an input. Raises DataError if it is empty."""
        (v,) = self.ask_many((data,))
        if isinstance(v, Error):
            raise v
        return v

    def ask_many(self, inputs: "Iterable[bytes]") -> "Iterator[Verdict | Error]":
        """Classify inputs in one batch. Yields a Verdict each, or the DataError that it is empty.

        The order is that of the inputs; a Verdict is yielded as soon as it is known. All inputs
        share the keys and values of the prompt. Each Verdict has the same bits as from `ask`.
        """
        for found in ask_together([self], inputs):
            yield found if isinstance(found, Error) else found[0]

    def reads_as(self) -> tuple["Any", ...]:
        """What decides the tokens up to the end of an input: Classifiers of one model for which
        this is equal may be asked together.
        """
        p, q = self.prompt, self.question
        if not self.shares_all:  # orders of answers that stand before the input
            return (id(self),)
        return (*p.reads_as(), self.is_mail, q.fold)

    def tokenized(self, data: bytes) -> "_Text | Error":
        """Return the _Text of an input, or the DataError that it is empty."""
        if not data:
            return data_error("input", "no text: the input is empty")
        try:
            text, rest, reasons = inputs.text(data, self.is_mail, self.question.fold)
        except Error as e:
            return e
        header = None
        if self.is_mail:
            from ..learn import tokens

            header = tokens.header_of(data)
        return self.text_of(text, rest, reasons, header)

    def text_of(
        self,
        text: bytes,
        rest: bytes | None,
        reasons: list[str] | None,
        header: bytes | None = None,
    ) -> "_Text | Error":
        """Return the _Text of what inputs.text gives, or the DataError that it is empty.

        header: of a message, see Verdict.
        """
        tokens, cut = self.prompt.input_tokens(text, rest)
        tokens = self.prompt.before + tokens
        if not tokens and not self.prompt.after:
            return data_error("input", "no text, and the prompt is empty, too")
        return _Text(tokens, cut, reasons, (text, rest), header)

    def reserve(self, n_rows: int) -> None:
        """Have a cache of at least `n_rows` tokens."""
        if self._kv.capacity < n_rows:
            self.n_rows = n_rows
            self._kv, self.n_known = Scratch(self.model.geometry(KV_TYPE), n_rows), 0
            self.forward = packed.Packed(self.model.hparams, self._kv)

    def share(self, other: "Classifier") -> None:
        """Use the cache and the buffers of `other`, whose prompt begins with the same tokens."""
        self._kv, self.forward, self.n_known = other._kv, other.forward, other.n_known

    def verdict(
        self, text: "_Text", hidden: "dict[tuple[int, tuple[int, ...]], Any]", n_known: int
    ) -> Verdict:
        """Return the Verdict on a _Text.

        hidden: {(order, path): hidden state after the prompt, the text in it, and the tokens of the
        path}. n_known: tokens that were in the cache.
        """
        v, found, log_mass = Verdict(), [], None
        v.hidden, v.begin_mass = hidden[0, ()] if self.keeps_hidden else None, None
        for order in range(len(self.orders)):
            self._hidden = {path: x for (o, path), x in hidden.items() if o == order}
            log_p, mass = self.tree.log_probabilities(
                self._look, self._log_total if self._with_mass and not order else None
            )
            found.append(log_p)
            if not order:
                log_mass = mass
                if self.n_to_sample:
                    self.n_to_sample -= 1
                    v.begin_mass = self._begin_mass()
        v.log_p = orders.mean(found)
        v.n_tokens, v.n_reused = len(text.tokens) + len(self.prompt.after), n_known
        v.cut, v.reasons, v.used, v.header = text.cut, text.reasons, text.used, text.header
        self.evaluate(v)
        v.mass = None if log_mass is None else min(1.0, lib.sluice_exp(log_mass))
        return v

    def evaluate(self, v: "Verdict") -> None:
        """Set answer and scores of `v` from its log_p, the calibration, and what was learned.

        The answer is "unsure" to a message without text and links, whatever its subject says,
        unless the user has given it: a photograph with the subject Hello is no spam.
        """
        q, names = self.question, list(self.question.answers)
        v.learned = self.learned.section(self.model.file) if self.learned else None
        v.taught, v.calibration = None, [q.scale, *q.bias.values()]
        if v.learned:
            self._use_learned(v, v.learned)
        scale, *bias = v.calibration
        p = calibrated(self.head.scores(v.hidden) if self.head else v.log_p, scale, bias)
        if v.taught is not None:
            p = _settled(p, names.index(v.taught), q.thresholds[v.taught])
        best, v.level = max(range(len(p)), key=lambda a: p[a]), None
        if q.type == kinds.SCORE:
            best, v.level = kinds.nearest(p), kinds.level(p)
        v.scores = dict(zip(names, p))
        is_sure = p[best] >= q.thresholds[names[best]]
        if inputs.NO_TEXT in (v.reasons or ()):
            is_sure = False
        if v.taught is not None:
            best, is_sure = names.index(v.taught), True
        v.answer, v.score = (names[best], p[best]) if is_sure else (UNSURE, p[0])

    def words_of(self, v: "Verdict") -> set[str]:
        """Return the tokens of the text of `v` that learning counts (learn/tokens.py)."""
        from ..learn import tokens

        found = tokens.of(*v.used, v.header, self.question.fold)
        return found | self.signals(v.header) if self.signals and v.header else found

    def _use_learned(self, v, section):
        """Set calibration and taught of `v` by what was learned."""
        joint, label = section.joint, section.label(v.used)
        bias, v.is_left_out = joint.bias, label is not None and self.leaves_out
        if section.has_evidence:
            t, _ = section.evidence(self.words_of(v), label if v.is_left_out else None)
            bias = [b + joint.trust * x for b, x in zip(bias, t)]
        v.calibration = [joint.scale, *bias]
        if label is not None and not v.is_left_out:
            v.taught = list(self.question.answers)[label]

    def line(self, v: "Verdict", name: str | None = None) -> bytes:
        """Return the line of --long: label, P(first label), threshold, model ID (16 hex digits).

        name: printed as label. None: "yes" for the first label, "no" for another one, or "unsure".
        """
        first = next(iter(self.question.answers))
        name = name or (UNSURE if v.answer == UNSURE else "yes" if v.answer == first else "no")
        return (
            f"{name} {v.scores[first]:.4f} {self.question.thresholds[first]:.4f}"
            f" {self.model.file.id[:8].hex()}\n".encode()
        )

    def status(self, v: "Verdict") -> int:
        """Return the exit status: 0 for the first label, 1 for another one, 2 for unsure."""
        return (
            EXIT_UNSURE
            if v.answer == UNSURE
            else EXIT_OTHER * (v.answer != next(iter(self.question.answers)))
        )

    def _look(self, path, rows):
        """Return the logits of `rows` after the prompt and the tokens `path`."""
        self._looked = self._hidden[tuple(path)]
        out = ffi.new("float[]", len(rows))
        self.model.head(self.forward, self.forward.part(self._looked, 0, 1), out, rows)
        return out

    def _log_total(self):
        """Return ln(sum of e^logit) over the vocabulary at the position of the last _look."""
        logits, score = self._dense(), ffi.new("logit_score[1]")
        lib.score_logits(score, logits, ffi.new("int32_t[1]"), ffi.NULL, 1, len(logits))
        return logits[0] - score[0].log_p

    def _dense(self):
        """Return the logits of the whole vocabulary at the position of the last _look."""
        out = ffi.new("float[]", self.model.hparams.n_vocab)
        self.model.head(self.forward, self.forward.part(self._looked, 0, 1), out)
        return out

    def _begin_mass(self):
        """Return the probability of the tokens that begin an answer among all tokens."""
        root = self.tree.root
        among = log_sum(ffi.unpack(self._look((), root.rows), len(root.tokens)))
        return min(1.0, lib.sluice_exp(among - self._log_total()))


def _settled(p, label, threshold):
    """Probabilities `p`, moved so that the answer `label` is beyond its threshold."""
    least = (1 + max(threshold, 0.5)) / 2
    if p[label] >= least:
        return p
    others = sum(p) - p[label]
    share = (1 - least) / others if others else 0.0
    return [least if a == label else share * x for a, x in enumerate(p)]


def ask_together(
    classifiers: "list[Classifier]", inputs: "Iterable[bytes]"
) -> "Iterator[list[Verdict] | Error]":
    """Classify inputs in one batch by several questions that read them alike (`reads_as`).

    Yields, for each input, a Verdict for each of `classifiers`, or the DataError that the input is
    empty. The tokens of an input are processed once for all questions. Each Verdict has the same
    bits as from the question alone. A message that a rule of the first question decides is not
    read.
    """
    first = classifiers[0]
    if not first.rules:
        return ask_texts(classifiers, [first.tokenized(data) for data in inputs])
    decided = [(data, first.rules.verdict(first, data)) for data in inputs]
    rest = ask_texts(classifiers, [first.tokenized(data) for data, v in decided if not v])
    return ([v] if v else next(rest) for _, v in decided)


def ask_texts(
    classifiers: "list[Classifier]", texts: "list[Any]"
) -> "Iterator[list[Verdict] | Error]":
    """Classify texts that are tokenized: each is a _Text, or an Error, which is yielded in its
    place. As `ask_together`.
    """
    first = classifiers[0]
    n_done = 0
    hidden: dict[tuple[int, tuple[int, ...]], Any] = {}
    verdicts: list[Verdict] = []
    for (i, k, path, n_known), x in packed.run(
        first.model, first.forward, _parts(classifiers, texts)
    ):
        hidden[path] = x.copy()
        c, text = classifiers[k], texts[i]
        if len(hidden) < len(c.orders) * len(c.tree.paths):
            continue
        yield from texts[n_done:i]  # errors
        verdicts.append(c.verdict(text, hidden, n_known))
        n_done, hidden = i, {}
        if len(verdicts) == len(classifiers):
            first.model.file.check_unchanged()
            n_done += 1
            yield verdicts
            verdicts = []
    yield from texts[n_done:]


def _parts(classifiers, texts):
    """Return the Parts for `texts`: of each the tokens after the cached ones, and for each question
    the tokens after the text and the nodes of its tree. Of several questions, each writes its keys
    and values over those of the question before it.
    """
    parts, n_cached = [], classifiers[0].n_known
    are_many = len(classifiers) > 1
    for i, text in enumerate(texts):
        if isinstance(text, Error):
            continue
        n, n_known = len(text.tokens), min(n_cached, len(text.tokens))
        if are_many and n > n_known:
            parts.append(Part(n_known, text.tokens[n_known:]))
            n_known = n
        for k, c in enumerate(classifiers):
            n_reused = None
            for o, prompt in enumerate(c.orders):
                tokens = prompt.before + text.tokens[len(c.prompt.before) :] + prompt.after
                # the logits come from the last token
                begin, last = min(n_known, len(tokens) - 1), len(tokens) - 1
                if n_reused is None:
                    n_reused = min(n_cached, begin) if not k else begin
                parts.append(Part(begin, tokens[begin:], (i, k, (o, ()), n_reused)))
                parts += [
                    Part(last + len(p), [p[-1]], (i, k, (o, p), n_reused))
                    for p in c.tree.paths
                    if p
                ]
                if c.shares_all and len(c.orders) > 1:  # the next order's text is in the cache
                    n_known = max(n_known, min(len(text.tokens), last))
    return parts
