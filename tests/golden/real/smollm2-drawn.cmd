generate -m smollm2.gguf $HOW -S 7 -n 24 --repeat-penalty 1.1 'The capital of France is'
