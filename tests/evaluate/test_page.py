"""The page of `classify --evaluate --html`: one file that asks for nothing, whatever the texts say,
and that can be read on a telephone and on a wide screen, light and dark.
"""

import html.parser
import json
import os
import re
import stat
import sys

import browser
import pytest
from classify_call import classify, write_models, write_question
from conftest import ROOT

from sluice.evaluate import plots
from sluice.faults import UnsupportedError

HOSTILE = [
    "</pre></article><script>window.hit = 1; console.log('script')</script>",
    '<img src="http://127.0.0.1:9/a.png" onerror="window.hit = 1"><svg/onload=window.hit=1>',
    "<!-- <style>* { display: none }</style> <link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    '" onmouseover="window.hit = 1" x=\'y\' & &amp; &#60;b&#62;',
    "\u202egnp.exe\u202c \u200b\u2066x\u2069 \x1b[31mred\x00\x07 \ud7ff \U000e0041",
    "word" * 2000,
    "ת א ב ג 日本語 👩\u200d🚀 é",
]
ANSWER = "<b>yes</b>&"
SIZES = [(width, scheme) for width in browser.WIDTHS for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    """A folder with two.html, hostile.html and many.html, evaluations of hostile texts and names."""
    d = tmp_path_factory.mktemp("pages")
    q = write_question(
        d / "q.yaml",
        answers={ANSWER: ["yes"], "no": ["no"]},
        thresholds={ANSWER: 0.505, "no": 0.505},
        calibration={"scale": 0.2},
    )
    other = d / "r.yaml"
    write_question(
        other, prompt=[{"text": "Yes? "}, "input"], answers={ANSWER: ["Yes"], "no": ["No"]}
    )
    for i in range(36):
        path = d / "set" / ("no" if i % 2 else "yes") / f"<script>{i}\n'\"&.txt"
        path = path if i % 5 else path.with_name(f"\udcff{i}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HOSTILE[i % len(HOSTILE)] + f" {i}")
    words = (f"{ANSWER}={d}/set/yes", f"no={d}/set/no")
    compared = (*words, "--compare", other)
    letters = [chr(97 + i) * 9 for i in range(12)]
    many = write_question(d / "many.yaml", answers={a: [a] for a in letters})
    lines = [{"text": HOSTILE[i % 7], "label": letters[i % 12]} for i in range(48)]
    (d / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, question, argv in (
        ("hostile", q, words),
        ("two", q, compared),
        ("many", many, [d / "t.jsonl"]),
    ):
        argv = ("--evaluate", "--text", "-q", question, "--html", d / f"{name}.html", *argv)
        done = classify(models, *argv)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
    return d


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as opened:
        yield opened


@pytest.mark.full
def test_the_page_is_private_and_replaced_as_a_whole(models, folder, tmp_path):
    page = tmp_path / "p.html"
    page.write_text("older")
    page.chmod(0o644)
    argv = ("--evaluate", "-q", folder / "many.yaml", folder / "t.jsonl", "--html", page)
    assert classify(models, *argv).returncode == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert page.read_bytes() == (folder / "many.html").read_bytes()  # the same bytes each time
    assert os.listdir(tmp_path) == ["p.html"]


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *a) for a in attrs]
        if tag not in ("meta", "path", "use"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *a) for a in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["hostile", "two", "many"])
def test_the_page_has_no_script_and_nothing_from_outside(folder, name):
    data = (folder / f"{name}.html").read_text()
    parser = Tags()
    parser.feed(data)
    assert not parser.open
    assert not set(parser.tags) & {"script", "img", "link", "iframe", "object", "a", "form", "base"}
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", "content", policy) in parser.attributes
    for tag, key, value in parser.attributes:
        assert not key.startswith("on")
        if key in ("href", "xlink:href", "src"):
            assert value.startswith("#"), (tag, key, value)
    style = data[data.index("<style>") : data.index("</style>")]
    assert "url(" not in style and "@import" not in style
    ids = [value for _, key, value in parser.attributes if key == "id"]
    assert len(ids) == len(set(ids)) > 20
    # what the plots refer to is there
    referred = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', data)
    assert {a or b for a, b in referred} <= set(ids)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["hostile", "two", "many"])
