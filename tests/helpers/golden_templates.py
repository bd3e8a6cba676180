"""Write tests/golden/templates.jsonl: the output of transformers' apply_chat_template for the
templates in tests/data, those that make real-models fetches, and shared/data/templates.

    build/golden-venv/bin/python3 tests/helpers/golden_templates.py [--check] [DIRECTORY...]

A line is a template, a case of CASES, whether a generation prompt was asked for, and the SHA-256 of
the text, or null where the template raises: templates say things of their own, which belong to the
models' makers. The date is NOW, which the clock of transformers is set to here.
"""

import datetime
import hashlib
import json
import sys
from pathlib import Path

import real_models

GOLDEN = Path(__file__).parents[1] / "golden" / "templates.jsonl"
NOW = 1_700_000_000
BOS, EOS = "<s>", "</s>"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


CASES = {
    "one turn": ([user("What is the capital of Peru?")], {}),
    "system": ([system("You are a pirate. Answer briefly."), user("Who are you?")], {}),
    "several turns": (
        [
            user("Hello there"),
            assistant("Hi! How can I help?"),
            user("Name a colour."),
            assistant("Blue."),
            user("And another, please."),
        ],
        {},
    ),
    "system and turns": ([system("Be kind."), user("1 + 1?"), assistant("2"), user("2 + 2?")], {}),
    "blanks around": (
        [
            system("  Be kind.\n"),
            user("\n  What now? \n\n"),
            assistant(" Nothing.\n"),
            user("  Why\n\nnot?\t"),
        ],
        {},
    ),
    "unicode": ([user('Grüße, 回転行列, "quoted" {{ 1 + 1 }} \\n \U0001f980 <b>&amp;</b>')], {}),
    "ends with the answer": ([user("Say yes."), assistant("yes")], {}),
    "thinking": (
        [
            user("Think."),
            assistant("<think>\nOne, two.\n</think>\n\nDone."),
            user("Again."),
            assistant("<think>\nThree.\n</think>\n\nDone again."),
            user("Once more."),
        ],
        {},
    ),
    "thoughts last": ([user("Think."), assistant("<think>\nOne, two.\n</think>\n\nDone.")], {}),
    "channel": (
        [user("Think."), assistant("<|channel>thought\nOne.<channel|>Done."), user("Again.")],
        {},
    ),
    "empty answer": ([user("Say nothing."), assistant(""), user("Why?")], {}),
    "without thinking": ([user("Be quick.")], {"enable_thinking": False}),
    "with thinking": ([system("Be slow."), user("Think.")], {"enable_thinking": True}),
    "two questions": ([user("One?"), user("Two?")], {}),
    "answer first": ([assistant("Hello."), user("Hi.")], {}),
}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def lines_of(paths):
    from jinja2.exceptions import TemplateError
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import chat_template_utils

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({BOS: 0, EOS: 1}, unk_token=EOS)),
        bos_token=BOS,
        eos_token=EOS,
    )
    chat_template_utils.datetime = Clock
    for path in paths:
        for name, (messages, variables) in CASES.items():
            for prompt in (True, False):
                try:
                    sha256 = digest(
                        tokenizer.apply_chat_template(
                            messages,
                            chat_template=path.read_text(),
                            tokenize=False,
                            add_generation_prompt=prompt,
                            **variables,
                        )
                    )
                except TemplateError:
                    sha256 = None
                yield {"template": path.name, "case": name, "prompt": prompt, "sha256": sha256}


def main(argv):
    check = "--check" in argv
    rest = [a for a in argv if a != "--check"]
    directories = [Path(a) for a in rest] or [
        Path(__file__).parents[1] / "data" / "templates",
        real_models.DIRECTORY / "templates",
        Path(__file__).parents[3] / "shared" / "data" / "templates",
    ]
    paths = {path.name: path for d in reversed(directories) for path in d.glob("*.jinja")}
    known = {json.loads(line)["template"] for line in GOLDEN.read_text().splitlines()}
    missing = sorted(known - paths.keys())
    if missing and not rest:
        print(f"golden_templates: skipped, {missing[0]} is not here")
        return 0
    in_order = [paths[name] for name in sorted(paths)]
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines_of(in_order))
    if check:
        same = lines == GOLDEN.read_text()
        print(
            "templates: "
            + ("as recorded" if same else "they differ from tests/golden/templates.jsonl")
        )
        return 0 if same else 1
    GOLDEN.write_text(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
