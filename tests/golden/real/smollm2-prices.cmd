echo 'Prices rose by four percent in May.' | classify -m smollm2.gguf $HOW --no-cache -q ./water.yaml
