"""The training loop: resumable, in pieces of any length; the result depends on the seed and the
number of steps only.

Two processes share every step, each with half of its texts and the same weights: their gradients
are added up (halves.py). A good part of a step are small operations that do not spread over
threads: on two cores this takes two thirds of the time that two threads take.

Loss: the answer at the last position (against a mix of the label and the teacher's probability),
and at every position of the mail, where the net shall answer what the teacher says of the mail up
to there: so it learns what each word adds, and not what a text is called. Most of what it is shown
are stretches of texts put together (epochs.py): of those nothing can be learnt by heart. The last
steps show whole texts alone, as they are asked for later, and believe their labels more.

Matrices by Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon; update scaled as in arXiv
2502.16982), the rest by AdamW. What is shipped is a running average of the weights.
"""

import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from sluice.faults import data_error

from . import epochs, net, views
from .epochs import Epochs, padded
from .net import Llama
from .prepare import digest

# about; losses are sums divided by it, so that a text weighs the same in a step of few long ones
# and of many short ones
TEXTS_PER_STEP = 48
LR_MUON, LR_ADAM, DECAY_MUON, DECAY_ADAM = 2e-3, 1.5e-3, 0.1, 0.01
# then constant, then linear to zero from this part of the steps on
WARM_STEPS, DECAY_FROM = 150, 0.5
AVERAGE = 0.998
# factor of the rates where a model is gone on from, to keep more of it; no other value was tried
BEGUN = 0.6
# the steps at the end that show texts as they are, and their rates
LAST, WARM_LAST, LR_LAST, AVERAGE_LAST = 0.04, 50, 0.25, 0.99
EVIDENCE, MEAN_GAIN, ANSWER = 0.05, 6.0, 0.5  # of begin_with()
RUNNING = 1.0  # weight of the loss at all positions
# in it, of the distance of logits (Huber 1964), which counts where all is clear as well
HUBER = 0.1
N_HALF = 2


class Muon(torch.optim.Optimizer):
    """kind: the type of orthogonal()'s products."""

    def __init__(self, params, lr, decay, kind, momentum=0.95):
        super().__init__(params, dict(lr=lr, decay=decay, momentum=momentum))
        self.kind = kind

    @torch.no_grad()
    def step(self, half=0, halves=None):
        """half, halves: as Trainer has them; each half makes the updates of its matrices, for
        both.
        """
        (group,) = self.param_groups
        updates = []
        for i, w in enumerate(group["params"]):
            m = self.state[w].setdefault("momentum", torch.zeros_like(w))
            m.lerp_(w.grad, 1 - group["momentum"])
            is_mine = not halves or i % N_HALF == half
            updates.append(
                orthogonal(w.grad.lerp(m, group["momentum"]), self.kind)
                if is_mine
                else torch.empty_like(w)
            )
        if halves:
            halves.exchange(half, updates)
        for w, update in zip(group["params"], updates):
            w.mul_(1 - group["lr"] * group["decay"]).add_(
                update, alpha=-group["lr"] * 0.2 * max(w.shape) ** 0.5
            )


