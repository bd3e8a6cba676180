"""classify --rules and --explain-header: one message, many, JSON and --pass-through."""

import json
import re

import pytest
from classify_call import write_question
from conftest import ROOT
from forked import run

MAILS = sorted((ROOT / "tests/mails").glob("*.eml"))
RULES = """
rules:
  - {rule: list, answer: spam, list-id: ilug.linux.ie}
  - {rule: sender, answer: no, sender: "@aol.com"}
  - {rule: net, answer: yes, client: 192.0.2.0/24}
"""
RULED = {"ham-mutt": ("yes", "list"), "spam-cards": ("no", "sender")}

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "r.yaml").write_text(RULES)
    return tmp_path / "r.yaml"


def classify(*argv, code=None, **kwargs):
    done = run("classify", "--no-cache", *argv, **kwargs)
    assert code is None or done.returncode == code, done.stderr
    return done


def mail(stem):
    return (ROOT / f"tests/mails/{stem}.eml").read_bytes()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stem", RULED)
def test_one_message(rules, stem):
    answer, rule = RULED[stem]
    code = 0 if answer == "yes" else 1
    model = classify("--long", input=mail(stem)).stdout.split()[2:]
    done = classify("--rules", rules, input=mail(stem), code=code)
    assert done.stdout == f"{answer} 1.000\n".encode()
    done = classify("--rules", rules, "--long", input=mail(stem), code=code)
    want = [
        answer.encode(),
        b"1.0000" if code == 0 else b"0.0000",
        *model,
        b"rule=" + rule.encode(),
    ]
    assert done.stdout.split() == want
    found = json.loads(classify("--rules", rules, "--json", input=mail(stem), code=code).stdout)
    assert (found["answer"], found["rule"], found["ids"]) == (answer, rule, 0)
    assert found["p"] == {"yes": float(code == 0), "no": float(code)}


@pytest.mark.full
def test_message_that_no_rule_matches_is_judged_as_without_rules(rules):
    for stem in ("ham-apt", "spam-investment"):
        for option in ("--long", "--mass"):
            options = (option,) if option == "--long" else ("--json", "--mass")
            with_rules = classify("--rules", rules, *options, input=mail(stem)).stdout
            without = classify(*options, input=mail(stem)).stdout
            strip = lambda line: re.sub(rb'"ms": [\d.]+', b"", line)
            assert strip(with_rules) == strip(without)


def test_client_is_given(rules):
    done = classify(
        "--rules", rules, "--client", "192.0.2.1", "--long", input=mail("ham-apt"), code=0
    )
    assert done.stdout.startswith(b"yes 1.0000 ") and done.stdout.endswith(b" rule=net\n")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", [(), ("--json",), ("--select", "yes")], ids=str)
def test_many_messages(rules, form):
    plain = classify(*form, *MAILS).stdout.decode().splitlines()
    found = classify("--rules", rules, *form, *MAILS).stdout.decode().splitlines()
    if form == ("--select", "yes"):
        yes = {line.split("/")[-1] for line in found}
        assert (
            "ham-mutt.eml" in yes and "spam-cards.eml" not in yes and "spam-cards.eml" in str(plain)
        )
        return
    assert len(found) == len(plain) == len(MAILS)
    for path, line, before in zip(MAILS, found, plain):
        if path.stem not in RULED:
            assert line == before
        elif form:
            assert (json.loads(line)["answer"], json.loads(line)["rule"]) == RULED[path.stem]
        else:
            assert line.split("\t")[1:] == [RULED[path.stem][0], "1.000"]


def test_json_lines_of_messages_and_an_empty_one(rules):
    lines = [{"id": p.stem, "text": p.read_bytes().decode("latin-1")} for p in MAILS]
    lines.insert(2, {"id": "none", "text": ""})
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = classify("--rules", rules, "--jsonl", "--mail", input=text, code=65)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["id"] for o in found] == [line["id"] for line in lines]
    assert {o["id"]: (o["answer"], o["rule"]) for o in found if "rule" in o} == RULED
    assert "error" in found[2]


def test_pass_through_names_the_rule_and_explains(rules):
    done = classify("--rules", rules, "--pass-through", input=mail("ham-mutt"), code=0)
    head = done.stdout.split(b"\n\n")[0].decode()
    assert re.search(
        r"^X-Spam-Status: Yes, score=1\.0000 required=0\.\d+ model=\w+ rule=list$", head, re.M
    )
    assert "X-Spam-Explain" not in head
    options = ("--rules", rules, "--pass-through", "--explain-header")
    for stem, rule in (("ham-mutt", "list"), ("ham-apt", "none")):
        head = classify(*options, input=mail(stem), code=0).stdout.split(b"\n\n")[0].decode()
        (why,) = re.findall(r"^X-Spam-Explain: (.*)$", head, re.M)
        number = "none" if rule == "list" else r"-\d\.\d\d"
        assert re.fullmatch(
            rf"model={number} tokens=(none|\+0\.00) taught=0 rule={rule} signals=[a-z:,-]+", why
        )


