"""Text to tokens and back: vocabularies of GGUF files, BPE, SentencePiece."""
