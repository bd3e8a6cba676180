"""A model in a folder as Hugging Face keeps it: metadata and tensors of the GGUF that it
becomes.
"""

import os

from ...faults import bad
from ..reader import read_json
from . import names, safetensors, vocabulary
from .config import Config

MAX_CONFIG_BYTES = 4 << 20


def read(path):
    """(metadata, tensors). Fault 65, 66, 69 naming the file and what is wrong with it."""
    config_path = os.path.join(path, "config.json")
    if not os.path.lexists(config_path):
        raise bad(path, "no config.json: not a model as Hugging Face keeps it")
    c = Config(config_path, read_json(config_path, MAX_CONFIG_BYTES))
    metadata = c.metadata(
        os.fsencode(os.path.basename(os.path.abspath(path))).decode("utf-8", "replace")
    )
    tensors = names.tensors(path, c, safetensors.read(path))
    metadata.update(vocabulary.metadata(path, c))
    return metadata, tensors
