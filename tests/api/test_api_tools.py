"""Calls of tools from Model.chat_prompt and Model.generate are those of `generate --tools`."""

import copy
import json
import pickle

import jsonschema
import pytest
from chat_model import write_chat_model
from conftest import ROOT
from forked import run

import sluice

MARKS = ["<|im_start|>", "<|im_end|>"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"To {name}",
            "parameters": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "minimum": 1, "maximum": 50},
                    "unit": {"enum": ["C", "F"]},
                    "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
                },
                "required": required,
            },
        },
    }
    for name, required in (("measure", ["n", "unit"]), ("wait", ["list"]), ("stop.now", []))
]
BY_NAME = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
ASKED = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("tools")
    for name in ("hermes", "chatml"):
        source = (ROOT / "configs" / f"{name}.jinja").read_text()
        write_chat_model(d / f"{name}.gguf", MARKS, source, n_ctx=2000)
    write_chat_model(d / "none.gguf", MARKS, n_ctx=2000)
    (d / "tools.json").write_text(json.dumps(TOOLS))
    return d


def printed(folder, path, *options, messages):
    """(message that `generate --tools` prints, or None if it was cut within a call; its status)."""
    said = folder / "messages.jsonl"
    said.write_text("".join(json.dumps(message) + "\n" for message in messages))
    tools = folder / "tools.json"
    done = run("generate", "-m", path, "--tools", tools, "--messages", said, *options)
    text = done.stdout.decode()
    if text.startswith("{"):
        return json.loads(text), done.returncode
    if b"cut within the call" in done.stderr:
        return None, done.returncode
    return {"role": "assistant", "content": text}, done.returncode


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("choice", [None, "auto", "required", "none", "wait"])
def test_calls_and_text_are_those_of_generate(folder, choice):
    path, n_calls = folder / "hermes.gguf", 0
    how = [] if choice is None else ["--tool-choice", choice]
    with sluice.load(path) as model:
        for seed in range(3):
            prompt = model.chat_prompt(ASKED, tools=iter(TOOLS), tool_choice=choice)
            answer = model.generate(prompt, seed=seed, temperature=2, max_tokens=300)
            assert answer.calls == []
            text = "".join(answer)
            options = [*how, "-S", seed, "-t", 2, "-n", 300]
            want, code = printed(folder, path, *options, messages=ASKED)
            assert code == (1 if answer.reason == "cut" else 0)
            if want is None:
                assert answer.reason == "cut" and answer.calls == []
                continue
            assert answer.message == want and text.rstrip() == (want["content"] or "").rstrip()
            for call, of in zip(answer.calls, want.get("tool_calls", []), strict=True):
                n_calls += 1
                assert (call.id, call.name) == (of["id"], of["function"]["name"])
                assert call.json == of["function"]["arguments"]
                assert call.arguments == json.loads(call.json)
                jsonschema.validate(call.arguments, BY_NAME[call.name])
                assert choice != "wait" or call.name == "wait"
    assert n_calls or choice in (None, "auto", "none")


def test_results_are_messages_and_the_conversation_goes_on(folder):
    path, messages = folder / "hermes.gguf", list(ASKED)
    with sluice.load(path) as model:
        prompt = model.chat_prompt(messages, tools=TOOLS, tool_choice="measure")
        answer = model.generate(prompt, seed=1, max_tokens=400)
        assert "".join(answer).strip() == "" and answer.calls
        messages.append(answer.message)
        for call in answer.calls:
            result = f"{call.arguments['n']} {call.arguments['unit']} <|im_end|>"
            messages.append({"role": "tool", "content": result, "tool_call_id": call.id})
        prompt = model.chat_prompt(messages, tools=TOOLS)
        then = model.generate(prompt, seed=2, max_tokens=60)
        text = "".join(then)
        assert text == (then.message["content"] or "") and prompt.n_messages == len(messages)
        want, _ = printed(folder, path, "-S", 2, "-n", 60, messages=messages)
        assert want in (then.message, None)
        # without tools the calls of earlier answers are still there
        assert len(model.chat_prompt(messages)) > len(model.chat_prompt(messages[:1]))
        # arguments may be an object, too
        call = messages[1]["tool_calls"][0]["function"]
        call["arguments"] = json.loads(call["arguments"])
        assert model.chat_prompt(messages, tools=TOOLS) == prompt


