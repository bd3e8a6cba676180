"""The processes that share the steps of a training, and what they say and keep."""

import os
import time

import click
import torch
from torch import multiprocessing

from . import prepare
from .loop import N_HALF, Trainer
from .net import Llama, Shape


class Halves:
    """What the processes share: a row each of the gradients, one after the other, and whether time
    is over; and the updates of matrices.
    """

    def __init__(self, shape):
        sizes = [x.numel() for x in Llama(shape).parameters()]
        self.rows = torch.zeros(N_HALF, sum(sizes) + 1).share_memory_()
        self.updates = torch.zeros(sum(sizes)).share_memory_()
        self.barrier = multiprocessing.get_context("spawn").Barrier(N_HALF)

    def add_up(self, half, grads, over):
        """grads, tensors, become the sum of those of all halves. Returns whether half 0 says
        `over`.
        """
        at = 0
        for g in grads:
            self.rows[half, at : at + g.numel()] = g.reshape(-1)
            at += g.numel()
        self.rows[half, at] = float(over)
        self.barrier.wait()
        total, over, at = self.rows.sum(0), bool(self.rows[0, at]), 0
        self.barrier.wait()
        for g in grads:
            g.copy_(total[at : at + g.numel()].view_as(g))
            at += g.numel()
        return over

    def exchange(self, half, updates):
        """updates, tensors: the i-th is made by half i % N_HALF, and becomes that of all. Nobody
        writes the next ones before add_up() was called by all.
        """
        shared = self.updates[: sum(x.numel() for x in updates)].split([x.numel() for x in updates])
        for i, (x, made) in enumerate(zip(updates, shared)):
            if i % N_HALF == half:
                made.copy_(x.reshape(-1))
        self.barrier.wait()
        for i, (x, made) in enumerate(zip(updates, shared)):
            if i % N_HALF != half:
                x.copy_(made.view_as(x))


def half(
    number, halves, work, source, seed, written, steps, layers, seconds, threads, compiled, float32
):
    """What each of the processes that share the steps does. source: arguments of prepare.load
    behind the work folder.
    """
    torch.set_num_threads(threads)
    p = prepare.load(work, *source, seed=seed, n_written=written, say=say, float32=float32)
    trainer = Trainer(
        p,
        Shape(len(p.vocabulary[0]), n_layer=layers),
        steps,
        seed,
        compiled,
        half=number,
        halves=halves,
        float32=float32,
    )
    trainer.resume(f"{work}/train.pt")
    trainer.run(seconds, save=lambda t: save(t, f"{work}/train.pt"), report=report)


def say(text):
    click.echo(text, err=True)


def save(trainer, path):
    torch.save(trainer.state(), f"{path}.new")
    os.replace(f"{path}.new", path)


def report(trainer, epoch, losses, speed):
    say(
        f"{time.strftime('%H:%M:%S')} step {trainer.step} pass {epoch + 1}: answer {losses[0]:.4f}"
        f" running {losses[1]:.4f} {speed:.0f} ids/s"
    )
