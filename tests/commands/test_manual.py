"""Manuals: what each command says, that its examples run, its page for man, the form of text."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import BIN, ROOT, run, shell
from tiny_model import write_model

from sluice import start
from sluice.cli import manual, pages
from sluice.commands import sluice

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
ALL = [*sluice.NAMES, "sluice"]
PAGES = {name: pages.page(name) for name in ALL}
# its example starts a server, and ends with lines of a file of Postfix
EXAMPLES = [name for name in ALL if name != "mail-milter"]


def test_commands_all_have_a_manual():
    built = {p.name for p in BIN.iterdir()}
    assert built <= set(ALL) and set(ALL) - built <= {"mail-milter"}


@pytest.mark.parametrize("name", ALL)
def test_sections(name):
    """All, in their order; what a code means is said once, and the usual ones by all."""
    titles = [title for title, _ in PAGES[name]]
    assert [title for title in titles if title != "COMMANDS"] == SECTIONS
    assert ("COMMANDS" in titles) == (name == "sluice")
    parts = dict(PAGES[name])
    assert all(parts.values())
    codes = [block[1] for block in parts["EXIT STATUS"] if block[0] == "row"]
    needed = {"0", "75"} if name == "mail-filter" else {"0", "64", "74"}
    assert codes == sorted(set(codes), key=int) and needed <= set(codes)
    assert all(line.startswith(f"{name}") for line in parts["SYNOPSIS"][0][1])
    assert name in "\n".join(parts["EXAMPLES"][0][1])


@pytest.mark.parametrize("name", ALL)
def test_lines_fit_a_terminal(name):
    lines = manual.text(PAGES[name]).splitlines()
    assert [line for line in lines if len(line) > manual.WIDTH] == []


@pytest.mark.parametrize("name", ALL)
def test_see_also_names_manuals(name):
    for other in dict(PAGES[name])["SEE ALSO"][0][1].split(", "):
        assert other in ALL or re.fullmatch(r"[a-z]+\([1-8]\)", other)
        assert other != name


@pytest.mark.parametrize("name", start.PROGRAMS)
def test_options_of_a_program_are_in_groups_and_explained(name):
    blocks = dict(PAGES[name])["OPTIONS"]
    assert blocks[0][0] == "group"
    groups = [block[1] for block in blocks if block[0] == "group"]
    assert len(groups) >= 3 and groups[-1] == "General"
    assert all(block[2] for block in blocks if block[0] == "row")
    (group,) = (group for group in sluice.COMMANDS.values() if name in group)
    assert manual.summary_of(PAGES[name]) == (name, group[name])


@pytest.mark.parametrize("name", [name for name in ALL if name not in start.PROGRAMS])
def test_options_are_all_there_in_groups(name):
    command = sluice.command(name)
    blocks = dict(PAGES[name])["OPTIONS"]
    groups = [block[1] for block in blocks if block[0] == "group"]
    assert groups == [g for g in manual.GROUPS if g in groups] and groups[-1] == "General"
    rows = {block[1]: block[2] for block in blocks if block[0] == "row"}
    options = [p for p in command.params if p.param_type_name == "option"]
    assert set(rows) == {manual.flags(o) for o in options} | {"-h, --help"}
    assert all(rows.values()), "an option without a meaning"
    shown = " ".join(rows)
    for option in options:
        for alias in getattr(option, "aliases", ()):
            assert not re.search(rf"{alias}\b", shown) and alias in blocks[-1][1]


@pytest.mark.parametrize("name", sorted(p.name for p in BIN.iterdir()))
def test_help_and_version(name):
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == manual.text(PAGES[name])
    assert run(name, "-V").stdout.decode().startswith(f"{name} (sluice) ")


@pytest.mark.parametrize("name", [p for p in start.PROGRAMS if (BIN / p).exists()])
def test_page_of_a_program_is_what_it_prints(name):
    assert pages.usage_in_source(name) == run(name, "--help").stdout.decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with everything that examples name."""
    d = tmp_path_factory.mktemp("manual")
    write_model(str(d / "m.gguf"), type="q8_0", n_layer=2, n_vocab=400)
    (d / "prompt.txt").write_text("Is this mail spam?")
    (d / "texts.jsonl").write_text('{"id": 1, "text": "Come at once!"}\n')
    question = '{"type": "noul", "instructions": "Is it?"}'
    (d / "requests.jsonl").write_text(f'{{"state": "x", "questions": {{"q": {question}}}}}\n')
    shutil.copy2(ROOT / "configs" / "yesno.gbnf", d)
    shutil.copy2(ROOT / "tests" / "mails" / "spam-cards.eml", d / "mail.eml")
    for box in ("Maildir", "Maildir/.Junk"):
        for kind in ("cur", "new", "tmp"):
            (d / box / kind).mkdir(parents=True)
    shutil.copy2(d / "mail.eml", d / "Maildir" / "cur" / "1.host:2,S")
    shutil.copy2(ROOT / "tests" / "mails" / "ham-mutt.eml", d / "Maildir" / "cur" / "2.host:2,S")
    for i in range(12):  # enough for a learning curve
        for box, text in ("Maildir", "See you at noon"), ("Maildir/.Junk", "Buy pills"):
            number = "one two three four five six seven eight nine ten eleven twelve".split()[i]
            path = d / box / "cur" / f"{i + 3}.{len(text)}.host:2,S"
            path.write_text(f"From: {number}@a.example\nSubject: {number}\n\n{text} {number}.\n")
    (d / "tickets.csv").write_text(
        "id,body\n" + "".join(f"{i},I was charged {i} times.\n" for i in range(8))
    )
    (d / "team.yaml").write_text("type: choice\nquestion: Who acts?\nanswers: [billing, repair]\n")
    words = {"billing": "I was charged twice, invoice", "repair": "the lift is stuck on floor"}
    (d / "labelled.jsonl").write_text(
        "".join(
            f'{{"text": "{i} {words[label]}", "label": "{label}"}}\n'
            for i in range(40)
            for label in words
        )
    )
    (d / "log").write_text("a line\nanother\n")
    (d / "docs").mkdir()
    for name in ("install", "usage"):
        (d / "docs" / f"{name}.md").write_text(f"# {name}\n")
    script = "tokenize -m m.gguf <prompt.txt >tokens && prefill -m m.gguf -o p.snap <tokens"
    assert shell(script, d).returncode == 0
    return d


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(files, tmp_path, name):
    if not (BIN / name).exists():
        pytest.skip(f"{name} is not built: its example is not run")
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / "ring")
    script = "\n".join(dict(PAGES[name])["EXAMPLES"][0][1])
    done = shell("set -e\n" + script, tmp_path)
    assert (done.returncode, done.stderr) == (0, b""), script


