"""The training loop. It can be interrupted; the result depends on seed and number of steps only.

Two data-parallel ranks train on half of each batch and sum their gradients (ranks.py). Many
operations of a step are too small for threads: on two cores, ranks take two thirds of the time of
two threads.

Loss: cross-entropy at the last position against the soft label, and at every token of the message
against the teacher's probability for the text up to there. So the net learns what each word adds,
not the label of a text. Most examples are excerpts of several texts (epochs.py), which cannot be
memorized. The final steps have whole texts only, as `classify` has, and weigh labels more.

Optimizers: Muon for matrices (Jordan et al. 2024, kellerjordan.github.io/posts/muon; update scaled
as in arXiv 2502.16982), AdamW for the rest. The exported weights are a moving average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional as F

from sluice.faults import data_error

from . import augmentation, epochs, net
from .epochs import Epochs, Example, padded
from .net import Llama
from .prepare import Prepared, digest

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .ranks import Ranks

# approximate; losses are sums divided by it, so that a text weighs the same in a step of few long
# texts and in one of many short texts
TEXTS_PER_STEP = 48
LR_MUON, LR_ADAM, DECAY_MUON, DECAY_ADAM = 2e-3, 1.5e-3, 0.1, 0.01
# learning rate: linear warm-up, constant, then linear to zero from this share of the steps on
WARM_STEPS, DECAY_FROM = 150, 0.5
AVERAGE = 0.998
# factor of the learning rates with an initial checkpoint, to keep more of it; the only value tried
RATE_FINE_TUNING = 0.6
# share of the final steps, which have whole texts only; their warm-up, rate factor and averaging
FINAL, WARM_FINAL, LR_FINAL, AVERAGE_FINAL = 0.04, 50, 0.25, 0.99
EVIDENCE, MEAN_GAIN, ANSWER = 0.05, 6.0, 0.5  # of init_from_evidence()
PER_TOKEN = 1.0  # weight of the loss at all tokens
# weight of the Huber loss between logits in it (Huber 1964), which matters for clear texts as well
HUBER = 0.1
N_RANK = 2


class Muon(torch.optim.Optimizer):
    """Muon for matrices. kind: torch dtype of the products in orthogonal()."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float,
        decay: float,
        kind: torch.dtype,
        momentum: float = 0.95,
    ):
        super().__init__(params, dict(lr=lr, decay=decay, momentum=momentum))
        self.kind = kind

    @torch.no_grad()
    def step(self, rank: int = 0, ranks: Ranks | None = None) -> None:
        """Update all matrices. Each rank computes the updates of every N_RANK-th matrix.

        rank, ranks: as for Trainer.
        """
        (group,) = self.param_groups
        updates = []
        for i, w in enumerate(group["params"]):
            m = self.state[w].setdefault("momentum", torch.zeros_like(w))
            m.lerp_(w.grad, 1 - group["momentum"])
            is_own = not ranks or i % N_RANK == rank
            updates.append(
                orthogonal(w.grad.lerp(m, group["momentum"]), self.kind)
                if is_own
                else torch.empty_like(w)
            )
        if ranks:
            ranks.exchange(rank, updates)
        for w, update in zip(group["params"], updates):
            w.mul_(1 - group["lr"] * group["decay"]).add_(
                update, alpha=-group["lr"] * 0.2 * max(w.shape) ** 0.5
            )


