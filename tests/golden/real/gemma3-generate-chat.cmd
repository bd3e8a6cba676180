generate -m gemma3.gguf $HOW --chat Hello
