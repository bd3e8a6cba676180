"""Embeddings: a vector for each text, of which the cosine says how near two texts are in meaning."""
