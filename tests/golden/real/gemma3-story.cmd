generate -m gemma3.gguf $HOW -t 0 -n 48 'Once upon a time, in a small village by the sea,'
