head -n 20 stream.ids | gguf-dump
