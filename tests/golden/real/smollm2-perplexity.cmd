perplexity -m smollm2.gguf $HOW -c 256 prose.txt
