#!/bin/sh
# make demo: a model answers through a shell pipeline.  demo.sh [MODEL.gguf]
set -e
bin=$(cd "$(dirname "$0")/../bin" && pwd)
PATH=$bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$bin/../configs/yesno.gbnf" "$work"
if [ "$1" ]; then
    M=$(readlink -f "$1")
    echo "Model: $M"
else
    M=m.gguf
    "$bin/../.venv/bin/python3" "$bin/../tests/tiny_model.py" --seed 1 "$work/$M"
    cat <<'END'
Model: pseudo-random weights of a fixed seed, written just now (tests/tiny_model.py), because
the project has no trained model of its own yet. Its words mean nothing; that they are the
same words on every machine is the point. MODEL=your.gguf make demo  uses a real one.
END
fi
cd "$work"
export M

show() { printf '\n$ %s\n' "$1"; sh -c "$1"; }

show 'gguf-dump "$M" | head -n 8'
echo 'Is this mail spam? Answer yes or no.' >prompt.txt
show 'tokenize -m "$M" <prompt.txt | prefill -m "$M" -o p.snap'
show 'mkfifo ring'
show 'decode -m "$M" p.snap <ring | grammar-filter -m "$M" -g yesno.gbnf |
  sample -t 0 -n 256 | tee ring | tokenize -m "$M" -d; echo'
show 'decode -m "$M" p.snap <ring | sample -S 7 -n 24 | tee ring | tokenize -m "$M" -d; echo'
