"""Validate generated JSON with the package jsonschema: seeded runs over the schemas of a bench.

    python3 tests/helpers/valid_texts.py MODEL [N]

N (1,000) requests to `generate --jsonl`, with seeds 0 to N - 1, over the schemas in
$SLUICE_SHARED/data/schema/bench that are not refused. Each is cut after 4 to 60 tokens, and
completed ("complete": true). Printed: how many ended how, and those that are not valid.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import jsonschema

from sluice.faults import Error
from sluice.grammar import sources

ROOT = Path(__file__).resolve().parents[2]


def schemas():
    """The bench's schemas that are not refused, by name."""
    folder = Path(os.environ.get("SLUICE_SHARED") or ROOT.parent / "shared") / "data/schema/bench"
    found = {}
    for path in sorted(folder.glob("*.json")):
        schema = json.loads(path.read_bytes())["schema"]
        try:
            sources.of_schema(json.dumps(schema).encode(), path.name)
        except Error:
            continue
        found[path.name] = schema
    return found


def runs(model, n):
    """(number of answers, [(schema's name, seed, text, problem)] of those that are not valid)."""
    warnings.simplefilter("ignore", FutureWarning)  # of patterns
    used = list(schemas().items())
    requests = [
        {
            "id": seed,
            "prompt": "A record, as JSON:\n",
            "seed": seed,
            "max_tokens": 4 + seed * 7 % 57,
            "json_schema": used[seed * len(used) // n][1],
            "complete": True,
        }
        for seed in range(n)
    ]
    with tempfile.TemporaryFile() as lines:
        lines.write(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
        lines.seek(0)
        done = subprocess.run(
            [ROOT / "bin" / "generate", "-m", model, "--jsonl"],
            stdin=lines,
            stdout=subprocess.PIPE,
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = []
    for answer in answers:
        name, schema = used[answer["id"] * len(used) // n]
        try:
            check = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            check(schema).validate(json.loads(answer["text"]))
        except (KeyError, ValueError, jsonschema.ValidationError) as e:
            text = answer.get("text", answer.get("error"))
            wrong.append((name, answer["id"], text, str(e).splitlines()[0]))
    ends = collections.Counter(answer.get("end") for answer in answers)
    print(f"{len(answers)} answers with status {done.returncode}; ends: {dict(ends)}")
    return len(answers), wrong


if __name__ == "__main__":
    n, wrong = runs(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
    for found in wrong:
        print(*found, sep="\t")
    print(f"{n - len(wrong)} of {n} are valid")