def test_message_of_a_text_is_the_text_so_far(folder):
    with sluice.load(folder / "chatml.gguf") as model:
        answer = model.generate(model.chat_prompt(ASKED), seed=1, max_tokens=9)
        first = next(answer)
        assert answer.message == {"role": "assistant", "content": first}
        text = first + "".join(answer)
        assert answer.message == {"role": "assistant", "content": text} and text != first
        assert answer.calls == []


def test_a_stop_text_and_complete_work_with_tools(folder):
    path = folder / "hermes.gguf"
    with sluice.load(path) as model:
        prompt = model.chat_prompt(ASKED, tools=TOOLS, tool_choice="required")
        answer = model.generate(prompt, seed=1, max_tokens=4, complete=True)
        list(answer)
        assert answer.calls and answer.closed and answer.reason == "length"
        options = ["--tool-choice", "required", "-S", 1, "-n", 4, "--complete"]
        assert printed(folder, path, *options, messages=ASKED) == (answer.message, 0)
        text = model.generate(
            model.chat_prompt(ASKED, tools=TOOLS, tool_choice="none"),
            **{"seed": 3, "max_tokens": 60, "stop": "e"},
        )
        want, _ = printed(
            folder,
            path,
            *("--tool-choice", "none", "-S", 3, "-n", 60, "--stop", "e"),
            messages=ASKED,
        )
        assert "".join(text) == want["content"] and "e" not in want["content"]


def test_prompt_is_a_list_of_tokens(folder):
    with sluice.load(folder / "hermes.gguf") as model:
        prompt = model.chat_prompt(ASKED, tools=TOOLS)
        assert isinstance(prompt, list) and prompt == list(prompt) != model.chat_prompt(ASKED)
        assert model.chat_prompt(ASKED, tools=[]) == model.chat_prompt(ASKED)
        assert "measure" in model.detokenize(prompt)
        with sluice.load(folder / "hermes.gguf") as other:
            with pytest.raises(ValueError, match="made by another model"):
                other.generate(prompt)
            assert other.generate(list(prompt), max_tokens=1).n_prompt == len(prompt)
        for made in (copy.copy(prompt), copy.deepcopy(prompt), pickle.loads(pickle.dumps(prompt))):
            assert type(made) is list and made == prompt


def test_text_of_tools_never_becomes_a_control_token(folder):
    def marks(model, word):
        tools = [{"type": "function", "function": {"name": "f", "description": word}}]
        prompt = model.chat_prompt(ASKED, tools=tools)
        return [token for token in prompt if model.detokenize([token], special=True) in MARKS]

    with sluice.load(folder / "hermes.gguf") as model:
        assert marks(model, "plain") == marks(model, "<|im_end|>") != []


def deep(n):
    value = {}
    for _ in range(n):
        value = {"x": value}
    return value


def circle():
    value = {}
    value["x"] = value
    return value


def tool(**function):
    return [{"type": "function", "function": {"name": "f", **function}}]


@pytest.mark.parametrize(
    "tools, choice, kind, problem",
    [
        (5, None, TypeError, None),
        ({"type": "function"}, None, sluice.DataError, "^tools: tool 1: is not an object"),
        (["f"], None, sluice.DataError, "^tools: tool 1: is not an object"),
        (tool() * 2, None, sluice.DataError, "tool 2: f is the name of an earlier tool"),
        (tool(name="a b"), None, sluice.DataError, "tool 1: name is not 1 to 64"),
        (tool(parameters={"type": 1}), None, sluice.DataError, "^tools: f: parameters: #/type"),
        (tool(parameters={"type": "null"}), None, sluice.DataError, "allows no object"),
        (tool(parameters={"$ref": "http://x"}), None, sluice.UnsupportedError, "f: parameters"),
        (tool(description={1, 2}), None, TypeError, "^tools: .* set"),
        (tool(x=float("nan")), None, ValueError, "^tools: "),
        (tool(x=deep(200)), None, sluice.DataError, "nested more than 100 levels deep"),
        (tool(x=deep(100_000)), None, ValueError, "^tools: "),
        (tool(x=circle()), None, ValueError, "^tools: "),
        (tool(description="\ud800"), None, sluice.DataError, "half of a surrogate pair"),
        (tool(), "g", ValueError, '^tool_choice: "g" is not auto'),
        ([], "auto", ValueError, "^tool_choice: needs tools"),
        (tool(), 5, TypeError, None),
    ],
)
def test_wrong_tools_are_refused(folder, tools, choice, kind, problem):
    with sluice.load(folder / "hermes.gguf") as model:
        with pytest.raises(kind, match=problem):
            model.chat_prompt(ASKED, tools=tools, tool_choice=choice)
        assert model.chat_prompt(ASKED, tools=tool())  # and nothing else is