def test_explanation_adds_up_to_the_answer(tmp_path):
    """model + tokens are the log-odds of the printed probability."""
    import math

    file = tmp_path / "c"
    for stem, answer in (("ham-apt", "yes"), ("ham-mutt", "yes"), ("spam-cards", "no")):
        classify("--calibration", file, "--learn", answer, input=mail(stem), code=0)
    options = ("--calibration", file, "--long", "--explain-header")
    line = classify(*options, input=mail("spam-investment")).stdout.decode().split()
    words = dict(word.split("=") for word in line[4:])
    p = float(line[1])
    assert words["taught"] == "3" and float(words["tokens"]) != 0
    total = float(words["model"]) + float(words["tokens"])
    assert abs(total - math.log(p / (1 - p))) < 0.02 + 1e-4 / (p * (1 - p))


def test_authserv_ids_of_the_command_are_those_of_signals_and_rules(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "rules:\n- {rule: ok, answer: no, domain: example.org, authenticated: true}\n"
    )
    data = b"Authentication-Results: mx.example; dmarc=pass\nFrom: a@example.org\n\nText.\n"
    ids = ("--authserv-id", "other.example", "--authserv-id", "MX.example")
    options = ("--rules", tmp_path / "r.yaml", "--long", "--mail")
    done = classify(*options, *ids, "--explain-header", input=data, code=1)
    assert done.stdout.endswith(b" rule=ok model=none tokens=none taught=0 signals=dmarc:pass\n")
    done = classify(*options, *ids[:2], input=data)
    assert b"rule=" not in done.stdout
    done = classify(*options, input=data, code=65)
    assert b"r.yaml: line 2: authenticated: needs a server to trust, --authserv-id" in done.stderr


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(
    "options, word",
    [
        (("--client", "192.0.2.1"), b"--client: needs --rules"),
        (("--learned-by", "ann"), b"--learned-by: needs --learned-in"),
        (("--explain-header",), b"--explain-header: needs"),
        (("--rules", "r.yaml", "--learn", "yes"), b"exclude each other"),
        (("--rules", "r.yaml", "--forget"), b"exclude each other"),
        (("--rules", "r.yaml", "--why"), b"exclude each other"),
        (("--rules", "r.yaml", "--receipt", "f"), b"exclude each other"),
        (("--rules", "r.yaml", "--verify", "f"), b"exclude each other"),
        (("--rules", "r.yaml", "--evaluate", "x"), b"exclude each other"),
        (("--rules", "r.yaml", "--fit", "x"), b"exclude each other"),
        (("--rules", "r.yaml", "--prior", "texts"), b"exclude each other"),
        (("--rules", "r.yaml", "-q", "spam", "-q", "urgent"), b"needs one question"),
        (("--learned-in", "d", "--learn", "yes"), b"exclude each other"),
        (("--learned-in", "d", "--no-calibration"), b"exclude each other"),
        (("--listen", "s", "--rules", "r.yaml", "--client", "x"), b"not with --listen"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_options_that_do_not_go_together(options, word, rules, tmp_path):
    done = classify(*options, input=b"x", code=64, cwd=tmp_path)
    assert word in done.stderr and done.stdout == b""


@pytest.mark.quick_cases(1)
def test_rules_are_for_messages(rules, tmp_path, models):
    path = write_question(
        tmp_path / "q.yaml", input={"kind": "text", "head_ids": 60, "tail_ids": 20}
    )
    options = ("--rules", rules, "-m", models / "llama.gguf", "-q", path)
    done = classify(*options, input=b"some text", code=64)
    assert b"--rules: for messages; give --mail" in done.stderr


def test_bad_rules_end_the_command_and_pass_the_message(tmp_path):
    (tmp_path / "r.yaml").write_text("rules: 1\n")
    done = classify("--rules", tmp_path / "r.yaml", input=mail("ham-apt"), code=65)
    assert done.stdout == b"" and done.stderr.count(b"\n") == 1
    done = classify("--rules", tmp_path / "r.yaml", "--pass-through", input=mail("ham-apt"), code=0)
    assert b"X-Spam-Status: unchecked; reason=model\n" in done.stdout
