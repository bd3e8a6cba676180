perplexity -m gemma3.gguf $HOW -c 256 prose.txt
