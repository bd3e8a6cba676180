gguf-dump model.gguf general.architecture
