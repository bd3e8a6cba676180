gguf-dump --json model.gguf k.[f32]
