gguf-dump model.gguf tokenizer.chat_template
