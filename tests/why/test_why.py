"""classify --why: each span of a text is left out in turn, and what is printed is the difference of
two verdicts that anybody can ask for; nothing in a text gets out of the terminal or the page.
"""

import html
import itertools
import json
import math
import os
import pty
import re

import browser
import pytest
from classify_call import ALIKE, TEXT, classify, opened, run_measured, write_question
from conftest import ROOT, run

from sluice import htmlpage
from sluice.classify.classifier import Classifier
from sluice.faults import Error
from sluice.question import question
from sluice.texts import inputs
from sluice.why import spans, terminal, why

pytestmark = pytest.mark.usefixtures("home")
MAILS = sorted((ROOT / "tests" / "mails").glob("*.eml"))
LINES = b"The meeting has moved.\nPlease bring the numbers!\n\nIs it today? Yes.\nThanks.\n"
SENTENCES = b"The meeting has moved. Please bring the numbers! Is it today? Yes."
BUY = b"Buy now!\nWe met last week.\nOnly today, at a low price!\nThe minutes are ready.\n"
PLANTED = (
    b"Buy cheap Viagra and Cialis online, no prescription, lowest prices!",
    b"Congratulations, you have won $1,000,000 in our lottery! Click here to claim your prize.",
    b"Increase your revenues by accepting credit cards, call now toll free!!!",
)


@pytest.fixture(scope="module")
def spam():
    """Classifier of the bundled question."""
    q = question.read(question.find("spam"))
    return Classifier(q, question.model_path(q), 2)


def single(c, text):
    """The log probabilities of a text that the prompt of `c` gets as it is, from a Classifier that
    has seen nothing else.
    """
    q = question.read(c.question.path) if c.question.path != "q.yaml" else c.question
    q.kind, q.fold = "text", False
    return Classifier(q, c.model.file.path, 1).ask(text).log_p


# The numbers.


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt": [{"special": "<s>"}, "input", {"text": " Is it? Say yes or no."}]},
        {"prompt": ["input"], "tokenisations": "canonical"},
        {"answers": ALIKE},
        {"input": {"kind": "text", "head_ids": 20, "tail_ids": 9}},
    ],
    ids=["plain", "text first", "text alone", "tree", "truncated"],
)
@pytest.mark.parametrize("text", [LINES, SENTENCES, TEXT * 20], ids=["lines", "sentences", "long"])
def test_each_text_with_a_span_left_out_has_the_bits_of_its_own_verdict(models, changes, text):
    c = opened(models, **changes)
    w = why.explain(c, text)
    parts = w.spans.texts
    assert b"".join(parts) == text and len(parts) > 2
    assert w.verdict.log_p == opened(models, **changes).ask(text).log_p
    for i, v in enumerate(w.verdicts):
        left = b"".join(parts[:i] + parts[i + 1 :])
        alone = opened(models, **changes).ask(left)
        assert (v.log_p, v.mass, v.answer) == (alone.log_p, alone.mass, alone.answer), i
        assert (v.n_tokens, v.cut) == (alone.n_tokens, alone.cut)
        assert w.effects[i] == w.score - why.log_odds(c, alone, w.of)
    assert c.ask(text).log_p == w.verdict.log_p  # what is kept of the prompt is unharmed


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("mail", MAILS, ids=lambda path: path.stem)
def test_of_a_message_the_text_that_its_reader_sees_is_cut(spam, mail):
    data = mail.read_bytes()
    w = why.explain(spam, data)
    assert w.verdict.log_p == spam.ask(data).log_p
    shown = run("mail-text", input=data).stdout
    blank = lambda text: [line for line in text.splitlines() if line.strip()]
    assert blank(b"".join(w.spans.texts)) == blank(shown)
    assert w.spans.without(())[0] == run("mail-text", "--normalize", input=data).stdout
    for i in range(0, len(w.effects), 3):
        assert single(spam, w.spans.without([i])[0]) == w.verdicts[i].log_p