def orthogonal(
    g: torch.Tensor, kind: torch.dtype = torch.bfloat16, n_step: int = 5
) -> torch.Tensor:
    """Approximate U V' of g = U S V' by the quintic Newton-Schulz iteration.

    g: float32 [n, m]. kind: torch dtype of the products. Coefficients are Jordan's.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = (x / (x.norm() + 1e-7)).to(kind)
    for _ in range(n_step):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if g.shape[0] > g.shape[1] else x).float()


class Trainer:
    """A net, its optimizers and their state.

    p: prepare.Prepared. shape: net.Shape. n_step: number of steps. rank: number of this process.
    ranks: the shared ranks.Ranks; None is one process, which trains on its part of each batch only.
    float32: compute in f32 instead of bf16.
    """

    def __init__(
        self,
        p: Prepared,
        shape: net.Shape,
        n_step: int,
        seed: int = 1,
        compiled: bool = True,
        dropout: float = 0.1,
        rank: int = 0,
        ranks: Ranks | None = None,
        float32: bool = False,
    ):
        torch.manual_seed(seed)
        self.rank, self.ranks, self.float32 = rank, ranks, float32
        self.p, self.shape, self.n_step, self.n_augmented, self.seed, self.step = (
            p,
            shape,
            n_step,
            n_step - int(FINAL * n_step),
            seed,
            0,
        )
        self.key = (
            p.key,
            digest(
                [
                    Path(module)
                    for module in (__file__, epochs.__file__, net.__file__, augmentation.__file__)
                ]
            ),
        )
        self.model = Llama(shape, dropout)
        self.weight = [x for x in self.model.blk.parameters() if x.ndim == 2]
        rest = [x for x in self.model.parameters() if not any(x is w for w in self.weight)]
        self.muon = Muon(
            self.weight, LR_MUON, DECAY_MUON, torch.float32 if float32 else torch.bfloat16
        )
        self.adam = torch.optim.AdamW(rest, LR_ADAM, betas=(0.9, 0.98), weight_decay=DECAY_ADAM)
        if compiled:
            for block in self.model.blk:
                block.compile(dynamic=True)
        init_from_evidence(self.model, p.evidence, p.yes, p.no)
        if p.initial:
            init_from_checkpoint(self.model, p.initial)
        self.average = {name: x.detach().clone() for name, x in self.model.state_dict().items()}

    def stack(self, texts: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens int64 [batch, token], padded at the end; int64 [batch], positions of the last).

        texts: [int [n]], tokens, marked or not; the question is added.
        """
        rows = [
            np.concatenate((self.p.before, augmentation.bare(tokens), self.p.after))
            for tokens in texts
        ]
        tokens = np.zeros((len(rows), padded(max(map(len, rows)))), np.int64)
        for out, row in zip(tokens, rows):
            out[: len(row)] = row
        return torch.from_numpy(tokens), torch.tensor([len(row) - 1 for row in rows])

    def losses(
        self, batch: Sequence[Example], rng: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(loss of the answers, loss at the tokens of the messages) of a list of examples.

        In nats: sums over the examples divided by TEXTS_PER_STEP, means over the tokens of each.
        rng: numpy Generator for synonym replacement, or None.
        """
        inputs = [
            self.p.synonyms.replaced(tokens, rng) if rng and self.p.synonyms else (tokens, None)
            for *_, tokens in batch
        ]
        tokens, last = self.stack([tokens for tokens, _ in inputs])
        target, logits, weight = (
            torch.zeros(len(batch)),
            torch.zeros(tokens.shape),
            torch.zeros(tokens.shape),
        )
        for i, (example, (_, places)) in enumerate(zip(batch, inputs)):
            target[i], teacher_logits = self.epochs.targets(*example)
            teacher_logits = teacher_logits if places is None else teacher_logits[places]
            inside = slice(len(self.p.before), len(self.p.before) + len(teacher_logits))
            logits[i, inside], weight[i, inside] = (
                torch.from_numpy(teacher_logits).float(),
                1 / max(1, len(teacher_logits)),
            )
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.float32):
            x = self.model(tokens)
            answer = F.log_softmax(self.model.head(x[torch.arange(len(tokens)), last]).float(), -1)
        loss = -(target * answer[:, self.p.yes] + (1 - target) * answer[:, self.p.no]).sum()
        embd = self.model.token_embd.weight
        logit = x @ (embd[self.p.yes] - embd[self.p.no])
        each = F.binary_cross_entropy_with_logits(logit, torch.sigmoid(logits), reduction="none")
        each = each + HUBER * F.huber_loss(logit, logits, reduction="none")
        return loss / TEXTS_PER_STEP, (each * weight).sum() / TEXTS_PER_STEP

    def batches(self) -> Iterator[tuple[int, list[Example]]]:
        """Yield (number of the epoch, batch) for each step from self.step on."""
        for first, end in ((0, self.n_augmented), (self.n_augmented, self.n_step)):
            epoch = -1
            while max(first, self.step) < end:
                epoch, batches = (
                    epoch + 1,
                    None,
                )  # freed before the next are made: an epoch is large
                batches = self.epochs.batches(epoch, end == self.n_step)
                for at in range(self.step - first, min(len(batches), end - first)):
                    yield epoch, batches[at]
                first += len(batches)

    def run(
        self,
        seconds: float,
        save: Callable[[Trainer], Any] | None = None,
        report: Callable[..., Any] | None = None,
        every: int = 200,
    ) -> bool:
        """Train for up to `seconds`; return whether the last step is done.

        Rank 0 calls save(self) and report(self, epoch, losses of a text, tokens/s) every `every`
        steps and save(self) at the end. It also decides when time is over.
        """
        end, reported, counted, n_text, sums, over = (
            time.monotonic() + seconds,
            time.monotonic(),
            0,
            0,
            np.zeros(2),
            False,
        )
        n_template, self.epochs = len(self.p.before) + len(self.p.after), Epochs(self.p, self.seed)
        for epoch, batch in self.batches():
            torch.manual_seed((self.seed << 20 | self.step) * N_RANK + self.rank)
            for group, lr in (
                (self.muon.param_groups[0], LR_MUON),
                (self.adam.param_groups[0], LR_ADAM),
            ):
                group["lr"] = (
                    lr
                    * rate(self.step, self.n_augmented, self.n_step)
                    * (RATE_FINE_TUNING if self.p.initial else 1)
                )
            own = (
                batch[self.rank :: N_RANK] or batch[:1]
            )  # a batch of one text: all ranks train on it
            rng = (
                np.random.default_rng((self.seed, self.step, self.rank))
                if self.step < self.n_augmented
                else None
            )
            answer, per_token = self.losses(own, rng)
            (answer + PER_TOKEN * per_token).backward()
            over = time.monotonic() >= end
            if self.ranks:
                over = self.ranks.all_reduce(
                    self.rank, [x.grad for x in self.model.parameters()], over
                )
            self.muon.step(self.rank, self.ranks)
            self.adam.step()
            self.model.zero_grad(set_to_none=True)
            decay = (
                min(AVERAGE, self.step / (self.step + 10))
                if self.step < self.n_augmented
                else AVERAGE_FINAL
            )
            for name, x in self.model.state_dict().items():
                self.average[name].lerp_(x, 1 - decay)
            self.step += 1
            counted += sum(len(tokens) + n_template for *_, tokens in batch)
            n_text += len(own)
            sums += [answer.item() * TEXTS_PER_STEP, per_token.item() * TEXTS_PER_STEP]
            if self.rank == 0 and (self.step % every == 0 or self.step == self.n_step):
                now = time.monotonic()
                if report:
                    report(self, epoch, sums / n_text, counted / (now - reported))
                reported, counted, n_text, sums = now, 0, 0, np.zeros(2)
                if save:
                    save(self)
            if over:
                break
        if save and self.rank == 0:
            save(self)
        return self.step >= self.n_step

    def state(self) -> dict[str, Any]:
        """Everything that resume() needs, for torch.save."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average,
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "n_step": self.n_step,
            "seed": self.seed,
            "shape": self.shape.as_dict(),
            "float32": self.float32,
            "key": self.key,
        }

    def resume(self, path: str) -> None:
        """Load the state in a file, if it exists. DataError: damaged, or of another training."""
        if Path(path).exists():
            saved = _read(path)
            own = self.n_step, self.seed, self.shape.as_dict(), self.float32, self.key
            if (
                tuple(saved.get(name) for name in ("n_step", "seed", "shape", "float32", "key"))
                != own
            ):
                raise data_error(
                    path,
                    "of a training with other texts, recipe, initial checkpoint, shape, type, seed"
                    " or number of steps; remove it or use another --work folder",
                )
            self.step, self.average = saved["step"], saved["average"]
            for part, name in ((self.model, "model"), (self.muon, "muon"), (self.adam, "adam")):
                part.load_state_dict(saved[name])


