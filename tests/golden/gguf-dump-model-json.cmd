gguf-dump --json model.gguf
