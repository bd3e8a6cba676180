#!/bin/sh
# make demo: real mails judged by the model in the box, and what happens inside.  demo.sh [MODEL.gguf]: any model answers.
set -e
bin=$(cd "$(dirname "$0")/../bin" && pwd)
PATH=$bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$bin/../configs/yesno.gbnf" "$bin/../tests/mails/"*.eml "$work"
M=$(readlink -f "${1:-$bin/../lib/sluice/data/spam.gguf}")
cd "$work"
export M

show() { printf '\n$ %s\n' "$1"; sh -c "$1"; }

if [ "$1" ]; then
    echo "Model: $M"
    echo 'Is this mail spam? Answer yes or no.' >prompt.txt
    show 'gguf-dump "$M" | head -n 8'
    show 'tokenize -m "$M" <prompt.txt | prefill -m "$M" -o p.snap'
    show 'mkfifo ring'
    show 'decode -m "$M" p.snap <ring | grammar-filter -m "$M" -g yesno.gbnf |
  sample -t 0 -n 256 | tee ring | tokenize -m "$M" -d; echo'
    exit
fi

echo 'Six mails of 2002 that the model has not learnt from (tests/mails/README.md).'
show 'for mail in *.eml; do printf "%-24s " $mail; classify $mail || true; done'
show 'if classify <spam-cards.eml >/dev/null; then echo spam; else echo "let it pass"; fi'
cat <<'END'

The same, a stage at a time: the mail as the model reads it, its ids joined to the question's, one look at the last
logits through a grammar.
END
show 'mail-text --fold <ham-mutt.eml | tee mail.txt; echo'
show 'printf "<s><|user|>\nis this mail spam ?\n" | tokenize -m "$M" --special --no-bos | prefill -m "$M" -o question.snap'
show 'tokenize -m "$M" --no-bos --no-prefix <mail.txt | prefill -m "$M" -s question.snap -o mail.snap'
show 'printf "</s><|assistant|>\n" | tokenize -m "$M" --special --no-bos | prefill -m "$M" -s mail.snap -o p.snap'
show 'mkfifo ring'
show 'decode -m "$M" p.snap <ring | grammar-filter -m "$M" -g yesno.gbnf |
  sample -t 0 -n 256 | tee ring | tokenize -m "$M" -d; echo'
