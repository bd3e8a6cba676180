"""llama2.c checkpoints, read and written."""
