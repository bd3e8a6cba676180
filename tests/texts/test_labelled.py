"""Labelled texts: which form says which text has which answer, and what is refused before a model
runs.
"""

import json
import os
import threading

import pytest
from classify_call import question, tree_of

from sluice.faults import DataError, Error
from sluice.question.question import Question
from sluice.texts import labelled as labelled_texts
from sluice.texts.labelled import Labelled

SPAM = question(answers={"yes": ["yes"], "no": ["no"]}, aliases={"spam": "yes", "ham": "no"})
MBOX = b"From a@b  Thu Nov 26 10:00:00 2026\n\none\n\nFrom a@b  Thu Nov 26 10:00:00 2026\n\ntwo\n"


def read(*words, q=SPAM, **options):
    """[(name, data, answer or error)] of LABELLED words."""
    labelled = Labelled(tuple(map(str, words)), q, **options)
    found = [example for some in labelled for example in some]
    assert labelled.n in (None, len(found))
    again = [example for some in labelled for example in some]
    assert [(e.name, e.data) for e in again] == [(e.name, e.data) for e in found]
    return [(e.name, e.data, str(e.error) if e.error else e.answer) for e in found]


def answers(*words, **options):
    return [(data, answer) for _, data, answer in read(*words, **options)]


def refused(*words, **options):
    with pytest.raises(DataError) as e:
        Labelled(tuple(map(str, words)), options.pop("q", SPAM), **options)
    return str(e.value)


def lines(path, *objects):
    path.write_text("".join((o if isinstance(o, str) else json.dumps(o)) + "\n" for o in objects))
    return path


def test_tilde_that_the_shell_left_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Error, match="^~/Maildir: no such file: .* use \\$HOME$") as e:
        Labelled(("yes=~/Maildir", "no=a"), SPAM)
    assert e.value.code == 66
    (tmp_path / "~").write_bytes(b"a text")  # a file may be called so
    assert answers("yes=~") == [(b"a text", "yes")]


def test_json_lines_have_the_label_under_either_key(tmp_path):
    path = lines(
        tmp_path / "a.jsonl",
        {"text": "a", "label": "yes"},
        {"answer": "no", "text": "b", "id": 7},
        "",
        {"text": "c", "label": "ham", "answer": "ham"},
    )
    assert read(path) == [
        (f"{path}:1", b"a", "yes"),
        (f"{path}:2", b"b", "no"),
        (f"{path}:4", b"c", "no"),
    ]


def test_rows_of_a_table_that_are_not_utf8_are_counted_once(tmp_path, capfd):
    path = tmp_path / "a.csv"
    path.write_bytes(b"t,label\n\xfcber,yes\n\xc3\xbcber,no\n")
    assert answers(path, column="t") == [(b"\xfcber", "yes"), (b"\xc3\xbcber", "no")]
    said = capfd.readouterr().err
    assert f"{path}: 1 row is not UTF-8" in said and said.count("\n") == 1


def test_a_table_has_the_label_in_a_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('id;body;label\n1;"a;\nb";spam\n\n2;c; no \n'.encode("utf-16"))
    assert read(path, column="body") == [(f"{path}:2", b"a;\nb", "yes"), (f"{path}:5", b"c", "no")]
    path.write_text("body\tkind\nx\tyes\n")
    assert answers(path, column="body", label="kind") == [(b"x", "yes")]


def test_labels_that_are_numbers_or_true_are_known_by_their_spelling(tmp_path):
    q = question(aliases={"1": "yes", "0": "no", "true": "yes"})
    path = lines(tmp_path / "a", *({"text": "x", "label": label} for label in (1, 0, True, "0")))
    assert [a for _, a in answers(path, q=q)] == ["yes", "no", "yes", "no"]


def test_label_names_the_key_of_an_object(tmp_path):
    path = lines(tmp_path / "a", {"text": "x", "truth": "yes", "answer": "no", "label": "yes"})
    assert answers(path, label="truth") == [(b"x", "yes")]
    assert answers(path, label="answer") == [(b"x", "no")]


