printf 'def fibonacci(n):\n' | generate -m smollm2.gguf $HOW -t 0 -n 48
