"""A model and a question, ready for one text after another: what `classify` does between its
options and its output.
"""

from ..faults import Error, data_error
from ..kernels import ffi, lib
from ..kvcache import capacity
from ..kvcache.scratch import Scratch
from ..kvcache.snapshot import Snapshot
from ..model.forward import Forward
from ..model.model import Model
from ..tokenizer.vocabulary import Vocab
from . import inputs
from .answers import Tree, calibrated
from .prompt import Prompt
from .question import UNSURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calibration import Fit

KV_TYPE = "f16"
EXIT_OTHER, EXIT_UNSURE = 1, 2
# tokens before the input times bytes of weights: below, computing them is faster than opening a
# snapshot
WORTH_KEEPING = 1 << 28


class Verdict:
    """answer: name, or "unsure".
    score: probability of the answer; of the first one if unsure.
    scores: {name: probability}.
    log_p: log probabilities in the order of the answers, before calibration.
    fit: the calibration.Fit in use, None: as shipped.
    n_ids: read in all.
    n_reused: of them, not computed for this text.
    cut: whether some of the text was left out.
    mass: probability of all answers' tokens among all tokens, or None.
    reasons: of a mail, see sluice.mail.
    """

    answer: str
    score: float
    scores: dict[str, float]
    log_p: list[float]
    fit: "Fit | None"
    n_tokens: int
    n_reused: int
    cut: bool
    mass: float | None
    reasons: list[str] | None


class Classifier:
    """A question.Question put to the model file at `path`. cache_dir: where the tokens before the
    input and the model's id are kept, or None.

    vocab, huge_pages: see Model. as_mail: the inputs are whole messages, whatever the question
    says. mass: compute it, for each text. learnt: a calibration.Learnt, or None. Error 65, 69;
    cache errors are ignored.
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
        learnt: "Any" = None,
        huge_pages: bool = False,
    ) -> None:
        self.learnt, self.question, self.as_mail, self._with_mass = learnt, question, as_mail, mass
        self.is_mail = as_mail or question.kind == "mail"
        self.model = m = Model(path, threads, arithmetic, vocab, huge_pages)
        m.file.id_cache = cache_dir
        self._vocab = Vocab(m.file)
        self.tree = Tree(question, self._vocab)
        self.prompt = p = Prompt(
            question, m.file, self._vocab, capacity.limit(m.hparams.n_ctx), self.tree.depth
        )
        self._n_rows = len(p.before) + p.head + p.tail + len(p.after) + self.tree.depth
        self.kept = "none"  # what the cache did: none, found or stored
        self._kv = self._known(cache_dir) or Scratch(m.geometry(KV_TYPE), self._n_rows)
        self._forward = Forward(m.hparams, self._kv)
        self.n_known = self._kv.n_tok

    def _known(self, cache_dir):
        """The KV cache with the tokens before the input, from `cache_dir` or for it; None where
        that is not worth it or fails.
        """
        m, tokens = self.model, self.prompt.before
        weights = sum(t.n_bytes for t in m.file.tensors.values())
        if not cache_dir or not tokens or len(tokens) * weights < WORTH_KEEPING:
            return None
        from ..kvcache import prefix_cache  # seldom needed

        geometry = m.geometry(KV_TYPE)
        known = prefix_cache.get(cache_dir, m.file.id, m.arithmetic, geometry, tokens)
        if known and known.capacity >= self._n_rows:
            self.kept = "found"
            return known
        try:
            prefix_cache.prepare(cache_dir)
            new = Snapshot.create(geometry, self._n_rows, m.file.id, m.arithmetic, cache_dir)
            m.fill(new, known, [] if known else tokens)
            m.file.check_unchanged()
            prefix_cache.store(cache_dir, new)
        except (Error, OSError):
            return None
        self.kept = "stored"
        return new

    def buffer_bytes(self) -> int:
        """Bytes that are held from one text to the next on purpose: activations, and room for keys
        and values.
        """
        return self._kv.layout.file_bytes + self._forward.buffer_bytes()

    def prepare(self) -> None:
        """Compute the tokens before the input now, once for all texts."""
        if not self.n_known and self.prompt.before:
            self.model.extend(self._kv, self.prompt.before, f=self._forward)
            self.n_known = self._kv.n_tok

    def ask(self, data: bytes) -> "Verdict":
        """The Verdict on an input (bytes). DataError where there is nothing in it."""
        if not data:
            raise data_error("input", "no text: it is empty")
        text, rest, reasons = inputs.text(data, self.is_mail, self.question.fold)
        tokens, cut = self.prompt.input_tokens(text, rest)
        tokens = self.prompt.before + tokens + self.prompt.after
        if not tokens:
            raise data_error("input", "no text, and nothing around it")
        n_known = min(self.n_known, len(tokens) - 1)  # the logits come from the last one
        self._kv.n_tok = n_known
        self._n_prompt, self._hidden = len(tokens), self._extend(tokens[n_known:])
        log_p, log_mass = self.tree.log_probabilities(
            self._look, self._dense if self._with_mass else None
        )
        self.model.file.check_unchanged()
        v = Verdict()
        v.log_p = log_p
        self.judge(v)
        v.n_tokens, v.n_reused, v.cut, v.reasons = len(tokens), n_known, cut, reasons
        v.mass = None if log_mass is None else min(1.0, lib.sluice_exp(log_mass))
        return v

    def judge(self, v: "Verdict") -> None:
        """Answer and scores of the Verdict `v` from its log_p and the calibration as it is now."""
        q, names = self.question, list(self.question.answers)
        v.fit = self.learnt and self.learnt.fit(self.model.file)
        scale, *bias = v.fit.fitted if v.fit else (q.scale, *(q.bias[name] for name in names))
        p = calibrated(v.log_p, scale, bias)
        best = max(range(len(p)), key=lambda a: p[a])
        v.scores = dict(zip(names, p))
        v.answer, v.score = (
            (names[best], p[best]) if p[best] >= q.thresholds[names[best]] else (UNSURE, p[0])
        )

    def line(self, v: "Verdict", name: str | None = None) -> bytes:
        """The line of --long for a Verdict, as bytes: `name` (yes, no or unsure by the answer's
        place), the probability of the first answer, the one it needs, 16 hex digits of the model's
        id.
        """
        first = next(iter(self.question.answers))
        name = name or (UNSURE if v.answer == UNSURE else "yes" if v.answer == first else "no")
        return (
            f"{name} {v.scores[first]:.4f} {self.question.thresholds[first]:.4f}"
            f" {self.model.file.id[:8].hex()}\n".encode()
        )

    def status(self, v: "Verdict") -> int:
        """The exit status that a Verdict is: 0 the first answer, 1 another, 2 unsure."""
        return (
            EXIT_UNSURE
            if v.answer == UNSURE
            else EXIT_OTHER * (v.answer != next(iter(self.question.answers)))
        )

    def _extend(self, tokens):
        return self.model.extend(self._kv, tokens, f=self._forward)[1]

    def _look(self, path, rows):
        """Logits of `rows` after the prompt and the tokens of `path`. The cache holds all but its
        last: the tree is walked depth first, so they were looked at before, and nothing but what
        follows them since.
        """
        if path:
            self._kv.n_tok = self._n_prompt + len(path) - 1
            self._hidden = self._extend(path[-1:])
        out = ffi.new("float[]", len(rows))
        self.model.head(self._forward, self._hidden, out, rows)
        return out

    def _dense(self):
        """The logits of the whole vocabulary where _look looked last."""
        out = ffi.new("float[]", self.model.hparams.n_vocab)
        self.model.head(self._forward, self._hidden, out)
        return out
