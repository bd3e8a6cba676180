"""Pooling of an embedding model: modules.json of sentence-transformers, as a key of a GGUF.

modules.json is a list of {"idx", "name", "path", "type"}: the model, a Pooling, and maybe
Normalize. The folder at a module's path has its config.json. Layers after the pooling have no place
in a GGUF and are refused by name.
"""

from __future__ import annotations

import os
from typing import Any

from ...faults import data_error, printable, unsupported_error
from ..reader import parse_json, read_json, read_small
from ..tensor import Metadata

MAX_BYTES = 1 << 20
# values of pooling_type: mode -> its name, and the flag of config.json before version 5.4
TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def metadata(folder: str, arch: str, n_embd: int) -> Metadata:
    """Return the key pooling_type: dict key -> (kind, value), empty without modules.json."""
    path = os.path.join(folder, "modules.json")
    if not os.path.lexists(path):
        return {}
    modules = parse_json(path, read_small(path, MAX_BYTES), list)
    kinds = [_kind(path, i, module) for i, module in enumerate(modules)]
    if kinds[:1] != [("Transformer", "")]:
        raise unsupported_error(path, "the first module is not a Transformer in this folder")
    found: Metadata = {}
    for kind, at in kinds[1:]:
        if kind == "Pooling" and not found:
            found = {f"{arch}.pooling_type": ("u32", _type(folder, path, at, n_embd))}
        elif kind != "Normalize":
            raise unsupported_error(
                path, f"module {printable(at, 40)}: {printable(kind, 40)}; a GGUF has one Pooling"
            )
    return found


def _kind(path, i, module):
    """Return (last part of the type, path) of a module."""
    kind, at = (module.get(key) if isinstance(module, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(at, str):
        raise data_error(path, f"module {i}: lacks type or path")
    return kind.rsplit(".", 1)[-1], at


def _type(folder, path, at, n_embd):
    if at in ("", ".", "..") or at != os.path.basename(at) or "\0" in at:
        raise data_error(path, f"module {printable(at, 40)}: not the name of a folder in this one")
    path = os.path.join(folder, at, "config.json")
    values = read_json(path, MAX_BYTES)
    modes = _modes(path, values)
    width = values.get("embedding_dimension", values.get("word_embedding_dimension", n_embd))
    if type(width) is not int or width != n_embd:
        raise data_error(
            path, f"embedding_dimension: {printable(str(width), 40)}, the model has {n_embd}"
        )
    if len(modes) != 1 or modes[0] not in TYPES:
        raise unsupported_error(
            path,
            f"pooling_mode {printable(', '.join(modes), 80) or 'of no kind'}: not one of"
            f" {', '.join(TYPES)}",
        )
    if values.get("include_prompt", True) is not True and modes[0] == "mean":
        raise unsupported_error(path, "include_prompt = false: a mean without the prompt")
    return TYPES[modes[0]]


def _modes(path, values: dict[str, Any]) -> list[str]:
    modes = values.get("pooling_mode")
    if modes is None:
        return [mode for flag, mode in FLAGS.items() if _flag(path, values, flag)]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise data_error(path, f"pooling_mode: is {printable(str(modes), 40)}")
    return modes


def _flag(path, values, name):
    value = values.get(name, False)
    if not isinstance(value, bool):
        raise data_error(path, f"{name}: is {printable(str(value), 40)}")
    return value


def prompts(folder: str) -> list[str]:
    """Return the names of prompts in config_sentence_transformers.json that are not empty."""
    path = os.path.join(folder, "config_sentence_transformers.json")
    if not os.path.lexists(path):
        return []
    found = read_json(path, MAX_BYTES).get("prompts") or {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise data_error(path, "prompts: is not an object of texts")
    return [name for name, text in found.items() if text]
