"""Hugging Face model folder reader: metadata and tensors of the GGUF."""

from __future__ import annotations

import os

from ...faults import data_error, printable
from ..reader import read_json
from ..tensor import Metadata, Tensor
from . import names, pooling, safetensors, vocabulary
from .config import Config

MAX_CONFIG_BYTES = 4 << 20


def read(path: str) -> tuple[Metadata, list[Tensor], list[str]]:
    """Return (metadata, tensors, notes: what the GGUF lacks, in words). Error 65, 66 or 69 names
    the file.
    """
    config_path = os.path.join(path, "config.json")
    if not os.path.lexists(config_path):
        raise data_error(path, "has no config.json: not a Hugging Face model folder")
    c = Config(config_path, read_json(config_path, MAX_CONFIG_BYTES))
    metadata = c.metadata(
        os.fsencode(os.path.basename(os.path.abspath(path))).decode("utf-8", "replace")
    )
    metadata.update(pooling.metadata(path, c.arch, c.n_embd))
    tensors, notes = names.tensors(path, c, safetensors.read(path))
    metadata.update(vocabulary.metadata(path, c))
    if prompts := pooling.prompts(path):
        names_of_prompts = ", ".join(printable(name, 40) for name in prompts[:8])
        notes.append(f"prompts not in the GGUF, see embed -q: {names_of_prompts}")
    return metadata, tensors, notes
