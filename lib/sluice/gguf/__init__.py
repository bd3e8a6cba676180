"""GGUF model files. `File` is a checked model of one or more files, `Tensor` one tensor of it."""

from .file import File
from .metadata import F32, KIND_NAMES
from .tensor import Tensor, type_name, without_ones

__all__ = ["F32", "KIND_NAMES", "File", "Tensor", "type_name", "without_ones"]
