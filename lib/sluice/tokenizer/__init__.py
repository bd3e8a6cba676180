"""Tokenizers: vocabularies of GGUF files (BPE, SentencePiece), and detokenization."""
