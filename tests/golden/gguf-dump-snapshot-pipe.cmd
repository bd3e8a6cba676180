cat state.snap | gguf-dump
