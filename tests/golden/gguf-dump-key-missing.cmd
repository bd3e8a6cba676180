gguf-dump model.gguf no.such.key
