"""Hidden text by the style of a page: a sentence that is seen stays, one that is hidden goes, over
style sheets, selectors, declarations and nesting.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.mail import css, markup, sheets

# Declarations that hide a block and all that is in it.
HIDING = [
    "display:none",
    "display : NONE ; color : red",
    "display:/**/none",
    "display:none;display:bogus",
    r"display:n\6fne",
    "content-visibility:hidden",
    "visibility:hidden",
    "visibility:collapse;visibility:nonsense",
    "opacity:0",
    "opacity:0.0%",
    "opacity:calc(1 - 1)",
    "filter:opacity(0%)",
    "filter:alpha(opacity=0)",
    "font-size:0",
    "font-size:0px;line-height:20px",
    "font-size:.01em",
    "font-size:0%",
    "font-size:calc(0px + 0em)",
    "font-size:min(0px, 12px)",
    "font:0/0 Arial",
    "font:italic 1px Arial",
    "position:absolute;left:-9999px",
    "position:absolute;left:-999em",
    "position:fixed;top:-5000px",
    "position:relative;right:9999px",
    "position:absolute;left:-100vw",
    "position:absolute;inset:0 0 0 -9999px",
    "position:absolute;left:calc(-100px * 100)",
    "margin-left:-9999px",
    "margin:-9999px 0 0 0",
    "text-indent:-9999px",
    "position:absolute;clip:rect(0,0,0,0)",
    "position:absolute;clip:rect(1px 1px 1px 1px)",
    "position:fixed;clip:rect(0px, auto, 1px, 0px)",
    "clip-path:inset(50%)",
    "clip-path:inset(0 100% 0 0)",
    "-webkit-clip-path:circle(0)",
    "clip-path:polygon(0 0, 0 0, 0 0)",
    "transform:translateX(-9999px)",
    "transform:translate(0, -2000px) rotate(3deg)",
    "-webkit-transform:scale(0)",
    "transform:scaleY(0)",
    "transform:rotateX(90deg)",
    "transform:matrix(0,0,0,0,0,0)",
    "translate:-200vw",
    "scale:0",
    "height:0;overflow:hidden",
    "max-height:0.0em;overflow:hidden",
    "overflow:clip;width:.5px",
    "overflow-y:hidden;height:1px",
    "overflow:auto;max-height:calc(1px - 1px)",
    "color:#fff",
    "color:#FFFFFF",
    "color:white",
    "color:ivory",
    "color:#fffe",
    "color:rgb(255 255 255)",
    "color:rgb(100%,100%,99%)",
    "color:rgba(0,0,0,0)",
    "color:hsl(0,0%,100%)",
    "color:hsl(120deg 50% 99%)",
    "color:hsla(1.5rad 50% 50% / 0%)",
    "color:hwb(0 100% 0%)",
    "color:lab(100% 0 0)",
    "color:color(srgb 1 1 1)",
    "color:transparent",
    "-webkit-text-fill-color:transparent",
    "color:#123456;background:#123456",
    "color:navy;background-color:rgb(0,0,128)",
    "color:black;background:linear-gradient(to right,#000,#010101)",
    "color:white;color:nonsense(1)",
]
# Declarations like them that hide nothing.
SHOWING = [
    "display:block",
    "display:none;display:block",
    "visibility:visible",
    "opacity:.7",
    "opacity:100%",
    "filter:opacity(50%)",
    "font-size:10px",
    "font-size:0.9em",
    "font:bold 12px/0 Arial",
    "font-size:calc(1em + 1px)",
    "left:-9999px",
    "position:relative;left:-10px",
    "position:absolute;left:50%;top:0",
    "margin:0 auto",
    "margin-left:-20px",
    "text-indent:-1em",
    "clip:rect(0,0,0,0)",
    "position:absolute;clip:rect(0,100px,100px,0)",
    "clip-path:inset(10%)",
    "clip-path:circle(50%)",
    "transform:translateX(10px) scale(1.1)",
    "transform:rotateX(180deg)",
    "height:0",
    "max-height:0",
    "overflow:hidden",
    "overflow:hidden;height:100px",
    "color:#333",
    "color:hsl(0,0%,20%)",
    "color:white;background:#000",
    "color:white;background:url(dark.png)",
    "color:white;background:linear-gradient(#000,#333)",
    "color:rgba(0,0,0,.8)",
    "background:#fff",
    "color:black;background:none",
    "width:0",
    "line-height:0",
    "display",
    "color:",
]


def sheet(rules):
    return f"<style>{rules}</style>"


# Ways to give an element declarations: (sheet, elements around it and before it, its start tag).
# `D` stands for declarations, `K` for a name that no other element has.
WAYS = [
    ("", "", "<div style='D'>"),
    (".K{D}", "", "<div class=K>"),
    (".K {\n D;\n}\n", "", "<div class='a K b'>"),
    ("div.K,q{D}", "", "<div class=K>"),
    ("#K{D}", "", "<div id=K>"),
    ("x-K{D}", "", "<x-K>"),
    ("X-K , y{D}", "", "<x-K>"),
    (".a-K .K{D}", "<div class=a-K><section>", "<div class=K>"),
    (".a-K div{D}", "<div class=a-K>", "<div>"),
    ("#a-K > .K{D}", "<div id=a-K>", "<div class=K>"),
    ("body #a-K * .K{D}", "<div id=a-K><section>", "<div class=K>"),
    (".a-K+.K{D}", "<div class=a-K></div>", "<div class=K>"),
    (".a-K ~ div.K{D}", "<div class=a-K></div><p></p>", "<div class=K>"),
    ("[data-K]{D}", "", "<div data-K>"),
    ("div[class='K']{D}", "", "<div class=K>"),
    ('[class^="K"]{D}', "", "<div class=K-x>"),
    ("[class*=K-][title]{D}", "", "<div title=x class=K-x>"),
    ('[TITLE="Some K" I]{D}', "", "<div title='sOME K'>"),
    ("[class~=K]:not(.other){D}", "", "<div class='a K'>"),
    (".K.b{D}", "", "<div class='b K'>"),
    (".K.b.c.d{D}", "", "<div class='b K d c'>"),
    (".a-K > :first-child{D}", "<div class=a-K>", "<div>"),
    ("@media screen{.K{D}}", "", "<div class=K>"),
    ("@media all and (min-width:300px){@media screen{.K{D}}}", "", "<div class=K>"),
    ("@media only screen and (max-width:5000px), print{.K{D}}", "", "<div class=K>"),
    ("@supports (display:grid){.K{D}}", "", "<div class=K>"),
    ("@import url(x.css);@charset 'x';.K{D}", "", "<div class=K>"),
    ("@font-face{font-family:x;src:url(y)}.K{D}", "", "<div class=K>"),
    ("<!-- .K{D} -->", "", "<div class=K>"),
    ("/* } */ .K{D}", "", "<div class=K>"),
    (".b{color:red}}.x{}.K{D}", "", "<div class=K>"),
    (".b{color:red}.K{D", "", "<div class=K>"),
    (r".\4b K{x}.K{y:'}';D}", "", "<div class=K>"),
    (".K{&:hover{color:red}D}", "", "<div class=K>"),
    ("a{b:c}.K{D}p{color:red}", "", "<div class=K>"),
]
# Sheets that hide nothing of an element `<div class="K" id="i-K">` in `<section class="s">`.
DECOYS = [
    "",
    ".other{D}",
    ".K-{D}",
    ".K .K{D}",
    ".a .K{D}",
    "section > .K{D}",
    "body > .K{D}",
    ".s + .K{D}",
    "p.K{D}",
    ".K.b{D}",
    ".K:hover{D}",
    ".K::first-line{D}",
    ".K:not(div){D}",
    ".K:nth-child(7){D}",
    "[data-x]{D}",
    "@media print{.K{D}}",
    "@media (max-width:480px){.K{D}}",
    "@media not screen{.K{D}}",
    "@media screen and (prefers-color-scheme:dark){.K{D}}",
    "@keyframes x{from{D}to{D}}",
    "@page{D}",
    "/* .K{D} */",
    "/* .K{D}",
    ".x{y:'.K{D}'}",
    ".a{.K{D}}",
    ".a{b:c}}.K{D}",
    "@media print{.a{D}.K{D}",
    ".K{}",
    ".K{background:none",
]


def page(html):
    text, found = markup.read(html)
    return text, found


def hidden(way, declarations, name, text):
    """(sheet, elements) in which `text` has the declarations."""
    rules, around, start = (
        part.replace("K", name).replace("D", declarations) for part in WAYS[way]
    )
    return rules, f"<article>{around}{start}{text}</div></section></x-{name}></div></article>"


@pytest.mark.parametrize("declarations", HIDING)
def test_declarations_that_hide(declarations):
    for way in (0, 1):
        rules, body = hidden(way, declarations, "k", "gone<p>gone</p>")
        text, found = page(sheet(rules) + f"seen{body}seen")
        assert (text.split(), found.n_hidden) == (["seen", "seen"], 8)


@pytest.mark.parametrize("declarations", SHOWING)
def test_declarations_that_do_not_hide(declarations):
    for way in (0, 1):
        rules, body = hidden(way, declarations, "k", "seen<p>seen</p>")
        assert page(sheet(rules) + body)[0].split() == ["seen", "seen"]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_selectors_that_match(way):
    rules, body = hidden(way, "display:none", "k", "gone<b>gone</b>")
    for html in (sheet(rules) + body, body + sheet(rules), f"<html><head>{sheet(rules)}" + body):
        text, found = page(html + "<p>seen")
        assert (text, found.n_hidden) == ("seen", 8), html


@pytest.mark.parametrize("decoy", DECOYS)
def test_selectors_that_do_not_match(decoy):
    rules = decoy.replace("K", "k").replace("D", "display:none")
    html = sheet(rules) + "<section class=s><article><div class=k id=i-k>seen</div></article>"
    assert page(html)[0] == "seen", html


@pytest.mark.parametrize(
    "rules, inline, is_seen",
    [
        (".k{display:none}#k{display:block}", "", True),
        ("#k{display:none}.k{display:block}", "", False),
        (".k{display:block}.k{display:none}", "", False),
        ("div.k{display:none}.k{display:block}", "", False),
        ("section .k{display:none}div{display:block}", "", False),
        (".k{display:none!important}#k{display:block}", "", False),
        (".k{display:none}", "display:block", True),
        (".k{display:none !important}", "display:block", False),
        (".k{display:none!important}", "display:block!important", True),
        (".k{display:block!important}", "display:none", True),
        ("div{color:#fff}", "color:#000", True),
        ("div{color:#fff}section{background:#000}", "", True),
        ("body{background:#000}div{color:#fff}", "", True),
        ("body{background:#000}div{color:#000}", "", False),
        ("body{color:#fff}", "", False),
        ("section{visibility:hidden}.k{visibility:visible}", "", True),
        ("section{font-size:0}.k{font-size:12px}", "", True),
        ("section{font-size:0}.k{font-size:100%}", "", False),
        (":root{color:#fff}", "", False),
        (".k{display:none}.k{display:what}", "", False),
    ],
)
def test_cascade(rules, inline, is_seen):
    text, _ = page(f"{sheet(rules)}<section><div class=k id=k style='{inline}'>seen</div>")
    assert text == ("seen" if is_seen else "")


def test_sheets_come_in_any_number_and_media():
    html = (
        "<style media=print>.a{display:none}</style><style type=text/less>.a{display:none}</style>"
        "<p class=a>seen<p class=b>gone<style media='only screen'>.b{display:none}</style>"
        "<p class=c>gone<style>.c{display:none</style><p class=d>seen"
    )
    assert page(html)[0].split() == ["seen", "seen"]
    assert page("<!-- <style>p{display:none}</style> --><p>seen")[0] == "seen"


def test_names_of_classes_have_case_in_a_page_with_doctype():
    rules = sheet(".Gone{display:none}")
    assert page(rules + "<p class=gone>gone")[0] == ""
    assert page("<!DOCTYPE html>" + rules + "<p class=gone>seen<p class=Gone>gone")[0] == "seen"


def test_rows_are_in_a_body_that_is_not_written():
    html = sheet("tbody > tr.x{display:none}table > tr{display:none}")
    table = "<table><tr class=x><td>gone<tr><td>seen</table><table><tr><td>seen</table>"
    assert page(html + table)[0].split() == ["seen", "seen"]


def test_size_of_inline_elements_is_that_of_their_text():
    zero = "height:0;width:0;overflow:hidden"
    assert page(f"<span style='{zero}'>seen</span>")[0] == "seen"
    assert page(f"<span style='{zero};display:inline-block'>gone</span>")[0] == ""
    assert page(f"<span style='{zero};float:left'>gone</span>")[0] == ""


def test_sheets_beyond_the_limits_are_said():
    rules = "".join(f".a{i}{{color:red}}" for i in range(sheets.MAX_COMPOUNDS + 1))
    found = page(sheet(rules) + "<p>seen")[1]
    assert found.is_cut
    rules = ".x{border:1px solid red}" * 8000
    assert len(rules) > sheets.MAX_CHARACTERS and page(sheet(rules) + "<p>seen")[1].is_cut


@pytest.mark.parametrize(
    "media, fits",
    [
        ("", True),
        ("screen", True),
        ("all", True),
        ("print", False),
        ("only screen and (min-width: 600px)", True),
        ("screen and (max-width:600px)", False),
        ("not print", True),
        ("not all and (monochrome)", True),
        ("(width >= 400px)", True),
        ("(width<400px)", False),
        ("print, (min-width:1px)", True),
        ("screen and (-webkit-min-device-pixel-ratio:0)", True),
        ("(prefers-color-scheme: dark)", False),
        ("(orientation: landscape)", True),
        ("(aspect-ratio: 1)", False),
        ("((((", False),
    ],
)
def test_media(media, fits):
    assert sheets.is_shown_on(media) is fits


# Generated pages
# ------------------------------------------------------------------------------------------------

WRAPPERS = ["", "<div>", "<table><tr><td>", "<section><b>", "<ul><li>", "<div style='color:#222'>"]
wrapper = st.sampled_from(WRAPPERS)
noise = st.sampled_from(
    ["", "p{color:#444}", "td{padding:0}", "a:hover{color:red}", "@media print{*{display:none}}"]
)
sentence = st.tuples(
    st.booleans(),
    st.integers(0, len(WAYS) - 1),
    st.integers(0, 10**6),
    st.sampled_from(DECOYS[:-2]),
    st.lists(wrapper, max_size=3),
)


def closed(tags):
    """End tags of start tags, the last first."""
    names = [tag.split()[0].strip("<>") for tag in tags.replace("><", "> <").split(" <") if tag]
    return "".join(f"</{name}>" for name in reversed(names))


@settings(max_examples=400, deadline=None)
@given(st.lists(sentence, min_size=1, max_size=8), noise, st.booleans())
def test_what_is_seen_stays_and_what_is_hidden_goes(sentences, other, is_sheet_last):
    """Sentences of both kinds, each in a nest of its own and with its own rules."""
    rules, body, seen = [other], "", []
    for i, (is_hidden, way, pick, decoy, around) in enumerate(sentences):
        word = f"word{i}word"
        name = f"q{i}q"
        if is_hidden:
            of_sheet, element = hidden(way, HIDING[pick % len(HIDING)], name, word)
            # a rule that is not closed would take the next ones into it
            of_sheet += "}" * (of_sheet.count("{") - of_sheet.count("}"))
        elif pick % 2:
            of_sheet, element = hidden(way, SHOWING[pick % len(SHOWING)], name, word)
            of_sheet += "}" * (of_sheet.count("{") - of_sheet.count("}"))
            seen.append(word)
        else:
            of_sheet = decoy.replace("K", name).replace("D", HIDING[pick % len(HIDING)])
            element = (
                f"<section class=s><article><div class={name}>{word}</div></article></section>"
            )
            # nor a comment, or it would end in a later one
            of_sheet += "*/" if decoy == "/* .K{D}" else ""
            of_sheet += "}" * (of_sheet.count("{") - of_sheet.count("}"))
            seen.append(word)
        rules.append(of_sheet)
        body += "".join(around) + element + "".join(closed(tag) for tag in reversed(around))
    whole = "\n".join(rules)
    html = body + sheet(whole) if is_sheet_last else sheet(whole) + body
    text, found = page(html)
    assert text.split() == seen, html
    assert found.n_hidden == sum(len(f"word{i}word") for i, s in enumerate(sentences) if s[0])


PIECES = (
    ". # a p * > + ~ , { } [ ] ( ) : ; \\ \" ' /* */ <!-- --> @media @import :not( :first-child"
    " url( display:none .x #x [x] [x=y] [x*='y'] important !"
).split()


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.just(" ") | st.text(max_size=2), max_size=40))
def test_any_sheet_is_read(pieces):
    rules = "".join(pieces)
    found = sheets.Sheets([rules], True)
    for tag, attributes in (("p", {"class": "x y", "id": "x"}), ("a", {"href": "x", "x": "y"})):
        for declared in found.enter(tag, attributes):
            assert declared.keys() <= css.PROPERTIES
    found.leave()
    found.leave()
    assert page(sheet(rules.replace("<", "")) + "<p>x")[0] in ("x", "")


names = st.sampled_from("abc")
selector = st.lists(st.tuples(st.sampled_from(" >+~"), names), min_size=1, max_size=4)


class Element:
    def __init__(self, name, parent):
        self.name, self.parent, self.before = name, parent, list(parent.children) if parent else []
        self.children = []
        if parent:
            parent.children.append(self)


def matches(element, steps):
    """Selectors Level 3 as the standard says it, by search."""
    combinator, name = steps[-1]
    if element.name != name:
        return False
    if len(steps) == 1:
        return True
    rest = steps[:-1]
    around, up = [], element.parent
    while up:
        around.append(up)
        up = up.parent
    candidates = {
        " ": around,
        ">": around[:1],
        "+": element.before[-1:],
        "~": element.before,
    }[combinator]
    return any(matches(other, rest) for other in candidates)


@settings(max_examples=400, deadline=None)
@given(
    selector,
    st.lists(st.tuples(names, st.integers(0, 3)), min_size=1, max_size=14),
)
def test_combinators_equal_a_search(steps, moves):
    """Elements, each after some of those that are open have been closed."""
    text = "".join(
        (f" {combinator} " if i else "") + f".{name}" for i, (combinator, name) in enumerate(steps)
    )
    found = sheets.Sheets([text + "{display:none}"], True)
    open_elements = [Element("root", None)]
    for name, n_closed in moves:
        for _ in range(min(n_closed, len(open_elements) - 1)):
            open_elements.pop()
            found.leave()
        element = Element(name, open_elements[-1])
        open_elements.append(element)
        assert bool(found.enter("p", {"class": name})[0]) == matches(element, steps), text
