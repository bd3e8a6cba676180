"""Write tests/golden/templates.jsonl: the output of transformers' apply_chat_template for the
templates in tests/data, those that make real-models fetches, and shared/data/templates. And
tests/golden/tool_templates.jsonl: with tools, for those in shared/data/templates and two of
shared/data/tokenizers/mistral-common.

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
TOOL_GOLDEN = GOLDEN.with_name("tool_templates.jsonl")
SHARED = Path(__file__).parents[3] / "shared" / "data" / "templates"
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


def function(name, description, properties, *required):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id, name, content):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


def calling(content, *calls):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


TOOLS = [
    function(
        "get_weather",
        'Weather of a city, "now" & <later>',
        {
            "city": {"type": "string", "description": "Name, such as Z\u00fcrich"},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "city",
    ),
    function("add", "Sum of numbers", {"numbers": {"type": "array", "items": {"type": "number"}}}),
]
ROME = call("a1B2c3D4e", "get_weather", {"city": "Rome", "unit": "C"})
SUM = call("z9Y8x7W6v", "add", {"numbers": [1, 2.5, -3]})
TOOL_CASES = {
    "asked": [user("What is the weather in Rome?")],
    "system": [system("Be brief."), user("What is the weather in Rome?")],
    "called": [user("Weather in Rome?"), calling("", ROME)],
    "answered": [user("Weather?"), calling("", ROME), result("a1B2c3D4e", "get_weather", "18 C")],
    "quoted": [
        user("Weather?"),
        calling("", call("a1B2c3D4e", "get_weather", {"city": 'St. "X" \n \u00e9 <b>', "n": None})),
        result("a1B2c3D4e", "get_weather", '{"t": 18, "text": "\u00e9 \\ <b>"}'),
    ],
    "went on": [
        user("Weather?"),
        calling("", ROME),
        result("a1B2c3D4e", "get_weather", "18 C"),
        assistant("It is 18 C."),
        user("Thanks. And in Oslo?"),
    ],
    "two calls": [
        user("Both."),
        calling("", ROME, SUM),
        result("a1B2c3D4e", "get_weather", "18 C"),
        result("z9Y8x7W6v", "add", "0.5 in all"),
    ],
    "text and call": [user("Weather?"), calling("Let me see.", ROME)],
    "no arguments": [user("Now?"), calling("", call("a1B2c3D4e", "add", {}))],
}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def tokenizer_of():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import chat_template_utils

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({BOS: 0, EOS: 1}, unk_token=EOS)),
        bos_token=BOS,
        eos_token=EOS,
    )
    chat_template_utils.datetime = Clock
    return tokenizer


def lines_of(paths):
    from jinja2.exceptions import TemplateError

    tokenizer = tokenizer_of()
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


def tool_lines_of(directory):
    """Lines of TOOL_CASES. Arguments are objects, or texts where the template wants these; content
    is None where it takes no empty one.
    """
    tokenizer = tokenizer_of()
    others = directory.parent / "tokenizers" / "mistral-common"
    paths = [*directory.glob("*.jinja"), *(others / f"v{n}_spm.jinja" for n in (2, 3))]
    for path in sorted(paths, key=lambda path: path.name):
        for name, messages in TOOL_CASES.items():
            for prompt in (True, False):
                text = rendered(tokenizer, path.read_text(), messages, prompt)
                sha256 = None if text is None else digest(text)
                yield {"template": path.name, "case": name, "prompt": prompt, "sha256": sha256}


def rendered(tokenizer, template, messages, prompt, **variables):
    """The text of a conversation with TOOLS, or None where the template raises."""
    for as_text in (False, True):
        said = json.loads(json.dumps(messages))
        for message in said:
            for made in message.get("tool_calls", ()):
                if as_text:
                    arguments = json.dumps(made["function"]["arguments"], ensure_ascii=False)
                    made["function"]["arguments"] = arguments
        try:
            text = tokenizer.apply_chat_template(
                said,
                tools=TOOLS,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=prompt,
                **variables,
            )
        except Exception:
            continue
        if "&#34;" not in text:
            return text
    return None


def main(argv):
    check = "--check" in argv
    rest = [a for a in argv if a != "--check"]
    directories = [Path(a) for a in rest] or [
        Path(__file__).parents[1] / "data" / "templates",
        real_models.DIRECTORY / "templates",
        SHARED,
    ]
    paths = {path.name: path for d in reversed(directories) for path in d.glob("*.jinja")}
    known = {json.loads(line)["template"] for line in GOLDEN.read_text().splitlines()}
    missing = sorted(known - paths.keys())
    if missing and not rest:
        print(f"golden_templates: skipped, {missing[0]} is not here")
        return 0
    in_order = [paths[name] for name in sorted(paths)]
    status = write(GOLDEN, lines_of(in_order), check)
    if not SHARED.is_dir():
        print(f"golden_templates: tools skipped, {SHARED} is not here")
        return status
    return write(TOOL_GOLDEN, tool_lines_of(SHARED), check) or status


def write(golden, lines, check):
    """Write the file, or with `check` return 1 if it has other lines."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    if not check:
        golden.write_text(text)
        return 0
    same = text == golden.read_text()
    said = "as recorded" if same else f"they differ from tests/golden/{golden.name}"
    print(f"templates: {said}")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
