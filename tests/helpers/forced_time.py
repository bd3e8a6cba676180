"""Time of a JSON object with forced text and few rows of the head, next to the slow way, in pairs.

    python3 tests/helpers/forced_time.py MODEL [N]

The slow way reads each token by itself and computes all logits after it. Both generate the same
tokens, N times (20) in turn. Printed: the object, and the median of the pairs' ratios.
"""

import statistics
import sys
import time

from sluice.generate.generation import Generation, begin
from sluice.generate.records import Decoder
from sluice.generate.sampler import Sampler
from sluice.grammar import sources
from sluice.grammar.matcher import Grammar, Matcher
from sluice.model.model import Model
from sluice.tokenizer.detokenizer import Joiner
from sluice.tokenizer.vocabulary import Vocab

PROMPT = """\
Mail: Dear support, since this morning I cannot log in to my account any more. The page says that
the password is wrong, though I changed nothing. Please help soon. Anna Becker, Hamburg
Ticket: """
SCHEMA = b"""{"type": "object", "additionalProperties": false, "properties": {
    "customer": {"type": "string", "maxLength": 16},
    "city": {"type": "string", "maxLength": 12},
    "category": {"enum": ["login", "billing", "delivery", "defect", "other"]},
    "priority": {"enum": ["low", "normal", "high"]},
    "language": {"enum": ["english", "german", "french"]},
    "is_urgent": {"type": "boolean"},
    "n_attachments": {"type": "integer", "minimum": 0, "maximum": 99},
    "needs_answer": {"type": "boolean"}},
    "required": ["customer", "city", "category", "priority", "language", "is_urgent",
                 "n_attachments", "needs_answer"]}"""


class SlowDecoder(Decoder):
    """Reads each token at once, with all logits."""

    def append(self, token):
        super().append(token)
        if self.pending:
            self._read(None)


def generated(model, words, rules, cache, kind):
    """(tokens, n_forced, seconds) of the object, from a cache with the prompt."""
    generation = Generation(
        model, cache, Sampler(words.n_vocab, temperature=0), words.eog, Matcher(rules, words)
    )
    generation.decoder = kind(model, cache, words.eog)
    began = time.perf_counter()
    return list(generation.tokens(200)), generation.n_forced, time.perf_counter() - began


def main(path, n):
    model = Model(path)
    words = Vocab(model.file)
    rules = Grammar(sources.of_schema(SCHEMA, "schema", fixed=True), "schema")
    prompt = words.encode(PROMPT.encode())
    ratios = []
    for i in range(n + 1):
        found = [
            generated(model, words, rules, begin(model, prompt, None, 512), kind)
            for kind in (Decoder, SlowDecoder)
        ]
        assert found[0][0] == found[1][0]
        if i:  # the first pair reads the file
            ratios.append(found[0][2] / found[1][2])
    tokens, n_forced, seconds = found[0]
    text = Joiner(words)
    for token in tokens:
        text.add(token)
    print(text.fetch().decode())
    print(
        f"{len(tokens)} tokens, {n_forced} forced: {1e3 * seconds:.0f} ms, {statistics.median(ratios):.2f}"
        f" of the slow way's time (median of {n} pairs; {min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
