gguf-dump --values blk.3.q8_0.weight -n 20 model.gguf
