gguf-dump stream.logits
