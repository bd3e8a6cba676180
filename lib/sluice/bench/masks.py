"""Token masks of JSON Schemas: time and answers, next to llguidance and XGrammar.

    python -m sluice.bench.masks VOCAB.gguf SCHEMAS [--limit N]

SCHEMAS is a folder of files as in jsonschemabench's maskbench: {"schema", "tests": [{"data",
"valid"}]}. Each instance is written as json.dumps does, cut into the vocabulary's tokens, and fed
token by token, with a mask before each one. All engines take the same tokens in one process, a
schema after the other, on one thread; times are the thread's processor time. Engines whose package
is missing are left out.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from ..faults import Error
from ..gguf.model_file import open_model
from ..grammar import sources
from ..grammar.matcher import Grammar, Matcher
from ..kernels import ffi
from ..tokenizer.vocabulary import Vocab

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Sluice:
    """This program's grammars."""

    name = "Sluice"

    def __init__(self, vocab: "Any", texts: "list[bytes]") -> None:
        self.vocab = vocab
        Matcher(Grammar(b'root ::= ""', "start"), vocab)  # makes the vocabulary's prefix tree

    def compile(self, schema: str) -> "Any":
        """Return the compiled schema; ValueError if it is refused."""
        try:
            return Grammar(sources.of_schema(schema.encode(), "schema"), "schema")
        except Error as e:
            raise ValueError(str(e)) from None

    def start(self, compiled: "Any") -> "Any":
        """Return the functions (mask, accept, is complete) of a new text."""
        matcher = Matcher(compiled, self.vocab)
        allowed = matcher.allowed

        def mask(token: int) -> bool:
            return bool(allowed()[0][token // 64] >> token % 64 & 1)

        return allowed, mask, matcher.accept, lambda: matcher.complete


class LlGuidance:
    """The llguidance package."""

    name = "llguidance"

    def __init__(self, vocab: "Any", texts: "list[bytes]") -> None:
        import llguidance
        import llguidance.numpy as masks

        class Tokens:
            """What the package asks of a tokenizer."""

            eos_token_id = min(vocab.eog)
            bos_token_id = None
            tokens = texts
            special_token_ids = sorted(vocab.eog)

            def __call__(self, text: "Any") -> "list[int]":
                data = text.encode() if isinstance(text, str) else text
                return list(vocab.encode(data, bos=False, prefix=False))

        self._package, self._masks = llguidance, masks
        self._tokens = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()))
        self._bits = masks.allocate_token_bitmask(1, self._tokens.vocab_size)

    def compile(self, schema: str) -> "Any":
        """As Sluice.compile."""
        matcher = self._package.LLMatcher
        grammar = matcher.grammar_from_json_schema(schema)
        made = matcher(self._tokens, grammar, log_level=0)
        if made.is_error():
            raise ValueError(made.get_error())
        return made

    def start(self, compiled: "Any") -> "Any":
        """As Sluice.start."""
        matcher = compiled.deep_copy()
        bits = self._bits

        def fill() -> None:
            self._masks.fill_next_token_bitmask(matcher, bits, 0)

        def mask(token: int) -> bool:
            return bool(bits[0, token // 32] >> (token % 32) & 1)

        return fill, mask, matcher.consume_token, matcher.is_accepting


class XGrammar:
    """The xgrammar package."""

    name = "XGrammar"

    def __init__(self, vocab: "Any", texts: "list[bytes]") -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo(
            texts,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=len(texts),
            stop_token_ids=sorted(vocab.eog),
        )
        self._package = xgrammar
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._bits = xgrammar.allocate_token_bitmask(1, len(texts))

    def compile(self, schema: str) -> "Any":
        """As Sluice.compile."""
        try:
            return self._compiler.compile_json_schema(schema)
        except (RuntimeError, ValueError) as e:
            raise ValueError(str(e)) from None

    def start(self, compiled: "Any") -> "Any":
        """As Sluice.start."""
        matcher, bits = self._package.GrammarMatcher(compiled), self._bits

        def mask(token: int) -> bool:
            return bool(int(bits[0, token // 32]) >> (token % 32) & 1)

        return (
            lambda: matcher.fill_next_token_bitmask(bits),
            mask,
            matcher.accept_token,
            lambda: matcher.is_completed() if hasattr(matcher, "is_completed") else True,
        )


class Figures:
    """What one engine did."""

    def __init__(self) -> None:
        self.compile: list[float] = []
        self.first: list[float] = []
        self.masks: list[float] = []
        self.refused = self.valid = self.accepted = self.invalid = self.wrong = 0


def main(words: "list[str] | None" = None) -> None:
    """Run the bench and print its table."""
    parser = argparse.ArgumentParser(prog="sluice.bench.masks")
    parser.add_argument("vocab")
    parser.add_argument("schemas")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args(words)
    vocab = Vocab(open_model(arguments.vocab, None))
    text, offset = vocab.table()
    texts = [
        bytes(ffi.buffer(text + offset[i], offset[i + 1] - offset[i])) for i in range(vocab.n_vocab)
    ]
    engines: list[Any] = []
    for kind in (Sluice, LlGuidance, XGrammar):
        try:
            engines.append((kind(vocab, texts), Figures()))
        except ImportError as e:
            print(f"left out: {kind.name}: {e}", file=sys.stderr)
    for path in sorted(Path(arguments.schemas).glob("*.json"))[: arguments.limit]:
        case = json.loads(path.read_bytes())
        instances = [
            (
                vocab.encode(json.dumps(t["data"], ensure_ascii=False).encode(), bos=False),
                t["valid"],
            )
            for t in case["tests"]
        ]
        for engine, figures in engines:
            measure(engine, figures, json.dumps(case["schema"]), instances)
    print(table(engines))


def measure(engine: "Any", figures: Figures, schema: str, instances: "list[Any]") -> None:
    """Add one schema to the figures."""
    clock = time.thread_time
    began = clock()
    try:
        compiled = engine.compile(schema)
    except ValueError:
        figures.refused += 1
        return
    figures.compile.append(clock() - began)
    for tokens, valid in instances:
        fill, mask, accept, is_complete = engine.start(compiled)
        alive = True
        for i, token in enumerate(tokens):
            began = clock()
            fill()
            spent = clock() - began
            figures.masks.append(spent)
            if i == 0:
                figures.first.append(spent)
            alive = mask(token) and bool(accept(token))
            if not alive:
                break
        matched = alive and bool(is_complete())
        if valid:
            figures.valid += 1
            figures.accepted += matched
        else:
            figures.invalid += 1
            figures.wrong += matched


def table(engines: "list[Any]") -> str:
    """Return the table, in Markdown."""
    out = [
        "| engine | schemas | valid accepted | invalid accepted | compile, median ms |"
        " first mask, median us | mask, mean us | median | 99 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for engine, f in engines:
        masks = sorted(f.masks)
        out.append(
            f"| {engine.name} | {len(f.compile)} of {len(f.compile) + f.refused}"
            f" | {f.accepted} of {f.valid} | {f.wrong} of {f.invalid}"
            f" | {1e3 * statistics.median(f.compile):.2f}"
            f" | {1e6 * statistics.median(f.first):.0f}"
            f" | {1e6 * statistics.mean(masks):.0f}"
            f" | {1e6 * statistics.median(masks):.0f}"
            f" | {1e6 * masks[int(0.99 * len(masks))]:.0f} |"
        )
    return "\n".join(out)


if __name__ == "__main__":
    main()
