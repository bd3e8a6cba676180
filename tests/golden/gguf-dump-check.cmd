gguf-dump --check spoilt.gguf