@pytest.mark.parametrize("checker", [["mandoc", "-Tlint"], ["groff", "-man", "-ww", "-z"]])
def test_pages_are_sound(tmp_path, checker):
    if not shutil.which(checker[0]):
        pytest.skip(f"{checker[0]} is not on this machine: the pages are not checked by it")
    paths = pages.write_all(str(tmp_path))
    done = subprocess.run([*checker, *paths], capture_output=True, text=True)
    assert (done.stdout + done.stderr).strip() == "" and len(paths) == len(ALL)


def test_page_shown_says_what_the_text_says(tmp_path):
    """Nothing is lost or read as a request: the words of man's output are those of --help."""
    if not shutil.which("groff"):
        pytest.skip("groff is not on this machine: what a page shows is not tested")
    words = lambda text: re.sub(r"[\s\u2010-]", "", text)
    for name in ("classify", "grammar-filter", "gguf-dump", "mail-filter", "tokenize"):
        path = tmp_path / f"{name}.1"
        path.write_text(manual.roff(PAGES[name]))
        command = ["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=200n", "-rHY=0", path]
        shown = words(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for title, blocks in PAGES[name]:
            for block in blocks:
                for part in block[1:] if block[0] != "lines" else block[1]:
                    if title != "SEE ALSO":
                        assert words(part) in shown, part


# The form -------------------------------------------------------------------------------


DOC = """Do a thing.

SYNOPSIS
  thing [OPTIONS] <a >b

DESCRIPTION
  One paragraph, long enough to be filled so that its lines have to be broken at the eightieth
  column.

  .SH is no request, 'nor is this, and \\n is no escape.

    kept   as it
      is

EXIT STATUS
  0   done, and
      well
  65  bad

EXAMPLES
  thing <a |
    thing

SEE ALSO
  other
"""
TEXT = """NAME
  thing - do a thing
SYNOPSIS
  thing [OPTIONS] <a >b
DESCRIPTION
  One paragraph, long enough to be filled so that its lines have to be broken
  at the eightieth column.

  .SH is no request, 'nor is this, and \\n is no escape.

    kept   as it
      is
OPTIONS
 Output
  -o, --out-of-the-way-name FILE
                          Write FILE
  --no                    Do nothing [7]
EXIT STATUS
  0   done, and well
  65  bad
EXAMPLES
  thing <a |
    thing
SEE ALSO
  other
"""


def sections():
    """DOC as sections, with two options."""
    summary, given = manual._docstring(DOC)
    options = [
        ("group", "Output"),
        ("row", "-o, --out-of-the-way-name FILE", "Write FILE"),
        ("row", "--no", "Do nothing [7]"),
    ]
    return manual._ordered("thing", summary, [*given, ("OPTIONS", options)])


def test_text():
    assert manual.text(sections()) == TEXT


def test_roff(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    lines = manual.roff(sections()).splitlines()
    assert lines[0].startswith('.TH THING 1 "1970-01-02" "Sluice ')
    assert r"thing \- do a thing" in lines and ".SS Output" in lines
    assert r"\&.SH is no request, \(aqnor is this, and \(rsn is no escape." in lines
    assert r"\fB\-o\fR, \fB\-\-out\-of\-the\-way\-name\fR \fIFILE\fR" in lines
    assert lines[-1] == "other(1)"


def test_usage_is_read_as_it_is_written():
    """What a C program prints and the manual that is made of it are one text."""
    assert manual.of_usage(TEXT) == [
        (title, [("text", "thing - do a thing")] if title == "NAME" else blocks)
        for title, blocks in sections()
    ]
    assert manual.text(manual.of_usage(TEXT)) == TEXT


def test_usage_without_a_section_is_refused():
    with pytest.raises(ValueError, match="--help: no EXAMPLES"):
        manual.of_usage(TEXT.replace("EXAMPLES", "Examples"))
