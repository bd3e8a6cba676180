"""Perplexity of a text, and logits kept for comparison."""
