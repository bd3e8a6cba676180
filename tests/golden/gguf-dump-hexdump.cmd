gguf-dump --hexdump blk.4.q4_0.weight -n 40 model.gguf
