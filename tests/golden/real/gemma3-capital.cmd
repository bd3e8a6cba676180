generate -m gemma3.gguf $HOW -t 0 -n 48 'The capital of France is'
