"""Perplexity of a text, and kept logits for comparing models."""
