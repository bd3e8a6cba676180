"""Data-parallel training: the ranks, their shared memory, progress messages and saved state."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click
import numpy as np
import torch
from torch import multiprocessing

from . import prepare
from .loop import N_RANK, Trainer
from .net import Llama, Shape


class Ranks:
    """Memory that the ranks share.

    rows: float32 [N_RANK, n + 1], the gradients of each rank and its flag "time is over". updates:
    float32 [n], updates of matrices.
    """

    def __init__(self, shape: Shape):
        sizes = [x.numel() for x in Llama(shape).parameters()]
        self.rows = torch.zeros(N_RANK, sum(sizes) + 1).share_memory_()
        self.updates = torch.zeros(sum(sizes)).share_memory_()
        self.barrier = multiprocessing.get_context("spawn").Barrier(N_RANK)

    def all_reduce(self, rank: int, grads: Sequence[torch.Tensor], over: bool) -> bool:
        """Replace grads, [tensor], by the sums over all ranks; return rank 0's `over`."""
        at = 0
        for g in grads:
            self.rows[rank, at : at + g.numel()] = g.reshape(-1)
            at += g.numel()
        self.rows[rank, at] = float(over)
        self.barrier.wait()
        total, over, at = self.rows.sum(0), bool(self.rows[0, at]), 0
        self.barrier.wait()
        for g in grads:
            g.copy_(total[at : at + g.numel()].view_as(g))
            at += g.numel()
        return over

    def exchange(self, rank: int, updates: Sequence[torch.Tensor]) -> None:
        """Copy updates[i], a tensor, from rank i % N_RANK to all ranks.

        No rank writes the next updates before all ranks have called all_reduce().
        """
        shared = self.updates[: sum(x.numel() for x in updates)].split([x.numel() for x in updates])
        for i, (x, made) in enumerate(zip(updates, shared)):
            if i % N_RANK == rank:
                made.copy_(x.reshape(-1))
        self.barrier.wait()
        for i, (x, made) in enumerate(zip(updates, shared)):
            if i % N_RANK != rank:
                x.copy_(made.view_as(x))


def run(
    rank: int,
    ranks: Ranks,
    work: str,
    source: tuple,
    seed: int,
    templated: int,
    steps: int,
    layers: int,
    seconds: float,
    threads: int,
    compiled: bool,
    float32: bool,
) -> None:
    """Train as one rank; torch.multiprocessing.spawn calls this.

    source: arguments of prepare.load after the work folder. compiled: use torch.compile.
    """
    torch.set_num_threads(threads)
    p = prepare.load(work, *source, seed=seed, n_templated=templated, say=say, float32=float32)
    trainer = Trainer(
        p,
        Shape(len(p.vocabulary[0]), n_layer=layers),
        steps,
        seed,
        compiled,
        rank=rank,
        ranks=ranks,
        float32=float32,
    )
    trainer.resume(f"{work}/train.pt")
    trainer.run(seconds, save=lambda t: save(t, f"{work}/train.pt"), report=report)


def say(text: str) -> None:
    click.echo(text, err=True)


def save(trainer: Trainer, path: str) -> None:
    torch.save(trainer.state(), f"{path}.new")
    os.replace(f"{path}.new", path)


def report(trainer: Trainer, epoch: int, losses: np.ndarray, speed: float) -> None:
    say(
        f"{time.strftime('%H:%M:%S')} step {trainer.step} pass {epoch + 1}: answer {losses[0]:.4f}"
        f" tokens {losses[1]:.4f} {speed:.0f} tokens/s"
    )