@pytest.mark.full
@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_bits_of_real_models(request, model):
    path = str(request.getfixturevalue(model))
    c, alone = (Classifier(question.read(question.find("urgent")), path, n) for n in (2, 1))
    w = why.explain(c, LINES)
    for i, v in enumerate(w.verdicts):
        parts = w.spans.texts[:i] + w.spans.texts[i + 1 :]
        assert v.log_p == alone.ask(b"".join(parts)).log_p, i


def test_dropping_a_line_of_the_head_drops_it_alone(spam):
    mail = b"From: Ann <a@b.example>\nSubject: Hi\n\nSee http://c.example/ and reply.\nBye.\n"
    s = spans.Spans(mail, True, True)
    assert [t.split(b":")[0] for t in s.texts] == [
        b"From",
        b"Subject",
        b"Links",
        b"See http",
        b"Bye.",
    ]
    assert b"Subject" not in s.without([1])[0] and b"ann" in s.without([1])[0]
    assert b"Links" not in s.without([2])[0] and b"c . example" in s.without([2])[0]
    assert s.without([0, 1, 2])[0].startswith(b"see http")


@pytest.mark.parametrize("text", PLANTED, ids=["pills", "lottery", "cards"])
@pytest.mark.parametrize("mail", [m for m in MAILS if "ham" in m.stem], ids=lambda path: path.stem)
def test_planted_sentence_speaks_loudest_for_spam(spam, mail, text):
    head, _, body = mail.read_bytes().partition(b"\n\n")
    for at in (0, 3, 6):
        lines = body.split(b"\n")
        lines.insert(at, b"\n" + text + b"\n")
        w = why.explain(spam, head + b"\n\n" + b"\n".join(lines))
        for_spam = [x if w.of == "yes" else -x for x in w.effects]
        assert text in w.spans.texts[for_spam.index(max(for_spam))], at


def test_together_is_the_text_against_no_text(models):
    c = opened(models)
    w = why.explain(c, LINES)
    assert w.together == w.score - w.without
    asked = why.Asked(c, w.spans)
    (nothing,) = asked.verdicts([range(len(w.effects))])
    assert nothing.n_tokens == len(c.prompt.before) + len(c.prompt.after)
    assert why.log_odds(c, nothing, w.of) == w.without
    alone = opened(models, prompt=["input"])  # there is no prompt that is left
    assert why.explain(alone, LINES).without is None


def test_log_odds_are_exact_where_the_probability_is_1(models):
    c = opened(models)
    v = c.ask(TEXT)
    v.log_p = [-1e-30, -60.0]
    c.evaluate(v)
    assert v.scores["yes"] == 1.0 and math.isclose(why.log_odds(c, v, "yes"), 60.0)


def test_order_of_the_questions_to_the_model_does_not_matter(models):
    """Texts that share less with the whole one than those before, and more."""
    c = opened(models)
    s = spans.Spans(LINES * 4, False, False)
    n = len(s.texts)
    sets = [[i] for i in range(n)] + [[i, i + 1] for i in range(0, n - 1, 2)] + [[0], [n - 1], []]
    asked = why.Asked(c, s)
    found = [v.log_p for left_out in sets for v in asked.verdicts([left_out])]
    assert found == [v.log_p for v in why.Asked(c, s).verdicts(sets)]
    assert found == [v.log_p for v in why.Asked(c, s).verdicts(sets[::-1])][::-1]


# Counterfactuals.


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("mail", MAILS, ids=lambda path: path.stem)
def test_counterfactual_changes_the_answer_and_needs_each_of_its_spans(spam, mail):
    w = why.explain(spam, mail.read_bytes(), counterfactual=True)
    if w.counterfactual is None:
        speaks = [i for i, x in enumerate(w.effects) if x > 0]
        without = why.Asked(spam, w.spans).verdicts([speaks])[0]
        assert without.answer == w.verdict.answer
        return
    numbers, v = w.counterfactual
    asked = why.Asked(spam, w.spans)
    assert asked.verdicts([numbers])[0].log_p == v.log_p and v.answer != w.verdict.answer
    for i in numbers:
        rest = [k for k in numbers if k != i]
        assert asked.verdicts([rest])[0].answer == w.verdict.answer


