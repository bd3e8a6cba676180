#!/bin/sh
# demo.sh [MODEL.gguf]: what `make demo` runs. The bundled model classifies six messages, then does
# the same step by step, and a published model generates a text. MODEL.gguf runs in their place.
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$root/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$root/configs/yesno.gbnf" "$root/tests/mails/"*.eml "$work"
M=$(readlink -f "${1:-$root/lib/sluice/data/spam.gguf}")
models=${SLUICE_REAL_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/real-models}
published=$models/SmolLM2-135M-Instruct.Q4_1.gguf
cd "$work"
export M

show() { printf '\n$ %s\n' "$1"; sh -c "$1"; }

# generation MODEL: generate a text with MODEL.
generation() {
    M=$1
    show 'generate -m "$M" -t 0 -n 24 "The capital of France is"; echo'
}

if [ "$1" ]; then
    echo "Model: $M"
    echo 'This takes some seconds per GB of the model, which is read once to compute its ID.'
    echo 'Is this mail spam? Answer yes or no.' >prompt.txt
    show 'gguf-dump "$M" | head -n 8'
    show 'tokenize -m "$M" <prompt.txt | prefill -m "$M" -o p.snap'
    show 'mkfifo loop'
    show 'decode -m "$M" p.snap <loop | grammar-filter -m "$M" -g yesno.gbnf |
  sample -t 0 -n 256 | tee loop | tokenize -m "$M" -d; echo'
    generation "$M"
    exit
fi

echo 'This takes about 5 seconds on two cores.'
echo
echo 'Six messages of 2002 that are not in the training data (tests/mails/README.md).'
show 'for mail in *.eml; do printf "%-24s " $mail; classify $mail || true; done'
show 'if classify <spam-cards.eml >/dev/null; then echo spam; else echo "let it pass"; fi'
cat <<'END'

The same, one process per step: the message as the model reads it, its tokens
after those of the question, and the label from the last logits through a
grammar.
END
show 'mail-text --normalize <ham-mutt.eml | tee mail.txt; echo'
show 'printf "<s><|user|>\nis this mail spam ?\n" | tokenize -m "$M" --special --no-bos |
  prefill -m "$M" -o question.snap'
show 'tokenize -m "$M" --no-bos --no-prefix <mail.txt |
  prefill -m "$M" -s question.snap -o mail.snap'
show 'printf "</s><|assistant|>\n" | tokenize -m "$M" --special --no-bos |
  prefill -m "$M" -s mail.snap -o p.snap'
show 'mkfifo loop'
show 'decode -m "$M" p.snap <loop | grammar-filter -m "$M" -g yesno.gbnf |
  sample -t 0 -n 256 | tee loop | tokenize -m "$M" -d; echo'

printf '\nText from a published model:\n'
if [ -r "$published" ]; then
    generation "$published"
else
    cat <<END
$published is missing: \`make real-models\` fetches it (320 MB with a second model), and
\`make demo MODEL=FILE.gguf\` shows any other model.
END
fi
