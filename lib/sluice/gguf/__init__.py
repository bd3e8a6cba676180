"""GGUF files: `File` is a checked model of one file or several, `Tensor` one of its tensors."""

from .file import File
from .metadata import F32, KIND_NAMES
from .tensor import Tensor, type_name, without_ones

__all__ = ["F32", "KIND_NAMES", "File", "Tensor", "type_name", "without_ones"]
