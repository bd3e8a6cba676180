generate -m smollm2.gguf $HOW -t 0 -n 1 'The capital of France is'
