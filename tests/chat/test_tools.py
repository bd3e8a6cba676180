"""Tools: calls in the form of real templates, and what tools files, messages and answers cannot do."""

import json
import re

import golden_templates
import pytest
from forked import render_here

from sluice import gguf
from sluice.chat import call_form, calling, messages, template, tools
from sluice.chat.template import Message, Template
from sluice.faults import Error
from sluice.grammar.matcher import Matcher
from sluice.tokenizer.vocabulary import Vocab

LINES = [json.loads(line) for line in golden_templates.TOOL_GOLDEN.read_text().splitlines()]
KNOWING = {line["template"] for line in LINES} - {
    "google-gemma-2-2b-it.jinja",
    "google-gemma-3-4b-it.jinja",
    "google-gemma-4-31B-it.jinja",
    "microsoft-Phi-3.5-mini-instruct.jinja",
}


class Names:
    """As much of a vocabulary as a template's text needs; `marks` are its control tokens."""

    bos, eos, add_prefix = 1, 2, False

    def __init__(self, *marks):
        self._marks = ["", "<s>", "</s>", *marks]

    def bytes_of(self, i, special=False):
        return self._marks[i].encode()

    def encode(self, data, **options):
        found = re.findall("|".join(map(re.escape, self._marks[1:])), data.decode())
        return [self._marks.index(mark) for mark in found]

    def is_mark(self, i):
        return i > 0


def path_of(datafile, name):
    folder = "tokenizers/mistral-common" if "spm" in name else "templates"
    return datafile(f"{folder}/{name}")


def made(source, *marks, name="m.gguf: template", its_tools=golden_templates.TOOLS):
    found = Template(source, name, Names(*marks))
    found.tools = tools.of_list(its_tools, "tools") if its_tools else []
    return found


def text_of(segments):
    return "".join(text for _, text, _ in segments)


@pytest.fixture
def here():
    """Templates are rendered in this process."""
    with pytest.MonkeyPatch.context() as patch:
        render_here(patch)
        yield


@pytest.mark.parametrize("name", sorted(KNOWING))
def test_conversations_with_tools_are_those_of_transformers(datafile, monkeypatch, here, name):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(golden_templates.NOW))
    its_template, n = made(path_of(datafile, name).read_text()), 0
    for line in LINES:
        if line["template"] != name:
            continue
        said = messages.of_list(golden_templates.TOOL_CASES[line["case"]], "messages")
        try:
            text = text_of(its_template.segments(said, line["prompt"]))
        except Error as e:
            assert line["sha256"] is None and e.code == 65, (line, e)
            continue
        assert golden_templates.digest(text) == line["sha256"], line
        n += 1
    assert n > 5
