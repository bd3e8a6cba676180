gguf-dump --json stream.ids