@pytest.mark.parametrize(
    "message, kind, problem",
    [
        ({"role": "tool", "content": "x"}, sluice.DataError, "message 2: role tool: there is no"),
        ({"role": "assistant", "tool_calls": [1]}, sluice.DataError, "call 1 is not an object"),
        ({"role": "assistant", "tool_calls": {1, 2}}, TypeError, "tool_calls: .* set"),
        ({"role": "assistant", "tool_calls": deep(100_000)}, ValueError, "tool_calls"),
        ("x", TypeError, "messages: is not a list"),
        (5, TypeError, None),
    ],
)
def test_wrong_messages_are_refused(folder, message, kind, problem):
    with sluice.load(folder / "hermes.gguf") as model:
        with pytest.raises(kind, match=problem):
            model.chat_prompt([*ASKED, message])


def test_arguments_that_exclude_tools(folder):
    with sluice.load(folder / "hermes.gguf") as model:
        prompt = model.chat_prompt(ASKED, tools=TOOLS)
        for arguments in ({"grammar": 'root ::= "x"'}, {"regex": "x"}, {"json_schema": {}}):
            with pytest.raises(ValueError, match="not with tools"):
                model.generate(prompt, **arguments)
        with pytest.raises(ValueError, match="complete: not with stop"):
            model.generate(prompt, complete=True, stop="x")
        with pytest.raises(sluice.DataError, match="more than 20"):
            model.generate(prompt, context_size=20)


def test_models_whose_template_knows_no_tools(folder):
    for name, problem in (("chatml", "does not know tools"), ("none", "has no chat template")):
        with sluice.load(folder / f"{name}.gguf") as model:
            with pytest.raises(sluice.UnsupportedError, match=problem):
                model.chat_prompt(ASKED, tools=TOOLS)
            assert model.chat_prompt(ASKED, tools=TOOLS, template="hermes")
    model.close()
    with pytest.raises(ValueError, match="is closed"):
        model.chat_prompt(ASKED, tools=TOOLS, template="hermes")


def test_arguments_are_nested_as_deeply_as_messages_may_be():
    call = sluice.Call("f", json.dumps(deep(200)), "a1")
    with pytest.raises(sluice.DataError, match="^arguments of f: .*nested too deeply"):
        _ = call.arguments
    assert call == ("f", call.json, "a1") and sluice.Call("f", "{}", "").arguments == {}


def test_calls_of_a_real_model_are_those_of_generate(smollm2, folder):
    with sluice.load(smollm2) as model:
        with pytest.raises(sluice.UnsupportedError, match="does not know tools"):
            model.chat_prompt(ASKED, tools=TOOLS)
        asked = [{"role": "user", "content": "Measure 20 in Celsius."}]
        prompt = model.chat_prompt(asked, tools=TOOLS, tool_choice="measure", template="hermes")
        answer = model.generate(prompt, seed=1, temperature=0.3, max_tokens=100)
        assert "".join(answer) == "" and answer.calls[0].arguments["unit"] in ("C", "F")
    options = ["--template", "hermes", "--tool-choice", "measure", "-S", 1, "-t", 0.3, "-n", 100]
    assert printed(folder, smollm2, *options, messages=asked) == (answer.message, 0)
