"""The README.md files are short, in the field's words, and their links lead somewhere."""

import re

import pytest
from readme_pages import NAMES, PAGES, ROOT, anchors, links, prose

# Words of this project alone, each with the field's term. Tables and code may have them.
PRIVATE = {
    r"(?-i:ids)": "tokens, token IDs",
    r"begin ids?": "BOS",
    r"end ids?": "EOS, EOG",
    r"mails": "messages",
    r"in the box": "bundled",
    r"the ring": "the loop",
    r"foretells?": "predicts",
    r"babbled": "protocol error",
    r"twins?": "near-duplicates",
    r"whoever": "the client, the user",
    r"nobody": "no user, no process",
    r"blanks?": "spaces",
    r"spellings?": "words",
    r"judged?|judging": "classify, evaluate",
    r"taught": "fitted, trained",
    r"learnt": "learned, fitted",
    r"rivals?": "baseline, other engine",
    r"beside": "next to",
    r"reworded": "synonyms",
    r"foldable|folded": "normalized",
    r"predecessors?": "git log",
    r"gained nothing": "git log",
    r"(?:faster|slow|later|earlier) (?:hour|minute)s?": "git log",
}


def test_readme_is_at_most_20_kb():
    assert len(PAGES["README.md"].encode()) <= 20_000


@pytest.mark.parametrize("name", NAMES)
def test_lines_have_at_most_100_columns(name):
    text = re.sub(r"^```.*?^```$", "", PAGES[name], flags=re.M | re.S)
    long = [
        line
        for line in text.splitlines()
        if len(line) > 100 and not re.match(r" *\||    ", line) and "](" not in line
    ]
    assert not long


@pytest.mark.parametrize("name", NAMES)
def test_prose_has_no_private_words(name):
    found = {
        f"{m[0]}: {term}"
        for word, term in PRIVATE.items()
        for m in re.finditer(rf"\b(?:{word})\b", prose(name), re.I)
    }
    assert not found


def test_private_words_are_found(monkeypatch):
    page = "Many mails.\n\n`ids` and\n```\nids\n```\n| ids |\n\nJudged [by](ids.md)."
    monkeypatch.setitem(PAGES, "README.md", page)
    with pytest.raises(AssertionError) as e:
        test_prose_has_no_private_words("README.md")
    assert "mails: messages" in str(e.value) and "Judged: " in str(e.value)
    assert "ids: tokens" not in str(e.value)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for path, anchor in links(name):
        assert (ROOT / path).exists(), path
        assert not anchor or anchor in anchors(path), f"{path}#{anchor}"


def test_readme_leads_to_every_other_page():
    pages = {name for name in NAMES if name.endswith("/README.md")}
    assert {str(path) for path, _ in links("README.md")} >= {*pages, "CHANGELOG.md"}


def rooms_of_csrc():
    """The files that the tables of csrc/README.md list, as paths below csrc."""
    _, *parts = re.split(r"^\*\*`(.+?)/`\*\*", PAGES["csrc/README.md"], flags=re.M)
    return {
        f"{room}/{file}"
        for room, text in zip(parts[::2], parts[1::2])
        for file in re.findall(r"^\| `(.+?)` \|", text.partition("\n## ")[0], re.M)
    }


def test_each_file_of_csrc_has_a_row():
    files = {p for p in (ROOT / "csrc").rglob("*.*") if p.suffix in (".c", ".h", ".py")}
    # a header next to a file of the same name needs none
    needed = {p for p in files if p.suffix != ".h" or p.with_suffix(".c") not in files}
    names = lambda paths: {str(p.relative_to(ROOT / "csrc")) for p in paths}
    assert names(needed) - rooms_of_csrc() == set()
    assert rooms_of_csrc() - names(files) == set()


def test_table_of_places_names_files():
    table = PAGES["lib/README.md"].split("## Where to find it")[1].split("\n## ")[0]
    places = re.findall(r"`([\w./]+/[\w./]*)`", table)
    assert len(places) >= 15
    for place in places:
        where = (ROOT / "lib" / place).resolve()
        assert where.exists() or where.name == "NAME.py" and where.parent.is_dir(), place


def test_changelog_begins_with_this_version():
    from sluice import VERSION

    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert re.search(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])", first)
