"""Question files: what is read, what is refused and by which name, what is kept of them, and the
tokens they become.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chat_model import write_chat_model
from conftest import ROOT, SPAM_MODEL, ids_in, run
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import gguf, yamlfile
from sluice.faults import Error
from sluice.kernels import lib
from sluice.question import prompt, question, templates
from sluice.tokenizer import vocabulary

GOOD = """\
input: {kind: text, head_ids: 20, tail_ids: 10}
prompt:
  - special: "<s>"
  - text: "Is it?\\n"
  - input
answers: {yes: ["yes", " yes"], no: ["no"]}
thresholds: {yes: 0.9}
calibration: {scale: 2, bias: {no: -0.5}}
"""


def read(tmp_path, text):
    path = tmp_path / "q.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return question.read(str(path))


def test_fields_are_those_of_the_file(tmp_path):
    q = read(tmp_path, GOOD)
    assert (q.kind, q.fold, q.head_ids, q.tail_ids, q.model, q.frame) == (
        "text",
        False,
        20,
        10,
        None,
        None,
    )
    assert q.prompt == [("special", "<s>"), ("text", "Is it?\n"), ("input", "")]
    assert q.answers == {"yes": ["yes", " yes"], "no": ["no"]} and list(q.answers) == ["yes", "no"]
    assert (
        q.thresholds == {"yes": 0.9, "no": 0.0}
        and q.scale == 2.0
        and q.bias == {"yes": 0.0, "no": -0.5}
    )
    assert q.tokenisations == "all"


@pytest.mark.parametrize("name", ["spam", "language-is-english", "urgent", "sentiment"])
def test_shipped_questions_are_found_by_name_and_are_sound(name):
    path = question.find(name)
    assert os.path.samefile(path, ROOT / "configs" / f"{name}.yaml")
    q = question.read(path)
    assert len(q.answers) >= 2 and all(0.5 <= t < 1 for t in q.thresholds.values())
    assert (
        question.find("./spam.yaml") == "./spam.yaml" and question.find("spam.yaml") == "spam.yaml"
    )


def test_unknown_names_are_refused_with_the_known_ones():
    for name in ("ham", "yesno", "../spam"[3:].upper(), ""):
        with pytest.raises(Error, match="language-is-english, sentiment, spam, urgent") as e:
            question.find(name)
        assert e.value.code == 66


def test_question_model_is_next_to_the_question_or_bundled(tmp_path):
    (tmp_path / "q.yaml").write_text("model: m.gguf\n" + GOOD)
    q = question.read(str(tmp_path / "q.yaml"))
    # nowhere: the message names the place beside the question
    assert question.model_path(q) == str(tmp_path / "m.gguf")
    q.model = "../x/m.gguf"
    assert question.model_path(q) == str(tmp_path / "../x/m.gguf")
    q.model = "gone/spam.gguf"  # a path means that file, and no other of its name
    assert question.model_path(q) == str(tmp_path / "gone/spam.gguf")
    q.model = "spam.gguf"
    assert question.model_path(q) == str(ROOT / "lib" / "sluice" / "data" / "spam.gguf")


BAD = {  # what is wrong: (line or text to replace, by what, words of the message)
    "unknown key": ("thresholds:", "treshold:", 'no key "treshold"'),
    "unknown key of input": (
        "head_ids: 20",
        "head_ids: 20, heads: 1",
        'input: there is no key "heads"',
    ),
    "missing input": (
        "input: {kind: text, head_ids: 20, tail_ids: 10}\n",
        "",
        "key input is missing",
    ),
    "missing head_ids": ("head_ids: 20, ", "", "input: the key head_ids is missing"),
    "kind": ("kind: text", "kind: html", "input.kind: is none of mail, text"),
    "kind is a list": ("kind: text", "kind: [text]", "input.kind"),
    "negative ids": ("head_ids: 20", "head_ids: -1", "input.head_ids"),
    "float ids": ("head_ids: 20", "head_ids: 20.5", "input.head_ids"),
    "bool ids": ("head_ids: 20", "head_ids: true", "input.head_ids"),
    "too many ids": ("head_ids: 20", "head_ids: 100000000", "input.head_ids"),
    "no ids": (
        "head_ids: 20, tail_ids: 10",
        "head_ids: 0, tail_ids: 0",
        "head_ids and tail_ids are both 0",
    ),
    "fold": ("kind: text", "kind: text, fold: maybe", "input.fold"),
    "no input segment": ("  - input\n", "", "input occurs 0 times"),
    "two input segments": ("  - input\n", "  - input\n  - input\n", "input occurs 2 times"),
    "segment": ("  - input\n", "  - inputs\n", "prompt, segment 3"),
    "segment of two": ('special: "<s>"', '{special: "<s>", text: "a"}', "prompt, segment 1"),
    "empty text": ('text: "Is it?\\n"', 'text: ""', "prompt, segment 2"),
    "number for text": ('text: "Is it?\\n"', "text: 12", "prompt, segment 2"),
    "prompt is a text": (
        'prompt:\n  - special: "<s>"\n  - text: "Is it?\\n"\n  - input',
        "prompt: input",
        "prompt: is not a list",
    ),
    "one answer": (', no: ["no"]', "", "answers: is not a mapping of 2"),
    "answers are a list": (
        '{yes: ["yes", " yes"], no: ["no"]}',
        "[yes, no]",
        "answers: is not a mapping",
    ),
    "spelling twice": (
        'no: ["no"]',
        'no: ["no", "yes"]',
        'answers.no: the spelling "yes" occurs twice; yes has it, too',
    ),
    "spelling twice in one": ('no: ["no"]', 'no: ["no", "no"]', "answers.no"),
    "empty spelling": ('no: ["no"]', 'no: [""]', "answers.no"),
    "no spelling": ('no: ["no"]', "no: []", "answers.no"),
    "spelling is true": ('no: ["no"]', "no: [true]", "answers.no"),
    "long spelling": ('no: ["no"]', f'no: ["{"n" * 257}"]', "answers.no: more than 256 bytes"),
    "answer with a blank": ("no: [", '"n o": [', "answers:"),
    "answer with a newline": ("no: [", '"n\\no": [', "answers:"),
    "answer called unsure": ("no: [", "unsure: [", "answers:"),
    "threshold": ("yes: 0.9", "yes: 1.1", "thresholds.yes"),
    "threshold is NaN": ("yes: 0.9", "yes: .nan", "thresholds.yes"),
    "threshold is infinite": ("yes: 0.9", "yes: 1e999", "thresholds.yes"),
    "threshold of none": ("yes: 0.9", "maybe: 0.9", 'thresholds: there is no key "maybe"'),
    "thresholds are a number": ("{yes: 0.9}", "0.9", "thresholds: is not a mapping"),
    "scale": ("scale: 2", "scale: 0", "calibration.scale"),
    "scale is infinite": ("scale: 2", "scale: .inf", "calibration.scale"),
    "bias": ("no: -0.5", "no: low", "calibration.bias.no"),
    "tokenisations": (
        "thresholds:",
        "tokenisations: some\nthresholds:",
        "tokenisations: is none of all, canonical",
    ),
    "frame": ("thresholds:", "frame: chatlm\nthresholds:", "frame: is none of auto, chatml"),
    "model": ("thresholds:", "model: 7\nthresholds:", "model: is not a text"),
    "model with NUL": ("thresholds:", 'model: "a\\0b"\nthresholds:', "model: has a NUL"),
    "surrogate": ('no: ["no"]', 'no: ["\\ud800"]', "q.yaml: "),
    "alias": ('no: ["no"]', "no: &a [x]\nframe: *a", "line 6: aliases and anchors"),
    "anchored key": ("thresholds:", "&a thresholds:", "line 7: a key that is not a word"),
    "tag": (
        "thresholds:",
        "model: !!python/object/apply:os.system [id]\nthresholds:",
        "line 7: the tag",
    ),
    "merge key": ("thresholds:", "<<: {frame: auto}\nthresholds:", 'no key "<<"'),
    "duplicate key": (
        "thresholds:",
        "prompt: [input]\nthresholds:",
        'line 7: the key "prompt" appears twice',
    ),
    "second document": ("calibration:", "---\ncalibration:", "a second document"),
    "deep": (
        "thresholds:",
        "frame: " + "[" * 5000 + "]" * 5000 + "\nthresholds:",
        "nested more than 8 deep",
    ),
    "deep block": (
        "thresholds:",
        "frame:\n" + "".join(" " * i + "a:\n" for i in range(1, 200)) + "thresholds:",
        "nested more than 8 deep",
    ),
    "deep list": (
        "thresholds:",
        "frame:\n  " + "- " * 5000 + "x\nthresholds:",
        "nested more than 8 deep",
    ),
    "unclosed": ("thresholds:", "frame: [\nthresholds:", "line "),
    "tab": ("thresholds:", "\tthresholds:", "line 7"),
    "control character": ("thresholds:", "frame: \x01\nthresholds:", "not"),
    "too large": ("thresholds:", "#" * 70000 + "\nthresholds:", "more than 65536 bytes"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_by_name(tmp_path, what):
    old, new, words = BAD[what]
    assert old in GOOD
    with pytest.raises(Error) as e:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert e.value.code == 65 and words in str(e.value) and "q.yaml" in str(e.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"--- \n...\n",
        b"yes",
        b"[]",
        b"\xff\xfe",
        b"a: \xff",
        b"\0" * 100,
        b"input: {",
        b"- input: 1",
    ],
)
def test_invalid_question_is_refused(tmp_path, data):
    with pytest.raises(Error) as e:
        read(tmp_path, data)
    assert e.value.code == 65


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_questions_are_read_or_refused(tmp_path_factory, data):
    text = GOOD
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.text(alphabet="{}[]:,-&*!|>'\"#%@ \n\t01yn.\u00e9", max_size=5))
            + text[at + data.draw(st.integers(0, 5)) :]
        )
    try:
        question.Question(yamlfile.parse(text.encode(), "x.yaml"), "x.yaml")
    except Error as e:
        assert e.code == 65 and str(e).startswith("x.yaml: ")


def test_words_of_yaml_1_1_are_words():
    tree = yamlfile.parse(
        b"yes: [no, on, Off, y, 1:30, 0x1F, 1_000, 0777, .5, 5., 'true', \"1\"]\n1: 2\ntrue: ~\n",
        "x",
    )
    assert tree == {
        "yes": ["no", "on", "Off", "y", "1:30", "0x1F", "1_000", "0777", ".5", "5.", "true", "1"],
        "1": 2,
        "true": None,
    }
    assert yamlfile.parse(b"[1, -2, 1.5, 1e3, true, false, null]", "x") == [
        1,
        -2,
        1.5,
        1000.0,
        True,
        False,
        None,
    ]


# What is kept of a question.


def kept(directory):
    return (
        sorted(p for p in directory.iterdir() if p.suffix == ".question")
        if directory.exists()
        else []
    )


def test_parsed_question_is_cached_by_content_without_yaml(tmp_path):
    path, cache = tmp_path / "q.yaml", tmp_path / "c"
    path.write_text(GOOD)
    code = (
        "import sys; from sluice.question import question; q = question.read(sys.argv[1], sys.argv[2]); "
        "print(sorted(vars(q).items()), 'yaml' in sys.modules)"
    )
    python = lambda: subprocess.run(
        [sys.executable, "-c", code, path, cache], capture_output=True, check=True
    ).stdout.decode()
    cold, warm = python(), python()
    assert (
        cold.endswith("True\n")
        and warm == cold.replace("True\n", "False\n")
        and len(kept(cache)) == 1
    )
    path.write_text(GOOD.replace("0.9", "0.8"))
    assert "'yes': 0.8" in python() and len(kept(cache)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        "garbage",
        "cut",
        "bit",
        "other",
        "number",
        "object",
        "tree",
        "huge number",
        "deep",
        "writable",
        "link",
        "directory",
    ],
)
def test_damaged_or_planted_cached_question_is_not_used(tmp_path, damage):
    path, cache = tmp_path / "q.yaml", tmp_path / "c"
    path.write_text(GOOD)
    question.read(str(path), str(cache))
    (file,) = kept(cache)
    whole = lambda data: b"%08x\n" % lib.crc32c(0, data, len(data)) + data
    planted = whole(file.read_bytes()[9:].replace(b"0.9", b"0.1"))
    if damage == "writable":
        file.write_bytes(planted)
        file.chmod(0o666)
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(planted)
        file.unlink()
        file.symlink_to(tmp_path / "elsewhere")
    elif damage == "directory":
        file.write_bytes(planted)
        cache.chmod(0o777)
    else:
        head, _, tail = file.read_bytes()[9:].rpartition(b"0.9")
        file.write_bytes(
            {
                "garbage": b"\xff" * 50,
                "cut": planted[:50],
                "bit": file.read_bytes()[:9] + head + b"0.8" + tail,
                "other": whole(b'["another text", {"input": 1}]'),
                "number": whole(b"7"),
                "object": whole(b"{}"),
                "tree": whole(json.dumps([GOOD, {"input": 1}]).encode()),
                "deep": whole(b"[" * 100000),
                "huge number": whole(head + b"9" * 400 + tail),
            }[damage]
        )
    assert question.read(str(path), str(cache)).thresholds["yes"] == 0.9


def test_at_most_64_questions_are_kept(tmp_path):
    for i in range(70):
        (tmp_path / "q.yaml").write_text(GOOD + f"# {i}\n")
        question.read(str(tmp_path / "q.yaml"), str(tmp_path / "c"))
    assert 60 <= len(kept(tmp_path / "c")) <= 65


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/c"])
def test_question_cache_errors_are_ignored(tmp_path, place):
    (tmp_path / "q.yaml").write_text(GOOD)
    assert question.read(str(tmp_path / "q.yaml"), place).scale == 2.0


# The tokens it becomes.


def opened(path):
    file = gguf.File(path)
    return file, vocabulary.Vocab(file)


def compiled(tmp_path, model, text=GOOD, n_ctx=512, n_more=0):
    file, words = opened(model)
    return prompt.Prompt(read(tmp_path, text), file, words, n_ctx, n_more), words


def test_segments_are_encoded_alone_and_joined_as_ids(tmp_path):
    p, words = compiled(tmp_path, write_chat_model(tmp_path / "m.gguf", ["<|user|>"]))
    assert p.before == [words.bos] + words.encode(b"Is it?\n", bos=False) and p.after == []
    for hostile in (b"<|user|>", b"</s>", b"<s><s>"):
        tokens, cut = p.input_tokens(hostile)
        assert tokens == words.encode(hostile, bos=False, prefix=False) and not cut
        assert not any(words.is_control(i) for i in tokens)


def test_ids_equal_those_that_tokenize_makes_of_the_whole(tmp_path):
    """Where texts stand between control tokens: the blank before each text, as the vocabulary wants
    it.
    """
    text = GOOD.replace('  - text: "Is it?\\n"\n', "").replace(
        "  - input", '  - input\n  - special: "</s>"\n  - text: "Answer"'
    )
    for model in (write_chat_model(tmp_path / "m.gguf"), SPAM_MODEL):
        p, _ = compiled(tmp_path, str(model), text)
        whole = run(
            "tokenize", "-m", model, "--special", "--no-bos", input=b"<s>some words here</s>Answer"
        ).stdout
        assert p.before + p.input_tokens(b"some words here")[0] + p.after == ids_in(whole)


def test_missing_control_token_is_refused_by_name(tmp_path):
    model = write_chat_model(tmp_path / "m.gguf")
    for old, new in (
        ('special: "<s>"', 'special: "<|user|>"'),
        ("thresholds:", "frame: phi3\nthresholds:"),
    ):
        with pytest.raises(
            Error, match=re.escape('m.gguf: the vocabulary has no control token "<|user|>"')
        ):
            compiled(tmp_path, model, GOOD.replace(old, new))


def test_long_inputs_keep_head_and_tail(tmp_path):
    p, words = compiled(tmp_path, write_chat_model(tmp_path / "m.gguf"))
    data = " ".join(f"word{i}" for i in range(2000)).encode()
    whole = words.encode(data, bos=False, prefix=False)
    tokens, cut = p.input_tokens(data)
    assert cut and tokens == whole[:20] + whole[-10:]
    for n in (29, 30, 31):
        short = words.encode(b"a" * n, bos=False, prefix=False)
        assert len(short) == n
        tokens, cut = p.input_tokens(b"a" * n)
        assert len(tokens) == min(n, 30) and cut == (n > 30)
    huge = data * 4000  # 40 MB: only its ends are encoded
    tokens, cut = p.input_tokens(huge)
    assert cut and tokens[:20] == whole[:20] and tokens[-10:] == whole[-10:]


def test_ends_without_the_middle_are_encoded_apart(tmp_path):
    p, words = compiled(tmp_path, write_chat_model(tmp_path / "m.gguf"))
    encode = lambda text: words.encode(text, bos=False, prefix=False)
    assert encode(b"y") + encode(b"es") != encode(b"yes")
    many = b"word " * 100
    for head, tail in (
        (b"y", b"es"),
        (b"", b"es"),
        (b"y", b""),
        (b"y", many),
        (many, b"es"),
        (many, many),
        (many * 4000, many * 4000),
    ):
        assert p.input_tokens(head, tail) == (
            encode(head[:5000])[:20] + encode(tail[-5000:])[-10:],
            True,
        )


def test_inputs_are_cut_to_the_context(tmp_path):
    model = write_chat_model(tmp_path / "m.gguf")
    n = len(compiled(tmp_path, model)[0].before)
    p, _ = compiled(tmp_path, model, n_ctx=n + 12, n_more=3)
    assert (p.head, p.tail) == (6, 3) and len(p.input_tokens(b"a" * 100)[0]) == 9
    with pytest.raises(Error, match="more than the context of"):
        compiled(tmp_path, model, n_ctx=n + 3, n_more=3)
    assert (
        prompt.fit(20, 10, 30) == (20, 10)
        and prompt.fit(0, 10, 5) == (0, 5)
        and prompt.fit(9, 0, 5) == (5, 0)
    )


FRAMED = GOOD.replace('  - special: "<s>"\n', "") + "frame: auto\n"
FRAMES = {  # name: control tokens, template, what tokenize --special makes the same tokens of
    "chatml": (
        ["<|im_start|>", "<|im_end|>"],
        None,
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama3": (
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        None,
        "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "phi3": (["<|user|>", "<|assistant|>", "<|end|>"], None, "<|user|>\nQ<|end|>\n<|assistant|>\n"),
    "sluice": (["<|user|>", "<|assistant|>"], None, "<|user|>\nQ</s><|assistant|>\n"),
    "mistral": (["[INST]", "[/INST]"], None, "[INST]Q[/INST]"),
    "zephyr": (
        [],
        "{% if x %}{{ '<|user|>\n' }}{{ '<|assistant|>' }}",
        "<|user|>\nQ</s>\n<|assistant|>\n",
    ),
    "llama2": ([], "{{ '[INST] ' + m + ' [/INST]' }}", "[INST] Q [/INST]"),
    "plain": ([], None, "Question: Q\nAnswer:"),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", FRAMES)
def test_auto_chooses_the_frame_of_the_vocabulary(tmp_path, name):
    control, template, whole = FRAMES[name]
    model = write_chat_model(tmp_path / "m.gguf", control, template)
    p, words = compiled(tmp_path, model, FRAMED.replace('"Is it?\\n"', '"Q"'))
    assert p.template == name
    tokens = ids_in(run("tokenize", "-m", model, "--special", input=whole.encode()).stdout)
    assert p.before[0] == tokens[0] == words.bos
    if control:  # else the input parts a text that tokenize reads as one
        assert p.before + p.after == tokens
    text = b"".join(words.bytes_of(i, special=True) for i in p.before + p.after)
    assert text.replace(b" ", b"") == ("<s>" + whole).replace(" ", "").encode()


def test_auto_finds_gemma(tmp_path):
    model = write_chat_model(tmp_path / "m.gguf", arch="gemma3", n_layer=6, type="f16")
    p, words = compiled(tmp_path, model, FRAMED)
    assert p.template == "gemma" and p.before[0] == words.bos
    assert [words.bytes_of(i, special=True) for i in p.before[:2]] == [b"<bos>", b"<start_of_turn>"]


def test_model_template_is_not_executed(tmp_path):
    template = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for i in range(10**12) %}x{% endfor %}"
        + "(" * 50000
    )
    p, _ = compiled(tmp_path, write_chat_model(tmp_path / "m.gguf", template=template), FRAMED)
    assert p.template == "plain"


def test_prompt_templates_can_all_be_named_and_the_last_fits_any_model():
    assert list(templates.TEMPLATES)[-1] == "plain"
    assert not any(
        kind == "special"
        for kind, _ in templates.TEMPLATES["plain"].before + templates.TEMPLATES["plain"].after
    )
    assert set(FRAMES) | {"gemma"} == set(templates.TEMPLATES)


def test_parsed_bundled_questions_are_bundled(tmp_path):
    def kept(directory):
        return {p.name: p.read_bytes() for p in Path(directory).glob("*" + question.SUFFIX)}

    question.write_bundled(str(tmp_path))
    assert kept(question.DATA) == kept(tmp_path) and len(kept(tmp_path)) == 4, (
        'configs/ changed: .venv/bin/python3 -c "from sluice.question import question; question.write_bundled()"'
    )
