cat stream.ids | gguf-dump
