gguf-dump --full <stream.logits