def orthogonal(g, kind=torch.bfloat16, n_step=5):
    """About U V' of g = U S V': five steps of the quintic Newton-Schulz iteration with Jordan's
    coefficients, in products of `kind`.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = (x / (x.norm() + 1e-7)).to(kind)
    for _ in range(n_step):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if g.shape[0] > g.shape[1] else x).float()


class Trainer:
    """half: which of the N_HALF processes this is; halves: their Halves, None where there is only
    this one, which then learns from its half alone; float32: products are of f32, where else they
    are of bf16.
    """

    def __init__(
        self,
        p,
        shape,
        n_step,
        seed=1,
        compiled=True,
        dropout=0.1,
        half=0,
        halves=None,
        float32=False,
    ):
        torch.manual_seed(seed)
        self.half, self.halves, self.float32 = half, halves, float32
        self.p, self.shape, self.n_step, self.n_first, self.seed, self.step = (
            p,
            shape,
            n_step,
            n_step - int(LAST * n_step),
            seed,
            0,
        )
        self.key = (
            p.key,
            digest(
                [
                    Path(module)
                    for module in (__file__, epochs.__file__, net.__file__, views.__file__)
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
        begin_with(self.model, p.evidence, p.yes, p.no)
        if p.begun:
            go_on(self.model, p.begun)
        self.average = {name: x.detach().clone() for name, x in self.model.state_dict().items()}

    def stack(self, texts):
        """texts: ids, marked or not. Bare ids int64 [batch, token], padded behind; position of the
        last id of each: int64 [batch].
        """
        rows = [np.concatenate((self.p.before, views.bare(ids), self.p.after)) for ids in texts]
        ids = np.zeros((len(rows), padded(max(map(len, rows)))), np.int64)
        for out, row in zip(ids, rows):
            out[: len(row)] = row
        return torch.from_numpy(ids), torch.tensor([len(row) - 1 for row in rows])

    def losses(self, batch, rng=None):
        """(loss of the answers, loss at the positions of the mails) of a list of views, in nats:
        sums over them by TEXTS_PER_STEP; of the positions of one the mean. rng: numpy Generator,
        where some of their words are to become others that are near.
        """
        shown = [
            self.p.near.reworded(ids, rng) if rng and self.p.near else (ids, None)
            for *_, ids in batch
        ]
        ids, last = self.stack([ids for ids, _ in shown])
        target, logits, weight = (
            torch.zeros(len(batch)),
            torch.zeros(ids.shape),
            torch.zeros(ids.shape),
        )
        for i, (view, (_, places)) in enumerate(zip(batch, shown)):
            target[i], known = self.epochs.targets(*view)
            known = known if places is None else known[places]
            inside = slice(len(self.p.before), len(self.p.before) + len(known))
            logits[i, inside], weight[i, inside] = (
                torch.from_numpy(known).float(),
                1 / max(1, len(known)),
            )
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.float32):
            x = self.model(ids)
            answer = F.log_softmax(self.model.head(x[torch.arange(len(ids)), last]).float(), -1)
        loss = -(target * answer[:, self.p.yes] + (1 - target) * answer[:, self.p.no]).sum()
        embd = self.model.token_embd.weight
        said = x @ (embd[self.p.yes] - embd[self.p.no])
        each = F.binary_cross_entropy_with_logits(said, torch.sigmoid(logits), reduction="none")
        each = each + HUBER * F.huber_loss(said, logits, reduction="none")
        return loss / TEXTS_PER_STEP, (each * weight).sum() / TEXTS_PER_STEP

    def shown(self):
        """(number of an epoch, batch) for each step from self.step on."""
        for first, end in ((0, self.n_first), (self.n_first, self.n_step)):
            epoch = -1
            while max(first, self.step) < end:
                epoch, batches = epoch + 1, None  # gone before others are made: an epoch is large
                batches = self.epochs.batches(epoch, end == self.n_step)
                for at in range(self.step - first, min(len(batches), end - first)):
                    yield epoch, batches[at]
                first += len(batches)

    def run(self, seconds, save=None, report=None, every=200):
        """Up to `seconds` of training; True when the last step is done. save(self): called now and
        then and at the end, by half 0, as is report(self, pass, losses of a text, ids/s). Half 0
        says when time is over.
        """
        end, reported, counted, n_text, sums, over = (
            time.monotonic() + seconds,
            time.monotonic(),
            0,
            0,
            np.zeros(2),
            False,
        )
        n_frame, self.epochs = len(self.p.before) + len(self.p.after), Epochs(self.p, self.seed)
        for epoch, batch in self.shown():
            torch.manual_seed((self.seed << 20 | self.step) * N_HALF + self.half)
            for group, lr in (
                (self.muon.param_groups[0], LR_MUON),
                (self.adam.param_groups[0], LR_ADAM),
            ):
                group["lr"] = (
                    lr * rate(self.step, self.n_first, self.n_step) * (BEGUN if self.p.begun else 1)
                )
            mine = batch[self.half :: N_HALF] or batch[:1]  # a step of one text: both learn from it
            rng = (
                np.random.default_rng((self.seed, self.step, self.half))
                if self.step < self.n_first
                else None
            )
            answer, running = self.losses(mine, rng)
            (answer + RUNNING * running).backward()
            over = time.monotonic() >= end
            if self.halves:
                over = self.halves.add_up(
                    self.half, [x.grad for x in self.model.parameters()], over
                )
            self.muon.step(self.half, self.halves)
            self.adam.step()
            self.model.zero_grad(set_to_none=True)
            keep = (
                min(AVERAGE, self.step / (self.step + 10))
                if self.step < self.n_first
                else AVERAGE_LAST
            )
            for name, x in self.model.state_dict().items():
                self.average[name].lerp_(x, 1 - keep)
            self.step += 1
            counted += sum(len(ids) + n_frame for *_, ids in batch)
            n_text += len(mine)
            sums += [answer.item() * TEXTS_PER_STEP, running.item() * TEXTS_PER_STEP]
            if self.half == 0 and (self.step % every == 0 or self.step == self.n_step):
                now = time.monotonic()
                if report:
                    report(self, epoch, sums / n_text, counted / (now - reported))
                reported, counted, n_text, sums = now, 0, 0, np.zeros(2)
                if save:
                    save(self)
            if over:
                break
        if save and self.half == 0:
            save(self)
        return self.step >= self.n_step

    def state(self):
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

    def resume(self, path):
        """Go on from a file of save(); nothing where there is none. Error: it is of another
        training.
        """
        if Path(path).exists():
            kept = _read(path)
            mine = self.n_step, self.seed, self.shape.as_dict(), self.float32, self.key
            if (
                tuple(kept.get(name) for name in ("n_step", "seed", "shape", "float32", "key"))
                != mine
            ):
                raise data_error(
                    path,
                    "of a training with other texts or another recipe, beginning, shape, type, seed"
                    " or number of steps: remove it, or use another work folder",
                )
            self.step, self.average = kept["step"], kept["average"]
            for part, name in ((self.model, "model"), (self.muon, "muon"), (self.adam, "adam")):
                part.load_state_dict(kept[name])


def _read(path):
    """What save() kept, a dict. Error: it is none."""
    with open(path, "rb") as f:
        try:
            kept = torch.load(f, weights_only=True)
        except MemoryError:
            raise
        except (
            Exception
        ) as e:  # of bytes that are no such file, or a part of one, any kind may come
            kept = e
    if not isinstance(kept, dict):
        raise data_error(
            path, f"damaged or cut ({type(kept).__name__}): remove it, and the training begins anew"
        )
    return kept


@torch.no_grad()
def begin_with(model, evidence, yes, no):
    """Let a new net answer by the mean evidence of the ids it read, float [n_vocab], so that it
    learns what that lacks. The first element of the embedding is the evidence; a head of the first
    block looks at all positions alike and hands its mean on as the second element, to which nothing
    else adds, and by which the answers differ.
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
def go_on(model, begun):
    """Let a net be the same function as a model that was begun: blocks behind those it has add
    nothing yet (Chen et al. 2016, "Net2Net", arXiv 1511.05641), and learn what to add.
    """
    for block in model.blk[begun.n_layer :]:
        block.attn_output.weight.zero_()
        block.ffn_down.weight.zero_()
    model.load_state_dict(
        {**model.state_dict(), **{name: torch.from_numpy(x) for name, x in begun.weights.items()}}
    )