@pytest.mark.full
def test_counterfactual_takes_two_evaluations_a_span_at_most(spam, monkeypatch):
    asked = []
    verdicts = why.Asked.verdicts

    def counted(self, sets, *rest):
        asked.extend(sets)
        return verdicts(self, sets, *rest)

    monkeypatch.setattr(why.Asked, "verdicts", counted)
    for mail in MAILS:
        asked.clear()
        w = why.explain(spam, mail.read_bytes(), counterfactual=True)
        n = len(w.effects)
        assert len(asked) <= n + 2 + 2 * n


# Where a text is cut.


@pytest.mark.parametrize(
    "text, kind, cut",
    [
        (b"a\nb\n", "lines", [b"a\n", b"b\n"]),
        (b"\n \na\n\n\nb", "lines", [b"\n \na\n\n\n", b"b"]),
        (b"a\r\n\r\nb\r\n", "lines", [b"a\r\n\r\n", b"b\r\n"]),
        (b"One. Two! Three", "sentences", [b"One. ", b"Two! ", b"Three"]),
        (b'"One." (Two?) e.g. this.', "sentences", [b'"One." ', b"(Two?) e.g. this."]),
        (b"\xe4\xb8\x80\xe3\x80\x82\xe4\xba\x8c", "sentences", None),
        (b"Only one\n", "sentences", [b"Only one\n"]),
        (b"No. 5 is 3.5 cm.", "sentences", [b"No. ", b"5 is 3.5 cm."]),
        (b"\0\0. \0", "sentences", [b"\0\0. ", b"\0"]),
        (b"\xff\xfe. \xff\n", "sentences", [b"\xff\xfe. ", b"\xff\n"]),
    ],
)
def test_spans_are_lines_or_else_sentences(text, kind, cut):
    s = spans.Spans(text, False, False)
    assert s.kind == kind and b"".join(s.texts) == text
    assert cut is None and len(s.texts) == 2 or s.texts == cut


def test_more_spans_than_500_are_neighbours_together():
    lines = [b"line %d\n" % i for i in range(1700)]
    s = spans.Spans(b"".join(lines), False, False)
    assert (len(s.texts), s.n_cut) == (500, 1700)
    assert b"".join(s.texts) == b"".join(lines)
    assert {t.count(b"\n") for t in s.texts} == {3, 4}
    few = spans.Spans(b"".join(lines[:40]), False, False, 10)
    assert [t.count(b"\n") for t in few.texts] == [4] * 10


