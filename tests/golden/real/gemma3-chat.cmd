printf 'Hello\n' | chat -m gemma3.gguf $HOW
