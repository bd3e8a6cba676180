gguf-dump state.snap
