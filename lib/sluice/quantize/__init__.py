"""Quantization: the type of each tensor, and the copy of a GGUF in these types."""
