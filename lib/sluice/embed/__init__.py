"""Embeddings: a vector for each text. The cosine of two says how near the texts are in meaning."""
