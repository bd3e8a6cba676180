"""Hugging Face folders, llama2.c checkpoints and llama.proto messages to GGUF."""

from __future__ import annotations

import os

from .. import cli
from ..cli import progress
from ..faults import USAGE, Error, unsupported_error
from .llama2c import llama_pb, read, vocabulary
from .reader import Reader
from .tensor import write_gguf

# torch.save: zip, or a bare pickle
PICKLES = (b"PK\3\4", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def folder(path: str, out: str, kind: str | None, verbose: bool) -> None:
    """Convert the Hugging Face folder `path` to the GGUF `out`. kind: type of the weights, or
    None.
    """
    from .hf import folder as hf

    metadata, tensors, notes = hf.read(path)
    for note in notes:
        cli.say(f"{path}: {note}")
    _write(out, metadata, tensors, kind, verbose)


def checkpoint(
    path: str, out: str, kind: str | None, vocab: str | None, version: int | None, verbose: bool
) -> None:
    """Convert a llama2.c checkpoint, or a llama.proto message with weights."""
    r = Reader(path)
    head = r.bytes(0, min(r.size, 512))
    if head.startswith(PICKLES):
        raise unsupported_error(
            path,
            "is a pickle of torch, which can run programs; it is never read. Use safetensors",
        )
    if path.endswith(".json"):
        raise Error(USAGE, f"{path}: is a part of a model; give the folder that it is in")
    if path.endswith(".safetensors"):
        raise Error(
            USAGE,
            f"{path}: has weights only; give the folder with config.json and the tokenizer",
        )
    if (
        head[:1] == b"\n"
        and head[2:4] != b"\0\0"
        and (path.endswith(".pb") or llama_pb.is_message(path))
    ):
        c, tensors, words = _message(path, vocab)
    else:
        if vocab is None:
            raise Error(USAGE, f"{path}: give its vocabulary, too: --vocab tokenizer.bin")
        c, tensors = read.tensors(path, version)
        words = vocabulary.metadata(vocab, c)
    name = os.fsencode(os.path.splitext(os.path.basename(path))[0]).decode("utf-8", "replace")
    arch, *rest = {**c.metadata(), **words}.items()
    _write(out, dict([arch, ("general.name", ("string", name)), *rest]), tensors, kind, verbose)


def _message(path, vocab):
    file = llama_pb.File(path)
    if file.weights is None:
        raise Error(
            USAGE, f"{path}: has no weights; give it as --vocab with the checkpoint that has them"
        )
    if vocab:
        raise Error(USAGE, f"{path}: has its own vocabulary; leave out --vocab")
    c, tensors = file.tensors()
    return c, tensors, vocabulary.metadata(path, c)


def _write(out, metadata, tensors, kind, verbose):
    clock = progress.Clock()
    with progress.shown(os.path.basename(out), sum(t.shape[0] * t.n_rows for t in tensors)) as tell:
        write_gguf(out, metadata, tensors, kind, tell)
    if verbose:
        clock.report(out, len(tensors))
