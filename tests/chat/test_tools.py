"""Tools: calls in the form of real templates, and what tools files, messages and answers cannot do."""

import json
import re

import conftest
import golden_templates
import jsonschema
import pytest
from chat_model import write_chat_model
from forked import render_here, run

from sluice import gguf
from sluice.chat import call_form, messages, template, tools
from sluice.chat.message import Message
from sluice.chat.template import Template
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

    is_control = is_mark


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


# forms --------------------------------------------------------------------------------------------

CALLS = [
    tools.Call("a1B2c3D4e", "get_weather", '{"city": "Rome"}'),
    tools.Call("z9Y8x7W6v", "add", '{"numbers": [1]}'),
]
QWEN = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    '\n<tool_call>\n{"name": "add", "arguments": {"numbers": [1]}}\n</tool_call>',
)
MISTRAL = (
    '{"name": "get_weather", "arguments": {"city": "Rome"}, "id": "a1B2c3D4e"}',
    ', {"name": "add", "arguments": {"numbers": [1]}, "id": "z9Y8x7W6v"}',
)
LLAMA = '{"name": "get_weather", "parameters": {"city": "Rome"}}'
FORMS = {
    "Qwen-Qwen2.5-7B-Instruct.jinja": (QWEN[0], "".join(QWEN)),
    "Qwen-Qwen3-0.6B.jinja": (QWEN[0], "".join(QWEN)),
    "hermes": (QWEN[0], "".join(QWEN)),
    "meta-llama-Llama-3.1-8B-Instruct.jinja": (LLAMA, None),
    "meta-llama-Llama-3.2-3B-Instruct.jinja": (LLAMA, None),
    "mistralai-Mistral-Nemo-Instruct-2407.jinja": (
        f"[TOOL_CALLS][{MISTRAL[0]}]",
        f"[TOOL_CALLS][{''.join(MISTRAL)}]",
    ),
    "v3_spm.jinja": (f"[TOOL_CALLS] [{MISTRAL[0]}]", f"[TOOL_CALLS] [{''.join(MISTRAL)}]"),
}
# as of SmolLM3: tools have a variable of their own, and calls no place
NO_PLACE = """{%- if xml_tools %}<|im_start|>system
In <tool_call></tool_call>:{% for t in xml_tools %}{{ t | string }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# as of DeepSeek R1: arguments are a text, a content is a message of its own, answers are thoughts
THINKS = """{{ tools | tojson if tools }}{% for m in messages %}{% if m.role == 'user' %}
<|User|>{{ m.content }}{% endif %}{% if m.tool_calls %}<|Assistant|>{% for c in m.tool_calls %}
<|call|>{{ c.function.name + '\\n```json\\n' + c.function.arguments }}
```<|done|>{% endfor %}</s>{% endif %}{% if m.role == 'assistant' and m.content is not none %}
<|Assistant|>{{ m.content }}</s>{% endif %}{% if m.role == 'tool' %}
<|out|>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|Assistant|><think>
{% endif %}"""


def source_of(datafile, name):
    if name == "hermes":
        return (conftest.ROOT / "configs" / "hermes.jinja").read_text()
    return path_of(datafile, name).read_text()


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_calls_is_that_of_the_template(datafile, here, name):
    its_template = made(source_of(datafile, name))
    one, two = FORMS[name]
    assert call_form.written(CALLS[:1], its_template.form) == one
    assert (its_template.form.between is not None) == (two is not None)
    for n, text in enumerate(filter(None, (one, two)), 1):
        said = [Message("user", "Hi"), Message("assistant", "", None, tuple(CALLS[:n]))]
        assert text in text_of(its_template.segments(said, False))


def test_a_template_without_a_place_for_calls_gets_them_in_the_content(here):
    its_template = made(NO_PLACE)
    form = its_template.form
    assert form.in_content and form.variables == ("tools", "xml_tools")
    said = [Message("user", "Hi"), Message("assistant", "Well.", None, tuple(CALLS))]
    text = text_of(its_template.segments(said, False))
    assert f"assistant\nWell.\n{''.join(QWEN)}<|im_end|>" in text


def test_a_template_that_wants_texts_and_no_content_gets_these(here):
    its_template = made(THINKS)
    form = its_template.form
    assert form.as_text and form.without_content and form.in_thought
    said = [Message("user", "Hi"), Message("assistant", "", None, tuple(CALLS))]
    text = text_of(its_template.segments(said, False))
    assert text.count("<|Assistant|>") == 1 and '```json\n{"city": "Rome"}\n```<|done|>' in text


@pytest.mark.parametrize(
    "source, problem",
    [
        ("{{ messages[0].content }}", "does not know tools"),
        ("{{ tools | tojson }}{{ messages[0].content }}", "writes calls of tools in a form"),
        (
            "{{ tools | tojson }}{% for m in messages %}|{{ m.content }}{% for c in m.tool_calls %}"
            "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
            "{% endfor %}{% endfor %}{% endfor %}",
            "writes calls of tools in a form",
        ),
    ],
)
def test_templates_without_such_calls_are_refused_by_name(here, source, problem):
    with pytest.raises(Error, match=f"^m.gguf: template: {problem}") as e:
        made(source).segments([Message("user", "Hi")])
    assert e.value.code == 69


def test_calls_that_begin_with_a_name_are_refused(here):
    """They cannot be told from a text."""
    source = (
        "{{ tools | tojson }}{% for m in messages %}|{{ m.content }}{% for c in m.tool_calls %}"
        "{{ c.function.name + ' ' + c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    its_template = made(source)
    with pytest.raises(Error, match="calls begin with the name of a tool") as e:
        its_template.with_tools(its_template.tools, "auto")
    assert e.value.code == 69


# grammars -----------------------------------------------------------------------------------------

OK, NO = True, False
TABLE = {  # whether an answer is one: with auto, required, none, and the name get_weather
    "{one}": (OK, OK, NO, OK),
    "\n {one}": (OK, OK, NO, OK),
    "": (OK, NO, OK, NO),
    "Hello": (OK, NO, OK, NO),
    " \n Hello [1] {{2}}": (OK, NO, OK, NO),
    "{{1}}": (NO, NO, NO, NO),
    "[1]": (NO, NO, NO, NO),
    "{one}.": (NO, NO, NO, NO),
    "Sure. {one}": ("after", NO, NO, NO),
    "{two}": ("two", "two", NO, NO),
    "{begun}": (NO, NO, NO, NO),
}


@pytest.mark.parametrize(
    "name, vocab",
    [
        ("Qwen-Qwen3-0.6B.jinja", "qwen2"),
        ("hermes", "qwen2"),
        ("meta-llama-Llama-3.1-8B-Instruct.jinja", "llama-bpe"),
        ("mistralai-Mistral-Nemo-Instruct-2407.jinja", "llama-spm"),
    ],
)
def test_an_answer_is_a_text_or_calls(datafile, here, name, vocab):
    words = Vocab(gguf.File(str(datafile(f"vocab/ggml-vocab-{vocab}.gguf"))))
    its_template = Template(source_of(datafile, name), name, words)
    its_tools = tools.of_list(golden_templates.TOOLS, "tools")
    its_template.tools = its_tools
    form = its_template.form
    one, two = FORMS[name]
    for i, choice in enumerate(("auto", "required", "none", "get_weather")):
        found = its_template.with_tools(its_tools, choice)
        for text, expected in TABLE.items():
            if "{two}" in text and not two or "Sure" in text and one.startswith(("{", "[")):
                continue
            whole = text.format(one=one, two=two, begun=one[:-3])
            answer, accepted = accepts(found, words, whole)
            wanted = expected[i]
            wanted = {"after": form.after_text, "two": two is not None}.get(wanted, wanted)
            assert accepted == wanted, (name, choice, whole)
            if accepted and "{o" in text:
                calls = answer.calls(3)
                assert [c[1:] for c in calls] == [CALLS[0][1:]]
                assert calls[0].id == CALLS[0].id or "id" not in form.slots
                assert calls == answer.calls(3) != answer.calls(4) or "id" in form.slots
            elif accepted and "{two}" in text:
                assert [c[1:] for c in answer.calls(3)] == [c[1:] for c in CALLS]
            elif accepted:
                assert not answer.called and answer.calls(3) is None


def accepts(found, words, text):
    """(the CallAnswer, whether the grammar allows the tokens of `text`)."""
    matcher, answer, shown = Matcher(found.grammar, words), found.answer(), b""
    for token in words.encode(text.encode(), bos=False, special=True, prefix=False):
        allowed, _ = matcher.allowed()
        if not allowed[token // 64] >> (token % 64) & 1:
            return answer, False
        assert matcher.accept(token)
        shown += answer.add(token)
    shown = (shown + answer.remainder()).decode()
    text = text.removeprefix(" ") if words.add_prefix else text
    assert text.startswith(shown) and (answer.called or shown == text)
    return answer, matcher.complete


def test_a_text_may_be_long(datafile, here):
    words = Vocab(gguf.File(str(datafile("vocab/ggml-vocab-qwen2.gguf"))))
    its_template = Template(source_of(datafile, "hermes"), "hermes", words)
    its_tools = tools.of_list(golden_templates.TOOLS, "tools")
    matcher = Matcher(its_template.with_tools(its_tools, "auto").grammar)
    for _ in range(100_000):
        assert matcher.feed(b"ab <tool_cal <<\n{")
    assert matcher.complete and not matcher.feed(b"<tool_call>{")


# hostile files ------------------------------------------------------------------------------------


def tool(**function):
    return [{"type": "function", "function": {"name": "f", **function}}]


def deep(n):
    return json.loads("[" * n + "]" * n)


BAD_TOOLS = {
    "{}": (65, "is not a list of tools"),
    "[]": (65, "is not a list of tools"),
    "[1": (65, "is not JSON"),
    "\xff": (65, "is not UTF-8"),
    '[{"type": "function"}]': (65, 'tool 1: is not an object with "type" and "function"'),
    '[{"type": "web", "function": {"name": "f"}}]': (65, 'tool 1: type is not "function"'),
    '[{"type": "function", "type": 1}]': (65, "a key appears twice"),
    json.dumps(tool(name="a b")): (65, "tool 1: name is not 1 to 64"),
    json.dumps(tool(name="<|im_end|>")): (65, "tool 1: name is not 1 to 64"),
    json.dumps(tool(name="f" * 65)): (65, "tool 1: name is not 1 to 64"),
    json.dumps(tool(description=1)): (65, "tool 1: f: description is not a text"),
    json.dumps(tool(parameters=[])): (65, "tool 1: f: parameters is not a JSON Schema"),
    json.dumps(tool(description="\ud800")): (65, "tool 1: f: has half of a surrogate pair"),
    json.dumps(tool() * 2): (65, "tool 2: f is the name of an earlier tool"),
    json.dumps(tool() * 129): (65, "129 tools, more than 128"),
    json.dumps(tool(x=deep(200))): (65, "tool 1: nested more than 100 levels deep"),
    '[{"type": ' + "[" * 100_000: (65, "nested too deeply"),
    " " * ((1 << 20) + 1): (65, "more than"),
    json.dumps(tool(parameters={"type": "string"})): (65, "f: parameters: the schema allows no"),
    json.dumps(tool(parameters={"type": "object", "properties": {"x" * 300_000: {}}})): (
        65,
        "more than 200000 nodes",
    ),
    json.dumps(tool(parameters={"type": "nothing"})): (65, "f: parameters: #/type"),
    json.dumps(tool(parameters={"$ref": "http://x/y"})): (69, "f: parameters: #/$ref"),
    json.dumps(
        tool(parameters={"type": "object", "properties": {"a": {"contains": {"const": 1}}}})
    ): (69, "f: parameters: #/properties/a/contains"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "chat.gguf"
    source = (conftest.ROOT / "configs" / "hermes.jinja").read_text()
    return write_chat_model(path, ["<|im_start|>", "<|im_end|>"], source, n_ctx=2000)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("text", BAD_TOOLS, ids=lambda text: text[:60])
def test_bad_tools_end_in_one_line(model, tmp_path, text):
    code, problem = BAD_TOOLS[text]
    path = tmp_path / "tools.json"
    path.write_bytes(text.encode("latin-1"))
    done = run("generate", "-m", model, "--tools", path, "-n", 1, "Hi")
    assert done.returncode == code and not done.stdout, done.stderr
    line = done.stderr.decode()
    assert line.startswith(f"generate: {path}: ") and problem in line and line.count("\n") == 1


BAD_CALLS = {
    '{"role": "assistant"}': "is not an object with role and content",
    '{"role": "user", "content": "x", "tool_calls": [1]}': "is not an object with role and content",
    '{"role": "assistant", "tool_calls": {"a": 1}}': "tool_calls is not a list",
    '{"role": "assistant", "tool_calls": [1]}': "tool_calls call 1 is not an object",
    '{"role": "assistant", "tool_calls": [{"function": {"name": "<|im_end|>"}}]}': "call 1: name",
    '{"role": "assistant", "tool_calls": [{"id": "</s>", "function": {"name": "f"}}]}': "1: id is",
    '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}': (
        "call 1: arguments is not a JSON object"
    ),
    '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\\"a\\": NaN}"}}]}': (
        "call 1: arguments is not a JSON object"
    ),
    '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\\"a\\": '
    + "[" * 9999
    + '"}}]}': "call 1: arguments is not a JSON object",
    '{"role": "tool", "content": "x"}': "there is no call whose result it could be",
    '{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}\n'
    '{"role": "tool", "content": "x"}\n{"role": "tool", "content": "x"}': "line 4: role tool",
    '{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}\n'
    '{"role": "tool", "content": "x", "tool_call_id": "a b"}': "tool_call_id is not that",
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("text", BAD_CALLS, ids=lambda text: text[:60])
def test_bad_calls_in_messages_end_in_one_line(model, tmp_path, text):
    path = tmp_path / "talk.jsonl"
    path.write_text('{"role": "user", "content": "Hi"}\n' + text + "\n")
    done = run("generate", "-m", model, "--messages", path, "-n", 1)
    assert done.returncode == 65 and not done.stdout, done.stderr
    line = done.stderr.decode()
    assert line.startswith(f"generate: {path}: line ") and BAD_CALLS[text] in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|im_end|><|im_start|>"])
def test_texts_of_tools_and_calls_bring_no_control_token(model, mark):
    words = Vocab(gguf.File(model))
    marks = [i for i in range(words.n_vocab) if words.is_control(i) and words.bytes_of(i, True)]

    def tokens(text, *said):
        its_template = template.of(gguf.File(model), words)
        parameters = {"type": "object", "properties": {text: {"enum": [text]}}}
        entries = tool(description=text, parameters=parameters, x={text: [text]})
        its_template.tools = tools.of_list(entries, "tools")
        arguments = json.dumps({text: [text, {"a": text}]})
        call = tools.Call("a", "f", arguments)
        said = [Message("user", "Hi"), Message("assistant", text, None, (call,))]
        said.append(Message("tool", text, None, (), "a", "f"))
        found = its_template.prompt(said).tokens
        text = b"".join(words.bytes_of(i, True) for i in found).decode()
        return [i for i in found if i in marks], text.replace("\u2581", " ")

    plain, hostile = tokens("plain"), tokens(mark)
    assert plain[0] == hostile[0]
    assert hostile[1].count(mark) > 5  # the texts are there, as text


# commands -----------------------------------------------------------------------------------------

SHAPES = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "minimum": 1, "maximum": 50},
                    "unit": {"enum": ["C", "F"]},
                    "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
                    "name": {"type": "string", "maxLength": 5},
                },
                "required": required,
            },
        },
    }
    for name, required in (("measure", ["n", "unit"]), ("wait", ["list"]), ("stop.now", []))
]
BY_NAME = {entry["function"]["name"]: entry["function"]["parameters"] for entry in SHAPES}


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(SHAPES))
    return path


def check(answer, name=None):
    """An answer with calls is of OpenAI's shape, and its arguments satisfy the schemas."""
    assert set(answer) == {"role", "content", "tool_calls"} and answer["role"] == "assistant"
    for call in answer["tool_calls"]:
        assert set(call) == {"id", "type", "function"} and call["type"] == "function"
        assert re.fullmatch("[A-Za-z0-9]{9}", call["id"])
        arguments = json.loads(call["function"]["arguments"])
        jsonschema.validate(arguments, BY_NAME[call["function"]["name"]])
        assert set(arguments) <= {"n", "unit", "list", "name"}
        assert name in (None, call["function"]["name"])
    assert len({call["id"] for call in answer["tool_calls"]}) == len(answer["tool_calls"])
    return answer


@pytest.mark.parametrize("choice", ["required", "wait", "auto", "none"])
def test_every_answer_is_a_valid_call_or_a_text(model, shapes, choice):
    options = ["-m", model, "--tools", shapes, "--tool-choice", choice, "-n", 400, "-t", 2]
    lines = [json.dumps({"prompt": "Hi", "seed": n}).encode() + b"\n" for n in range(12)]
    done = run("generate", *options, "--jsonl", input=b"".join(lines))
    assert done.returncode in (0, 1), done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        calls = answer.get("tool_calls")
        if calls:
            said = {"role": "assistant", "content": answer["text"] or None, "tool_calls": calls}
            check(said, "wait" if choice == "wait" else None)
        else:
            assert not answer["text"].lstrip().startswith(("{", "["))
            assert choice in ("auto", "none") or answer["end"] == "cut"
    n_calls = sum("tool_calls" in answer for answer in answers)
    assert n_calls == 0 if choice == "none" else n_calls > 5 or choice == "auto"
    if choice == "none":
        return
    for n, answer in enumerate(answers[:4]):  # and generate alone prints the same
        alone = run("generate", *options, "-S", n, "Hi")
        if "tool_calls" in answer:
            said = check(json.loads(alone.stdout))
            assert said["tool_calls"] == answer["tool_calls"]
            assert (said["content"] or "") == answer["text"]
        elif answer["end"] == "cut":
            assert alone.returncode == 1 and not alone.stdout
            assert b"cut within the call of a tool" in alone.stderr
        else:
            assert alone.stdout.decode() == answer["text"]


def test_results_follow_calls_in_a_chat(model, shapes, tmp_path):
    """Lines behind an answer with calls are their results; a later run goes on; the answers are
    those of generate for the same messages.
    """
    talk, saved = tmp_path / "talk.jsonl", tmp_path / "saved.jsonl"
    options = ["-m", model, "--tools", shapes, "-S", 3, "-t", 2, "-n", 300]
    first = run("chat", *options, "--tool-choice", "measure", "--talk", talk, input=b"Hi\n")
    assert first.returncode == 0, first.stderr
    answer = check(json.loads(first.stdout), "measure")
    said = [json.loads(line) for line in talk.read_bytes().splitlines()]
    assert said == [{"role": "user", "content": "Hi"}, answer]
    calls = answer["tool_calls"]
    results = [f"result {n}\n".encode() for n in range(len(calls))]
    then = run("chat", *options, "--talk", talk, "-o", saved, input=b"".join(results))
    assert then.returncode in (0, 1), then.stderr
    said = [json.loads(line) for line in saved.read_bytes().splitlines()]
    assert said[:2] == [{"role": "user", "content": "Hi"}, answer]
    assert said[2:-1] == [
        {
            "role": "tool",
            "content": f"result {n}",
            "tool_call_id": call["id"],
            "name": call["function"]["name"],
        }
        for n, call in enumerate(calls)
    ]
    before = tmp_path / "before.jsonl"
    before.write_text("".join(json.dumps(m) + "\n" for m in said[:-1]))
    alone = run("generate", *options, "--messages", before)
    cut = b"cut within the call" in alone.stderr
    assert cut or then.stdout.removesuffix(b"\n") == alone.stdout.removesuffix(b"\n")
    if said[-1].get("tool_calls"):
        check(said[-1])


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--tool-choice", "auto"], "--tool-choice: needs --tools"),
        (["--tools", "{}", "--tool-choice", "nope"], '--tool-choice: "nope" is not auto'),
        (["--tools", "{}", "-e", 'root ::= "a"'], "--tools: not with -g, -e, --regex"),
        (["--tools", "{}", "--echo"], "--tools: not with --echo"),
        (["--tools", "{}", "-s", "x.snap"], "-s and --special: not with"),
        (["--tools", "{}", "--json-indent", "2"], "only with --json-schema"),
    ],
)
def test_options_that_exclude_tools(model, shapes, options, problem):
    options = [shapes if option == "{}" else option for option in options]
    done = run("generate", "-m", model, "-n", 1, *options, "Hi")
    assert done.returncode == 64 and problem in done.stderr.decode(), done.stderr


@pytest.mark.parametrize(
    "request_, problem",
    [
        ({"tools": {}}, "tools: is not a list"),
        ({"tools": SHAPES, "tool_choice": 1}, "tool_choice: is not a text"),
        ({"tools": SHAPES, "tool_choice": "x"}, 'tool_choice: "x" is not auto'),
        ({"tool_choice": "auto"}, "tool_choice: needs tools"),
        ({"tools": SHAPES, "regex": "a"}, "regex: not with tools"),
        ({"tools": tool(parameters={"type": 1})}, "tools: f: parameters: #/type"),
    ],
)
def test_requests_that_are_wrong_have_an_error(model, request_, problem):
    line = json.dumps({"id": 1, "prompt": "Hi", "max_tokens": 1, **request_}).encode() + b"\n"
    good = json.dumps({"id": 2, "prompt": "Hi", "max_tokens": 1, "tools": SHAPES}).encode() + b"\n"
    done = run("generate", "-m", model, "--jsonl", input=line + good)
    wrong, right = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 65 and problem in wrong["error"], wrong
    assert right["id"] == 2 and "error" not in right


def test_a_schema_is_made_lax_on_request(model, tmp_path):
    path = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {"a": {"contains": {"const": 1}}}}
    path.write_text(json.dumps(tool(parameters=schema)))
    done = run("generate", "-m", model, "--tools", path, "--json-schema-lax", "-n", 1, "Hi")
    assert done.returncode in (0, 1) and b"contains" in done.stderr and b"left out" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("name", ["hermes"])
def test_calls_of_a_real_model_are_valid(smollm2, datafile, tmp_path, shapes, name):
    source = tmp_path / "template.jinja"
    source.write_text(source_of(datafile, name))
    lines = [
        json.dumps({"prompt": f"Measure {n} in F.", "seed": n, "temperature": n % 3 / 2}).encode()
        for n in range(10)
    ]
    for choice in ("required", "auto"):
        done = run(
            *("generate", "-m", smollm2, "--template", source, "--tools", shapes, "--jsonl"),
            *("--tool-choice", choice, "-n", 150),
            input=b"\n".join(lines),
            timeout=600,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        n_calls = 0
        for answer in answers:
            if answer.get("tool_calls"):
                n_calls += 1
                said = {"content": answer["text"] or None, "tool_calls": answer["tool_calls"]}
                check({"role": "assistant", **said})
        assert len(answers) == 10 and (n_calls > 3 or choice == "auto"), n_calls
