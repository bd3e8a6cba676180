gguf-dump model.gguf