def test_number_of_spans_can_be_chosen(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    done = classify(models, "-q", q, "--why", "--spans", 2, input=LINES)
    out = done.stdout.decode().splitlines()
    assert "each of 2 lines (of 4, neighbours together) left out" in out[1] and len(out) == 4
    assert classify(models, "-q", q, "--why", "--spans", 1, input=LINES).returncode == 64


HOSTILE = {
    "marks": b"." * 250_000,
    "quotes": b'."' * 125_000,
    "marks and quotes": b"." * 1000 + b'"' * 249_000,
    "spaces": b". " * 100 + b" " * 249_000,
    "spaces between": (b"." + b" " * 500 + b"a") * 500,
    "newlines": b"\n" * 250_000,
    "lines of spaces": (b" " * 500 + b"\n") * 500,
    "NUL": b"\0" * 250_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_to_cut_is_linear(name):
    """Some milliseconds. Where time is square in the length, it is minutes."""
    for cut in (b"", b"a\nb\n"):
        s = spans.Spans(cut + HOSTILE[name], False, False)
        assert b"".join(s.texts) == cut + HOSTILE[name]


def test_long_text_is_cut_at_both_ends(models):
    words = b"".join(b"Sentence number %d is here. " % i for i in range(40_000))
    data = words[: inputs.END_BYTES] + words[-inputs.END_BYTES - 1 :]
    c = opened(models)
    w = why.explain(c, data, n_spans=60)
    assert w.verdict.log_p == c.ask(data).log_p and w.verdict.cut
    assert len(w.effects) <= 60 < w.spans.n_cut
    # the prompt gets the first and the last tokens, and nothing of those between
    read = [i for i, x in enumerate(w.effects) if x]
    assert read and w.spans.unread not in read
    for i in (0, w.spans.unread, len(w.effects) - 1):
        text, rest = w.spans.without([i])
        alone = opened(models).text_of(text, rest, None)
        assert alone.tokens + c.prompt.after == why.Asked(c, w.spans)._text([i]).tokens
        assert len(text) + len(rest) < 2 * inputs.END_BYTES


# What is printed.


def test_first_line_and_status_are_those_without_it(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", thresholds={"yes": 0.3, "no": 0.3})
    plain, done = (classify(models, "-q", q, *a, input=LINES) for a in ((), ("--why",)))
    first, head, *rest = done.stdout.splitlines()
    assert (done.returncode, first, done.stderr) == (plain.returncode, plain.stdout[:-1], b"")
    assert head.startswith(b"log-odds of ") and b"each of 4 lines left out" in head
    assert len(rest) == 4 and rest[2].endswith(b" Is it today? Yes.")
    assert all(re.fullmatch(rb"[+-]\d+\.\d\d #* *[A-Z].*", line) for line in rest)


def test_top_is_the_largest_effects_first():
    mail = MAILS[4]
    every = json.loads(run("classify", "--why", "--json", mail).stdout)["why"]["spans"]
    top = json.loads(run("classify", "--why", "--json", "--top", 3, mail).stdout)["why"]["spans"]
    assert [s["span"] for s in every] == list(range(1, len(every) + 1))
    assert top == sorted(every, key=lambda s: -abs(s["effect"]))[:3]
    shown = run("classify", "--why", "--top", 3, mail).stdout.splitlines()[2:]
    assert [float(line.split()[0]) for line in shown] == [round(s["effect"], 2) for s in top]


def test_json_has_the_numbers_and_all_there_is_to_say():
    plain = json.loads(run("classify", "--json", MAILS[3]).stdout)
    found = json.loads(run("classify", "--why", "--json", "--counterfactual", MAILS[4]).stdout)
    w = found["why"]
    assert set(plain) < set(found)
    assert w["of"] == "yes" and w["kind"] == "lines" and w["n"] == len(w["spans"]) == w["n_cut"]
    assert math.isclose(w["together"], w["log_odds"] - w["without_text"], abs_tol=1e-5)
    assert math.isclose(w["sum"], sum(s["effect"] for s in w["spans"]), abs_tol=1e-4)
    assert w["counterfactual"]["answer"] != found["answer"]
    p = found["p"]["yes"]
    assert math.isclose(w["log_odds"], math.log(p / (1 - p)), abs_tol=1e-3)


CONTROL = (
    b"\x1b[2J\x1b]0;title\x07 one\x7f\x9b\nt\xc2\x9bwo \xe2\x80\xae\xe2\x80\x8b\t\xff\n\0\r\nend\n"
)


def test_no_control_character_reaches_the_terminal(models, tmp_path):
    q = write_question(tmp_path / "q.yaml")
    out = classify(models, "-q", q, "--why", "--counterfactual", input=CONTROL).stdout.decode()
    assert all(line.isprintable() for line in out.split("\n"))
    assert "^[[2J^[]0;title^G one^?" in out and "\\u202e\\u200b" in out


def coloured(argv, stdin, **env):
    """The output of classify on a terminal."""
    leader, follower = pty.openpty()
    with open(stdin, "rb") as f:
        run("classify", *argv, stdin=f, stdout=follower, env={**os.environ, **env})
    os.close(follower)
    out = b""
    try:
        while data := os.read(leader, 65536):
            out += data
    except OSError:
        pass
    os.close(leader)
    return out


@pytest.mark.full
def test_colours_are_for_terminals_that_want_them(tmp_path):
    (tmp_path / "t").write_bytes(BUY)
    argv = ("--why",)
    on = coloured(argv, tmp_path / "t", TERM="xterm", NO_COLOR="")
    assert terminal.GREEN.encode() in on and terminal.RESET.encode() in on
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\033[" not in coloured(argv, tmp_path / "t", **{"TERM": "xterm", **env})
    assert (
        b"\033["
        not in run("classify", "--why", input=BUY, env={**os.environ, "TERM": "xterm"}).stdout
    )


def test_of_a_long_text_the_middle_is_one_span(models):
    c = opened(models, input={"kind": "text", "head_ids": 120, "tail_ids": 80})
    lines = [b"Line number %d of the text.\n" % i for i in range(400)]
    w = why.explain(c, b"".join(lines))
    at = w.spans.unread
    assert w.verdict.cut and 3 <= at < len(w.effects) - 3 < 40
    assert w.spans.texts[:3] == lines[:3] and w.spans.texts[-3:] == lines[-3:]
    assert w.spans.n_unread == 400 - len(w.effects) + 1 and w.effects[at] == 0
    shown = terminal.lines(w).decode().splitlines()[1:]
    assert f"({w.spans.n_unread} lines in the middle, which the prompt leaves out)" in shown[at]
    found = terminal.fields(w)["spans"][at]
    assert found["text"] is None and found["left_out_by_prompt"] == w.spans.n_unread


def test_small_effects_have_small_bars(models):
    c = opened(models)
    w = why.explain(c, LINES)
    w.effects = [0.04, -0.5, 0.0, 3.0]
    bars = [line.split()[1] for line in terminal.lines(w).decode().splitlines()[1:]]
    assert [bar.count("#") for bar in bars] == [0, 2, 0, 10]


# The page.

INJECTED = b"""<script>document.title = 'changed'</script><img src=http://a.example/x onerror=alert(1)>
</mark></table></body><style>* { display: none }</style>
" onmouseover="alert(1)' <b>bold</b> &amp; &lt;
<meta http-equiv=refresh content="0; url=http://a.example/">
\x1b[31mred \xe2\x80\xae
\0
"""


def page_of(tmp_path, *argv, data=BUY + INJECTED, name="why.html"):
    """The page of a message if `data` is one; else of a text, by the same model."""
    if b"Subject:" not in data:
        text = (ROOT / "configs" / "spam.yaml").read_text().replace("kind: mail", "kind: text")
        model = ROOT / "lib" / "sluice" / "data" / "spam.gguf"
        (tmp_path / "q.yaml").write_text(text.replace("fold: true", "fold: false"))
        argv = ("-q", tmp_path / "q.yaml", "-m", model, *argv)
    done = run("classify", "--why", "--html", tmp_path / name, *argv, input=data)
    assert done.returncode in (0, 1, 2), done.stderr
    return tmp_path / name


def test_page_is_private_escaped_and_the_same_each_time(tmp_path):
    path = page_of(tmp_path)
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert page_of(tmp_path, name="again.html").read_text() == text
    assert html.escape(htmlpage.POLICY) in text
    body = text.partition("<body>")[2]
    tags = set(re.findall(r"</?([a-z0-9]+)", body))
    assert tags == {"main", "h1", "h2", "p", "b", "div", "mark", "table", "caption", "thead", "tbody",
                    "tr", "th", "td", "body", "html"}  # fmt: skip
    assert set(re.findall(r"<[^>]* ([a-z-]+)=", body)) == {"class", "title"}
    assert all(line.isprintable() for line in text.split("\n"))
    assert "http://a.example" in html.unescape(body) and "^[[31mred" in body


def test_page_has_each_span_marked_by_size_and_sign(tmp_path):
    path = page_of(tmp_path, "--counterfactual", "--top", "2", data=MAILS[4].read_bytes())
    found = json.loads(run("classify", "--why", "--json", MAILS[4]).stdout)["why"]
    marks = re.findall(r'<mark(?: class="([af]\d)")? title="([+-][0-9.]+)">', path.read_text())
    assert [float(x) for _, x in marks] == [round(s["effect"], 2) for s in found["spans"]]
    largest = max(found["spans"], key=lambda s: abs(s["effect"]))
    for name, x in marks:
        assert not name or (name[0] == "f") == (float(x) > 0)
    assert marks[largest["span"] - 1][0][1] == "9"
    assert path.read_text().count("<tr>") == 3 and "Without these 2 lines" in path.read_text()


@pytest.mark.full
def test_page_opens_without_a_word_to_console_or_network(tmp_path):
    lines = BUY + INJECTED + b"w" * 3000 + b"\n" + MAILS[0].read_bytes()
    path = page_of(tmp_path, "--counterfactual", data=b"Subject: " + b"x" * 500 + b"\n\n" + lines)
    shade = "e => getComputedStyle(e).backgroundColor"
    with browser.chromium() as b:
        for width, scheme in itertools.product(browser.WIDTHS, ("light", "dark")):
            opened = browser.Opened(b, path, width, scheme)
            assert opened.messages == [] and opened.requests == [], (width, scheme)
            assert opened.overflow() <= 0, (width, scheme)
            assert opened.page.title().startswith("Why ")
            marks = opened.page.query_selector_all("main .text mark")
            assert len(marks) > 10 and all(m.is_visible() for m in marks)
            assert len({m.evaluate(shade) for m in marks}) > 2
            if folder := os.environ.get("SLUICE_SCREENSHOTS"):  # to look at
                opened.screenshot(f"{folder}/why-{width}-{scheme}.png")


# Bad calls and hostile texts.


@pytest.mark.parametrize(
    "data", [b"One sentence", b"One sentence.\n", b"\0", b"\n\n\n", b"Subject: x\n\n"]
)
def test_text_of_one_span_is_refused(data):
    done = run("classify", "--why", input=data)
    assert (done.returncode, done.stdout) == (65, b"")
    assert re.search(rb"--why: the text has (no|1) span: nothing to compare\n", done.stderr)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    "argv",
    [
        ("--why", "--jsonl"),
        ("--why", "--each", "line"),
        ("--why", "--long"),
        ("--why", "--learn", "yes"),
        ("--why", "--verify", "R"),
        ("--why", "-q", "spam", "-q", "urgent"),
        ("--why", "--top", "0"),
        ("--why", "--top", "five"),
        ("--top", "5"),
        ("--spans", "5"),
        ("--counterfactual",),
        ("--html", "x.html"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, argv):
    done = run("classify", *argv, input=LINES, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, b"")
    assert done.stderr.count(b"\n") == 1 and not os.listdir(tmp_path / "home")


def test_page_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "t").write_bytes(LINES)
    for path, code in {"no/x.html": 73, ".": 73, "/dev/null": 73, "t": 64}.items():
        done = run("classify", "--why", "--html", path, "t", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, b""), path
    assert (tmp_path / "t").read_bytes() == LINES


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "data",
    [
        b"x" * 10_000_000,
        b"a sentence. " * 900_000,
        b"\0" * 1_000_000 + b"\n\0",
        bytes(range(256)) * 500,
        b"\n" * 100_000 + b"a\nb\n",
        b"<s></s>[INST]\n<|user|>\n\xed\xa0\x80\n",
    ],
    ids=["one line", "many sentences", "NUL", "all bytes", "newlines", "control tokens"],
)
def test_whatever_the_text_there_is_an_answer(models, tmp_path, data):
    q = write_question(tmp_path / "q.yaml", input={"kind": "text", "head_ids": 30, "tail_ids": 20})
    done = classify(models, "-q", q, "--why", "--top", 5, input=data)
    assert done.returncode in (0, 1) and done.stderr == b""
    assert len(done.stdout) < 20_000


@pytest.mark.full
def test_memory_does_not_grow_with_the_text(models, tmp_path):
    q = write_question(tmp_path / "q.yaml", input={"kind": "text", "head_ids": 30, "tail_ids": 20})
    peaks = []
    for n in (40_000, 900_000):
        (tmp_path / "t").write_bytes(b"a sentence. Another. " * n)
        with open(tmp_path / "t", "rb") as f:
            peaks.append(run_measured(models, ["-q", str(q), "--why"], f)[1])
    assert peaks[1] < peaks[0] + 10_000


def test_empty_text_is_refused_as_ever(models):
    with pytest.raises(Error, match="the input is empty"):
        why.explain(opened(models), b"")
