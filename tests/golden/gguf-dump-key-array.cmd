gguf-dump model.gguf tokenizer.ggml.tokens | tail -n 5
