"""Checkpoints of llama2.c, read and written."""
