gguf-dump --json stream.logits
