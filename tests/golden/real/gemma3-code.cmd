printf 'def fibonacci(n):\n' | generate -m gemma3.gguf $HOW -t 0 -n 48
