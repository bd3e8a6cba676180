classify -m smollm2.gguf $HOW --no-cache -q urgent --long prose.txt >answer; status=$?; cut -d' ' -f-3 answer; exit $status