def rate(step, n_first, n_step):
    """The factor of the learning rates at a step of n_step, n_first of which come before those that
    show texts as they are.
    """
    if step < n_first:
        return min(1, (step + 1) / WARM_STEPS, (n_first - step) / (n_first * (1 - DECAY_FROM)))
    return LR_LAST * min(
        1,
        (step - n_first + 1) / WARM_LAST,
        (n_step - step) / ((n_step - n_first) * (1 - DECAY_FROM)),
    )


@torch.no_grad()
def margins(trainer, rows, state=None, tokens=1 << 14):
    """float64 [n]: logit of yes less logit of no for whole texts, in float32."""
    model = Llama(trainer.shape)
    model.load_state_dict(state or trainer.average)
    model.eval()
    p, out = trainer.p, np.zeros(len(rows))
    n_frame = len(p.before) + len(p.after)
    ids = [p.whole(i) for i in rows]
    order, start = np.argsort([len(x) for x in ids], kind="stable"), 0
    while start < len(order):
        end = start + 1
        while (
            end < len(order)
            and padded(len(ids[order[end]]) + n_frame) * (end + 1 - start) <= tokens
        ):
            end += 1
        batch, last = trainer.stack([ids[k] for k in order[start:end]])
        x = model(batch)
        logits = x[torch.arange(len(batch)), last] @ model.token_embd.weight[[p.yes, p.no]].T
        out[order[start:end]] = (logits[:, 0] - logits[:, 1]).numpy()
        start = end
    return out
