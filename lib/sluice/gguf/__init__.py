"""GGUF files: `File` is a checked model of one file or several, `Tensor` one of its tensors."""

from .file import File, Tensor, type_name, without_ones

__all__ = ["File", "Tensor", "type_name", "without_ones"]
