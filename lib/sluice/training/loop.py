"""The training loop: resumable, in pieces of any length; the result depends on the seed and the number of steps only.

Two processes share every step, each with half of its texts and the same weights: their gradients are added up (halves.py). A good part
of a step are small operations that do not spread over threads: on two cores this took 0.55 s a step where two threads took 0.85.

Loss: the answer at the last position (against a mix of the label and the teacher's probability), the same asked of a throw-away linear
probe at every position of the mail, and the next token at a few positions. Matrices by Muon (Jordan et al. 2024,
kellerjordan.github.io/posts/muon; update scaled as in arXiv 2502.16982), the rest by AdamW. What is shipped is a running average of the weights.
"""
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from ..faults import bad
from . import views
from .net import Llama
from .prepare import REPEAT

TOKENS_PER_STEP = 8192
TEXTS_PER_STEP = 48  # about; losses are sums divided by it, so that a text weighs the same in a step of few long ones and of many short ones
LR_MUON, LR_ADAM, DECAY_MUON, DECAY_ADAM = 4e-3, 3e-3, 0.1, 0.01
WARM_STEPS, DECAY_FROM = 150, 0.5      # then constant, then linear to zero from this part of the steps on
AVERAGE = 0.998
TEACHER, TEACHER_OF_PART = 0.6, 0.85   # share of the teacher's probability in the target; of a view that is much less than the text
MIXED = 0.25                           # views made of several texts, for each text; their target is the teachers' alone
EVIDENCE = 0.05                        # the first element of the embedding: the linear model's weights with this deviation
MAX_MARGIN = 6.0                       # of a teacher
PROBE, NEXT_TOKEN = 0.3, (0.4, 0.1)    # weights of the losses; of the second before and after half of the steps
N_NEXT_TOKEN = 512                     # of a half
N_HALF = 2


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, decay, momentum=0.95):
        super().__init__(params, dict(lr=lr, decay=decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                m = self.state[w].setdefault("momentum", torch.zeros_like(w))
                m.lerp_(w.grad, 1 - group["momentum"])
                update = orthogonal(w.grad.lerp(m, group["momentum"]))
                w.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-group["lr"] * 0.2 * max(w.shape) ** 0.5)


def orthogonal(g, n_step=5):
    """About U V' of g = U S V': five steps of the quintic Newton-Schulz iteration with Jordan's coefficients."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = (x / (x.norm() + 1e-7)).bfloat16()
    for _ in range(n_step):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if g.shape[0] > g.shape[1] else x).float()


class Trainer:
    """half: which of the N_HALF processes this is; halves: their Halves, None where there is only this one, which then learns from its half alone."""

    def __init__(self, p, shape, n_step, seed=1, compiled=True, dropout=0.1, half=0, halves=None):
        torch.manual_seed(seed)
        self.half, self.halves = half, halves
        self.p, self.shape, self.n_step, self.seed, self.step = p, shape, n_step, seed, 0
        self.model = Llama(shape, dropout)
        self.weight = [x for x in self.model.blk.parameters() if x.ndim == 2]
        rest = [x for x in self.model.parameters() if not any(x is w for w in self.weight)]
        self.muon = Muon(self.weight, LR_MUON, DECAY_MUON)
        self.adam = torch.optim.AdamW(rest, LR_ADAM, betas=(0.9, 0.98), weight_decay=DECAY_ADAM)
        if compiled:
            for block in self.model.blk:
                block.compile(dynamic=True)
        train = np.flatnonzero(~p.is_val)
        self.rows = np.repeat(train, [REPEAT.get((p.corpus[i], bool(p.is_spam[i])), 1) for i in train])
        with torch.no_grad():  # where the evidence of single ids begins to be known
            self.model.token_embd.weight[:, 0] = torch.from_numpy(EVIDENCE * p.evidence / p.evidence.std()).float()
        self.average = {name: x.detach().clone() for name, x in self.model.state_dict().items()}

    def batches(self, epoch):
        """[(probability of spam, view)] of an epoch, those of a length together, in random order."""
        rng = np.random.default_rng((self.seed, epoch))
        shown = [self.view(i, rng) for i in rng.permutation(self.rows)]
        shown += [self.mixed(rng.choice(self.rows, rng.integers(2, 4)), rng) for _ in range(int(MIXED * len(self.rows)))]
        shown = [shown[i] for i in rng.permutation(len(shown))]
        out = []
        for start in range(0, len(shown), 4096):
            batch, longest = [], 0
            for item in sorted(shown[start:start + 4096], key=lambda item: len(item[1])):
                longest = padded(len(item[1]) + self.n_frame)
                if batch and longest * (len(batch) + 1) > TOKENS_PER_STEP:
                    out.append(batch)
                    batch = []
                batch.append(item)
            out.append(batch)
        return [out[i] for i in rng.permutation(len(out))]

    def view(self, i, rng):
        """(target, ids) of a view of text i."""
        p = self.p
        ids, is_part = views.view(p.lines[i], p.bodies[i], rng)
        share = TEACHER_OF_PART if is_part else TEACHER
        return share * self.judged(ids, [i]) + (1 - share) * float(p.is_spam[i]), ids

    def mixed(self, texts, rng):
        ids = views.mixed([(self.p.lines[i], self.p.bodies[i]) for i in texts], rng)
        return self.judged(ids, texts), ids

    def judged(self, ids, texts):
        """The probability of spam of ids taken from texts, by teachers that have not seen these."""
        known = {int(self.p.fold[i]) for i in texts}
        margin = np.mean([self.p.teachers[k].margin(ids) for k in known])
        return float(1 / (1 + np.exp(-np.clip(margin, -MAX_MARGIN, MAX_MARGIN))))

    @property
    def n_frame(self):
        return len(self.p.before) + len(self.p.after)

    def stack(self, shown):
        """ids int64 [batch, token], padded behind; position of the last id of each: int64 [batch]."""
        rows = [np.concatenate((self.p.before, ids, self.p.after)) for ids in shown]
        ids = np.zeros((len(rows), padded(max(map(len, rows)))), np.int64)
        for out, row in zip(ids, rows):
            out[:len(row)] = row
        return torch.from_numpy(ids), torch.tensor([len(row) - 1 for row in rows])

    def losses(self, batch, step):
        ids, last = self.stack([shown for _, shown in batch])
        target = torch.tensor([known for known, _ in batch], dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            x = self.model(ids)
            answer = F.log_softmax(self.model.head(x[torch.arange(len(ids)), last]).float(), -1)
            probe = self.model.probe(x).float().squeeze(-1)
            position = torch.arange(ids.shape[1])
            inside = (position >= len(self.p.before)) & (position < last[:, None] - 2)
            pick = torch.nonzero(inside)
            pick = pick[torch.randint(len(pick), (N_NEXT_TOKEN,))]
            following = self.model.head(x[pick[:, 0], pick[:, 1]]).float()
        loss = -(target * answer[:, self.p.yes] + (1 - target) * answer[:, self.p.no]).sum() / TEXTS_PER_STEP
        each = F.binary_cross_entropy_with_logits(probe, target[:, None].expand_as(probe), reduction="none")
        share = ((each * inside).sum(1) / inside.sum(1).clamp(min=1)).sum() / TEXTS_PER_STEP
        token = F.cross_entropy(following, ids[pick[:, 0], pick[:, 1] + 1])
        return loss, share, token, NEXT_TOKEN[step >= self.n_step // 2]

    def run(self, seconds, save=None, report=None, every=200):
        """Up to `seconds` of training; True when the last step is done. save(self): called now and then and at the end, by half 0, as is
        report(self, pass, losses of a text, ids/s). Half 0 says when time is over."""
        end, said, counted, n_text, sums, over = time.monotonic() + seconds, time.monotonic(), 0, 0, np.zeros(3), False
        epoch, batches, first = -1, [], 0
        while self.step < self.n_step and not over:
            while self.step >= first + len(batches):
                epoch, first = epoch + 1, first + len(batches)
                batches = self.batches(epoch)
            batch = batches[self.step - first]
            torch.manual_seed((self.seed << 20 | self.step) * N_HALF + self.half)
            for group, lr in ((self.muon.param_groups[0], LR_MUON), (self.adam.param_groups[0], LR_ADAM)):
                group["lr"] = lr * rate(self.step, self.n_step)
            mine = batch[self.half::N_HALF] or batch[:1]  # a step of one text: both learn from it
            loss, share, token, weight = self.losses(mine, self.step)
            (loss + PROBE * share + weight / N_HALF * token).backward()
            over = time.monotonic() >= end
            if self.halves:
                over = self.halves.add_up(self.half, [x.grad for x in self.model.parameters()], over)
            self.muon.step()
            self.adam.step()
            self.model.zero_grad(set_to_none=True)
            keep = min(AVERAGE, self.step / (self.step + 10))
            for name, x in self.model.state_dict().items():
                self.average[name].lerp_(x, 1 - keep)
            self.step += 1
            counted += sum(len(shown) + self.n_frame for _, shown in batch)
            n_text += len(mine)
            sums += [loss.item() * TEXTS_PER_STEP, share.item() * TEXTS_PER_STEP, token.item() * len(mine)]
            if self.half == 0 and (self.step % every == 0 or self.step == self.n_step):
                now = time.monotonic()
                if report:
                    report(self, epoch, sums / n_text, counted / (now - said))
                said, counted, n_text, sums = now, 0, 0, np.zeros(3)
                if save:
                    save(self)
        if save and self.half == 0:
            save(self)
        return self.step >= self.n_step

    def state(self):
        return {"step": self.step, "model": self.model.state_dict(), "average": self.average, "muon": self.muon.state_dict(),
                "adam": self.adam.state_dict(), "n_step": self.n_step, "seed": self.seed, "shape": self.shape.as_dict()}

    def resume(self, path):
        """Go on from a file of save(); nothing where there is none. Fault: it is of another training."""
        if Path(path).exists():
            kept = torch.load(path, weights_only=True)
            if (kept["n_step"], kept["seed"], kept["shape"]) != (self.n_step, self.seed, self.shape.as_dict()):
                raise bad(path, "of a training with another shape, seed or number of steps: remove it, or use another work folder")
            self.step, self.average = kept["step"], kept["average"]
            for part, name in ((self.model, "model"), (self.muon, "muon"), (self.adam, "adam")):
                part.load_state_dict(kept[name])


def rate(step, n_step):
    """The factor of the learning rates at a step of n_step."""
    return min(1, (step + 1) / WARM_STEPS, (n_step - step) / (n_step * (1 - DECAY_FROM)))


def padded(n):
    return -(-n // 32) * 32


@torch.no_grad()
def margins(trainer, rows, state=None, tokens=1 << 14):
    """float64 [n]: logit of yes less logit of no for whole texts, in float32."""
    model = Llama(trainer.shape)
    model.load_state_dict(state or trainer.average)
    model.eval()
    p, out = trainer.p, np.zeros(len(rows))
    ids = [p.whole(i) for i in rows]
    order, start = np.argsort([len(x) for x in ids], kind="stable"), 0
    while start < len(order):
        end = start + 1
        while end < len(order) and padded(len(ids[order[end]]) + trainer.n_frame) * (end + 1 - start) <= tokens:
            end += 1
        batch, last = trainer.stack([ids[k] for k in order[start:end]])
        x = model(batch)
        logits = x[torch.arange(len(batch)), last] @ model.token_embd.weight[[p.yes, p.no]].T
        out[order[start:end]] = (logits[:, 0] - logits[:, 1]).numpy()
        start = end
    return out
