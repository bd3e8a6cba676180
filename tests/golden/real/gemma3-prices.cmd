echo 'Prices rose by four percent in May.' | classify -m gemma3.gguf $HOW --no-cache -q ./water.yaml