def test_the_page_is_quiet_and_fits(chromium, folder, name):
    opened = browser.Opened(chromium, folder / f"{name}.html")
    page, n_plots = opened.page, 4 if name == "two" else 3
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("figure svg").count() == n_plots
    for width, scheme in SIZES:
        opened.show(width, scheme)
        assert opened.overflow() <= 0
        for box in (page.locator("figure svg").nth(i).bounding_box() for i in range(n_plots)):
            assert 250 <= box["width"] <= width and box["height"] > 150
    assert page.evaluate("window.hit") is None
    assert (opened.messages, opened.requests) == ([], [])
    page.close()


CONTRAST = """() => {
    const channel = x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(x => channel(x / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const box = document.querySelector("figure");
    const ground = light(getComputedStyle(box).backgroundColor);
    const texts = [...document.querySelectorAll("figure svg text, figcaption, h3, pre, th, td")];
    return [texts.length, Math.min(...texts.map(t => ratio(ground,
        light(t.closest("svg") ? getComputedStyle(t).fill : getComputedStyle(t).color))))];
}"""


@pytest.mark.full
def test_texts_and_curves_stand_out_from_the_ground(chromium, folder):
    """By the contrast ratio of WCAG 2: 4.5 for text, 3 for what must be seen of a picture."""
    opened = browser.Opened(chromium, folder / "two.html")
    variable = lambda name: opened.page.evaluate(
        f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
    )
    grounds = set()
    for scheme in ("light", "dark"):
        opened.show(1600, scheme)
        n_texts, least = opened.page.evaluate(CONTRAST)
        assert n_texts > 60 and least >= 4.5
        ground = variable("box")
        grounds.add(ground)
        assert all(contrast(variable(f"series-{i}"), ground) >= 3 for i in range(8))
    assert len(grounds) == 2
    opened.page.close()


def contrast(a, b):
    def light(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(a), light(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.full
def test_texts_are_shown_as_they_are_with_escapes_for_what_hides(chromium, folder):
    opened = browser.Opened(chromium, folder / "hostile.html")
    page = opened.page
    texts = page.locator("article pre").all_inner_texts()
    assert 5 <= len(texts) <= 20
    shown = "\n".join(texts)
    assert any(re.match(re.escape(HOSTILE[0]), text) for text in texts)
    assert any(text.startswith(HOSTILE[3]) for text in texts)
    assert "\\u202egnp.exe\\u202c \\u200b\\u2066x\\u2069 \\x1b[31mred\\x00\\x07" in shown
    assert HOSTILE[6] in shown
    assert max(map(len, texts)) <= 1600 and "The text goes on." in page.content()
    names = page.locator("article h3").all_inner_texts()
    assert any("<script>" in name and "\\n'\"&.txt" in name for name in names)
    assert page.locator("tbody th", has_text=ANSWER).count() >= 2
    page.close()


@pytest.mark.full
def test_a_page_without_mistakes_says_so(models, folder, tmp_path):
    text = '{"text": "hello", "label": "%s"}\n'
    for label in (ANSWER, "no"):
        (tmp_path / "t").write_text(text % label)
        page = tmp_path / f"{label == 'no'}.html"
        argv = ("--evaluate", "-q", folder / "q.yaml", tmp_path / "t", "--html", page)
        assert classify(models, *argv).returncode == 0
    pages = [(tmp_path / f"{name}.html").read_text() for name in (True, False)]
    assert sum("No most probable answer is wrong." in page for page in pages) == 1
    assert sum("<article>" in page for page in pages) == 1


@pytest.mark.full
def test_bad_texts_leave_a_page_of_the_rest(models, folder, tmp_path):
    (tmp_path / "t").write_text('{"text": "hello", "label": "no"}\n{"text": 1, "label": "no"}\n')
    argv = ("--evaluate", "-q", folder / "q.yaml", tmp_path / "t", "--html", tmp_path / "p.html")
    assert classify(models, *argv).returncode == 65
    assert "1 more could not be classified" in (tmp_path / "p.html").read_text()


def test_without_matplotlib_the_extra_is_named_before_any_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        UnsupportedError, match="-m pip install matplotlib, or sluice-lm with the extra plots"
    ):
        plots.check()
    extras = (ROOT / "pyproject.toml").read_text()
    assert 'plots = {file = ["lib/sluice/evaluate/requirements.txt"]}' in extras
