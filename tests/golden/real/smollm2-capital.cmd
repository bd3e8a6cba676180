generate -m smollm2.gguf $HOW -t 0 -n 48 'The capital of France is'
