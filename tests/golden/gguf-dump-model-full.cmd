gguf-dump --full model.gguf
