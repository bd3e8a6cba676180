gguf-dump empty.gguf
