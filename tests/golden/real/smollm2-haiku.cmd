generate -m smollm2.gguf $HOW --chat -t 0 -n 40 'Write a haiku about the sea.'