def _read(path):
    """Read a state, a dict. DataError: damaged."""
    with open(path, "rb") as f:
        try:
            saved = torch.load(f, weights_only=True)
        except MemoryError:
            raise
        except Exception as e:  # torch.load raises any kind of exception for damaged files
            saved = e
    if not isinstance(saved, dict):
        raise data_error(
            path, f"damaged ({type(saved).__name__}); remove it to start the training again"
        )
    return saved


@torch.no_grad()
def init_from_evidence(model: Llama, evidence: np.ndarray, yes: int, no: int) -> None:
    """Initialize a net so that its answer is the mean evidence of the tokens.

    It then learns what a linear model lacks. evidence: float [n_vocab]. yes, no: tokens. The first
    element of an embedding is the token's evidence. A head of the first block attends to all
    positions alike and writes the mean to the second element, to which no other weight adds and in
    which the answers' embeddings differ.
    """
    embd, first, n_rot = model.token_embd.weight, model.blk[0], model.shape.n_rot
    embd[:, 0] = torch.from_numpy(EVIDENCE * evidence / (evidence.std() or 1)).float()
    embd[:, 1] = 0
    embd[yes, 1], embd[no, 1] = ANSWER, -ANSWER
    first.attn_q.weight[:n_rot] = 0
    first.attn_v.weight[0] = 0
    first.attn_v.weight[0, 0] = 1
    for block in model.blk:
        block.attn_output.weight[1] = 0
        block.ffn_down.weight[1] = 0
    first.attn_output.weight[:, 0] = 0
    first.attn_output.weight[1, 0] = MEAN_GAIN


