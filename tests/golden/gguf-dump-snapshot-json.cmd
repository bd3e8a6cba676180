gguf-dump --json state.snap
