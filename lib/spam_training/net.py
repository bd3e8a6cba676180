"""The Llama architecture in torch, for training: equals sluice.model but for rounding.

Touvron et al. 2023 (arXiv 2302.13971): RMSNorm before attention and before the feed-forward
network, rotary positions on neighbouring pairs, grouped-query attention (Ainslie et al. 2023, arXiv
2305.13245), SwiGLU (Shazeer 2020, arXiv 2002.05202), head tied to the embedding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Dimensions, named as in GGUF metadata.

    Every row length is a multiple of 256, so that the model can be converted to K-quants.
    """

    n_vocab: int = 8192
    n_embd: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx: int = 1024
    rope_base: float = 10000.0
    rms_eps: float = 1e-5

    @property
    def n_rot(self) -> int:
        return self.n_embd // self.n_head

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class RMSNorm(nn.Module):
    def __init__(self, n: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of elements i, i + n_rot / 2; export.py makes them neighbours.

    x: [batch, head, token, n_rot]. cos, sin: [token, n_rot / 2].
    """
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        n, n_kv = shape.n_embd, shape.n_head_kv * shape.n_rot
        self.shape = shape
        self.attn_norm, self.ffn_norm = RMSNorm(n, shape.rms_eps), RMSNorm(n, shape.rms_eps)
        self.attn_q, self.attn_k, self.attn_v, self.attn_output = (
            nn.Linear(*size, bias=False) for size in ((n, n), (n, n_kv), (n, n_kv), (n, n))
        )
        self.ffn_gate, self.ffn_up, self.ffn_down = (
            nn.Linear(*size, bias=False)
            for size in ((n, shape.n_ff), (n, shape.n_ff), (shape.n_ff, n))
        )

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """x: [batch, token, n_embd]. mask: [token, token], 0 if the row attends to the column,
        else -inf.
        """
        x = x + self.attention(self.attn_norm(x), cos, sin, mask)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def attention(
        self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Attention as explicit products: compiled for a CPU, forward and backward take 0.59 s a
        step, with scaled_dot_product_attention 0.72 s.
        """
        n_batch, n_token, _ = h.shape
        n_head, n_kv, n_rot = self.shape.n_head, self.shape.n_head_kv, self.shape.n_rot
        q, k, v = (
            w(h).view(n_batch, n_token, -1, n_rot).transpose(1, 2)
            for w in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        # the queries of a group share their keys
        q = q.reshape(n_batch, n_kv, n_head // n_kv * n_token, n_rot)
        score = (q @ k.transpose(-1, -2)).view(n_batch, n_head, n_token, n_token)
        weight = torch.softmax(score.float() * n_rot**-0.5 + mask, -1).to(v.dtype)
        out = weight.view(n_batch, n_kv, n_head // n_kv * n_token, n_token) @ v
        return self.attn_output(
            out.view(n_batch, n_head, n_token, n_rot).transpose(1, 2).reshape(n_batch, n_token, -1)
        )


class Llama(nn.Module):
    """tokens int64 [batch, token] -> normalized output of the last block [batch, token, n_embd].

    head() computes logits of it.
    """

    def __init__(self, shape: Shape, dropout: float = 0.0):
        super().__init__()
        self.shape, self.dropout = shape, dropout
        self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.output_norm = RMSNorm(shape.n_embd, shape.rms_eps)
        angle = torch.outer(
            torch.arange(shape.n_ctx).float(),
            shape.rope_base ** (-torch.arange(0, shape.n_rot, 2).float() / shape.n_rot),
        )
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.register_buffer(
            "mask", torch.full((shape.n_ctx, shape.n_ctx), float("-inf")).triu(1), persistent=False
        )
        nn.init.normal_(self.token_embd.weight, std=0.02)
        for block in self.blk:
            for name, weight in block.named_parameters():
                if weight.ndim == 2:
                    last = name.startswith(("attn_output", "ffn_down"))
                    nn.init.normal_(weight, std=0.06 / (2 * shape.n_layer) ** 0.5 if last else 0.06)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.token_embd(tokens), self.dropout, self.training)
        n = tokens.shape[1]
        for block in self.blk:
            x = block(x, self.cos[:n], self.sin[:n], self.mask[:n, :n])
        return self.output_norm(x)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [..., n_vocab] of x [..., n_embd], rows of forward()'s result."""
        return F.linear(x, self.token_embd.weight)
