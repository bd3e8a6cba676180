printf 'Name three colours.\nWhich of them is the colour of the sky?\n' | chat -m smollm2.gguf $HOW -t 0 -n 24 --system 'Be brief.' -o talk.jsonl && cat talk.jsonl