def test_folders_files_and_mboxes_are_given_to_answers(tmp_path):
    for name in ("in/a", "in/b", "in/.hidden", "in/c/d", "box", "junk/cur/1:2,S", "junk/new/2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "box").write_bytes(MBOX)
    words = [f"{a}={tmp_path / p}" for a, p in (("no", "in"), ("spam", "junk"), ("ham", "box"))]
    assert read(*words) == [
        (f"{tmp_path}/in/a", b"in/a", "no"),
        (f"{tmp_path}/in/b", b"in/b", "no"),
        (f"{tmp_path}/junk/cur/1:2,S", b"junk/cur/1:2,S", "yes"),
        (f"{tmp_path}/junk/new/2", b"junk/new/2", "yes"),
        (f"{tmp_path}/box:1", b"\none\n", "no"),
        (f"{tmp_path}/box:2", b"\ntwo\n", "no"),
    ]
    assert answers(words[0], recursive=True)[2:] == [(b"in/c/d", "no")]
    assert len(answers(words[2], as_text=True)) == 1
    assert [name for name, _, _ in read(words[2], as_mbox=True)] == [
        f"{tmp_path}/box:1",
        f"{tmp_path}/box:2",
    ]


def test_a_folder_of_folders_is_named_after_answers(tmp_path):
    for name in ("set/ham/1", "set/no/2", "set/spam/3", "set/README", "set/.git/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert answers(tmp_path / "set") == [
        (b"set/ham/1", "no"),
        (b"set/no/2", "no"),
        (b"set/spam/3", "yes"),
    ]


def test_an_answer_may_have_an_equals_sign(tmp_path):
    q = question(answers={"a=b": ["yes"], "a": ["no"]})
    (tmp_path / "x").write_text("x")
    assert answers(f"a=b={tmp_path}/x", f"a={tmp_path}/../{tmp_path.name}", q=q) == [
        (b"x", "a=b"),
        (b"x", "a"),
    ]
    (tmp_path / "no=thing").write_text('{"text": "t", "label": "a"}')
    assert answers(tmp_path / "no=thing", q=q) == [(b"t", "a")]


def test_messages_in_json_lines_are_utf_8_or_with_mail_bytes(tmp_path):
    path = lines(tmp_path / "a", {"text": "caf\xe9", "label": "yes"})
    assert answers(path, q=question(input={"kind": "mail", "head_ids": 9, "tail_ids": 9})) == [
        ("caf\xe9".encode(), "yes")
    ]
    assert answers(path, as_mail=True) == [(b"caf\xe9", "yes")]


def test_a_pipe_is_read_once_and_its_labels_are_checked_first(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = "".join(json.dumps({"text": str(i), "label": "no"}) + "\n" for i in range(9999))
    writer = threading.Thread(target=pipe.write_text, args=(data,))
    writer.start()
    assert len(read(pipe)) == 9999
    writer.join()
    writer = threading.Thread(target=pipe.write_text, args=(data + '{"text": "x", "label": "?"}',))
    writer.start()
    assert f"{pipe}:10000" in refused(pipe)
    writer.join()


def test_what_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(labelled_texts, "MAX_COPY", 1 << 21)
    assert "and no regular file: give a file" in refused("/dev/zero")


def test_a_label_that_is_no_answer_is_refused_with_its_line_and_the_known_ones(tmp_path):
    path = lines(tmp_path / "a", {"text": "a", "label": "yes"}, {"text": "b", "label": "Yes"})
    assert refused(path) == f'{path}:2: the label: "Yes" is no answer; known: yes, no, spam, ham'
    path = lines(tmp_path / "a.csv", "t,label", "a,yes", '"b\n",unsure')
    assert f'{path}:3: the label: "unsure" is no answer; known: yes' in refused(path, column="t")
    many = {f"a{i}": [f"x{i}"] for i in range(60)}
    assert refused(path, column="t", q=question(answers=many)).endswith("a18, a19 and 40 more")


def test_folders_that_are_named_after_no_answer_are_refused(tmp_path):
    (tmp_path / "cur").mkdir()
    (tmp_path / "cur" / "1").write_text("x")
    message = refused(tmp_path)
    assert f'{tmp_path}/cur: the folder\'s name: "cur" is no answer; known: yes, no' in message
    assert '"maybe" is no answer; known: yes' in refused(f"maybe={tmp_path}")


@pytest.mark.parametrize("word", ["", "yes="])
def test_empty_folders_are_refused(tmp_path, word):
    (tmp_path / "set" / "yes" / ".hidden").mkdir(parents=True)
    (tmp_path / "set" / "no").mkdir()
    (tmp_path / "set" / "no" / "1").write_text("x")
    path = tmp_path / "set" if not word else tmp_path / "set" / "yes"
    assert f"{tmp_path}/set/yes: there is no file in it" in refused(f"{word}{path}")
    assert "there is no folder named after an answer" in refused(tmp_path / "set" / "yes")


def test_texts_that_cannot_be_used_come_with_their_errors(tmp_path):
    good = {"text": "x", "label": "yes"}
    bad = [
        ({"text": "x"}, "there is no answer or label"),
        ({"text": "x", "label": None}, "there is no answer or label"),
        ({"text": "x", "label": 1.5}, "label is not a string"),
        ({"text": "x", "label": "yes", "answer": "no"}, 'answer is "no" and label "yes"'),
        ({"text": "", "label": "yes"}, "text is empty"),
        ({"label": "yes"}, "text is missing"),
        ({"text": "\ud800", "label": "yes"}, "surrogate"),
        ("[1]", "not an object"),
        ("{", "not JSON"),
    ]
    found = read(lines(tmp_path / "a", good, *(b for b, _ in bad), good))
    assert [a for _, _, a in found[:: len(found) - 1]] == ["yes", "yes"]
    for (_, data, error), (_, words) in zip(found[1:-1], bad):
        assert data is None and words in error
    rows = ["t,label", "x,yes", ",yes", "x,", "x", 'x,"y', ""]
    found = read(lines(tmp_path / "a.csv", *rows), column="t")
    assert [data for _, data, _ in found] == [b"x", None, None, None, None]
    for (_, _, error), words in zip(found[1:], ("field is empty", "no label", "1 field", "quote")):
        assert words in error and "a.csv" in error


@pytest.mark.parametrize(
    "data, options, words",
    [
        (b"", {}, "no text: it is empty"),
        (b"\n\n", {}, "no text: it is empty"),
        (MBOX, {}, "ANSWER=PATH are read"),
        (b"\0\1\2" * 99, {}, "no labelled text in it (line is not"),
        (b"a,b\n1,2\n", {"column": "c"}, "there is no column c; known: a, b"),
        (b"a,b\n1,2\n", {"column": "a"}, "there is no column label"),
        (b"a,label\n", {"column": "a"}, "no text: it is empty"),
        (b"a,label\n\0,yes\n", {"column": "a"}, "line 2 has a NUL"),
    ],
)
def test_files_without_a_labelled_text_are_refused(tmp_path, data, options, words):
    (tmp_path / "in").write_bytes(data)
    assert words in refused(tmp_path / "in", **options) and f"{tmp_path}/in" in refused(
        tmp_path / "in", **options
    )


def test_a_table_without_csv_is_refused_with_the_option(tmp_path):
    (tmp_path / "a.tsv").write_text("x\n")
    assert "--csv COLUMN --label COLUMN" in refused(tmp_path / "a.tsv")


def test_a_path_that_is_given_twice_is_refused(tmp_path):
    (tmp_path / "a").write_text("x")
    assert "given twice, with two answers" in refused(f"yes={tmp_path}/a", f"no={tmp_path}/./a")
    assert refused(f"yes={tmp_path}", f"spam={tmp_path}").endswith("is given twice")


def test_missing_files_are_named(tmp_path):
    for word in (tmp_path / "a", f"yes={tmp_path}/a"):
        with pytest.raises(FileNotFoundError) as e:
            Labelled((str(word),), SPAM)
        assert e.value.filename == f"{tmp_path}/a"


@pytest.mark.parametrize(
    "aliases, words",
    [
        ({"spam": "maybe"}, "aliases.spam: is none of yes, no"),
        ({"spam": 1}, "aliases.spam: is none of"),
        ({"no": "yes"}, 'aliases: "no" is an answer'),
        ({"unsure": "yes"}, "reserved word unsure"),
        ({"": "yes"}, "not a printable word"),
        ({"a\n": "yes"}, "not a printable word"),
        (["spam"], "aliases: is not a mapping"),
        ({str(i): "yes" for i in range(1001)}, "at most 1000"),
    ],
)
def test_bad_aliases_are_refused(aliases, words):
    with pytest.raises(DataError, match="q.yaml") as e:
        Question(tree_of(aliases=aliases), "q.yaml")
    assert words in str(e.value)