@torch.no_grad()
def init_from_checkpoint(model: Llama, initial: Checkpoint) -> None:
    """Make a net the same function as a Checkpoint.

    Blocks after those of the checkpoint add zero at first (Chen et al. 2016, "Net2Net", arXiv
    1511.05641).
    """
    for block in model.blk[initial.n_layer :]:
        block.attn_output.weight.zero_()
        block.ffn_down.weight.zero_()
    model.load_state_dict(
        {**model.state_dict(), **{name: torch.from_numpy(x) for name, x in initial.weights.items()}}
    )


def rate(step: int, n_augmented: int, n_step: int) -> float:
    """Factor of the learning rates at a step of n_step, whose first n_augmented are not final."""
    if step < n_augmented:
        return min(
            1, (step + 1) / WARM_STEPS, (n_augmented - step) / (n_augmented * (1 - DECAY_FROM))
        )
    return LR_FINAL * min(
        1,
        (step - n_augmented + 1) / WARM_FINAL,
        (n_step - step) / ((n_step - n_augmented) * (1 - DECAY_FROM)),
    )


@torch.no_grad()
def final_logits(
    trainer: Trainer,
    rows: Sequence[int],
    state: dict[str, torch.Tensor] | None = None,
    max_tokens: int = 1 << 14,
) -> np.ndarray:
    """float64 [n]: logit of yes minus logit of no for whole texts, computed in float32.

    rows: indices of texts. state: a state_dict, by default the average. max_tokens: of a batch.
    """
    model = Llama(trainer.shape)
    model.load_state_dict(state or trainer.average)
    model.eval()
    p, out = trainer.p, np.zeros(len(rows))
    n_template = len(p.before) + len(p.after)
    tokens = [p.whole(i) for i in rows]
    order, start = np.argsort([len(x) for x in tokens], kind="stable"), 0
    while start < len(order):
        end = start + 1
        while (
            end < len(order)
            and padded(len(tokens[order[end]]) + n_template) * (end + 1 - start) <= max_tokens
        ):
            end += 1
        batch, last = trainer.stack([tokens[k] for k in order[start:end]])
        x = model(batch)
        logits = x[torch.arange(len(batch)), last] @ model.token_embd.weight[[p.yes, p.no]].T
        out[order[start:end]] = (logits[:, 0] - logits[:, 1]).numpy()
        start = end
    return out
