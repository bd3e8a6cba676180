"""The templates for training: every template parses, labels are balanced, texts are clean."""

import functools
import random
import re
import unicodedata
from collections import Counter

import pytest

from spam_training import templates

pytestmark = pytest.mark.full

TEMPLATES = templates.load()


@functools.cache
def messages():
    """Four texts a template, made once."""
    return templates.texts(7, 4 * len(TEMPLATES))


def slots_of(text):
    """The slots in a text, in lower case."""
    return {match[1].lower() for match in templates._TOKEN.finditer(text) if match[1]}


def is_slot(key):
    return (
        key in templates.slots()
        or key in templates._DERIVED
        or key == "host"
        or key.endswith("host")
        and key[:-4] in templates.slots()
    )


def test_templates_are_many():
    """Ham has more kinds than spam."""
    n = Counter(label for label, _, _ in TEMPLATES)
    assert set(n) == set(templates.LABELS)
    assert min(n.values()) >= 1000 and max(n.values()) <= 2 * min(n.values()), n


def test_texts_are_of_either_label_in_equal_parts():
    assert Counter(label for label, _, _, _ in messages()) == dict.fromkeys(
        templates.LABELS, len(messages()) // 2
    )
    assert [label for label, _, _, _ in templates.texts(1, 5)] == [
        "ham",
        "spam",
        "ham",
        "spam",
        "ham",
    ]


@pytest.mark.parametrize("key", ("From", "Subject", "Links", "Files"))
def test_head_lines_are_as_frequent_in_either_label(key):
    share = {
        label: sum(
            f"\n{key}: " in "\n" + text.partition("\n\n")[0]
            for its, _, _, text in messages()
            if its == label
        )
        / (len(messages()) / 2)
        for label in templates.LABELS
    }
    assert abs(share["ham"] - share["spam"]) < 0.05, share


def test_slots_are_all_known():
    used = {key for _, _, text in TEMPLATES for key in slots_of(text)}
    used |= {
        key for values in templates.slots().values() for value in values for key in slots_of(value)
    }
    assert sorted(key for key in used if not is_slot(key)) == []


def test_templates_have_a_body_and_no_header_line_twice():
    for _, _, text in TEMPLATES:
        head, _, body = text.partition("\n\n")
        keys = [line.partition(":")[0] for line in head.splitlines()[1:]]
        assert body.strip() and len(keys) == len(set(keys)) and set(keys) <= set(templates.HEAD), (
            text[:200]
        )


def test_templates_differ():
    assert len({text for _, _, text in TEMPLATES}) == len(TEMPLATES)
    assert max(Counter(text.partition("\n\n")[2] for _, _, text in TEMPLATES).values()) == 1


def test_expansions_leave_no_syntax():
    for _, kind, index, text in messages():
        assert not re.search(r"[{}\0]|\$[A-Za-z]|[\^~][\^~#]|#[\^~]", text), (kind, index, text)
        assert not {unicodedata.category(c) for c in text} & {"Cs", "Co", "Cn"}, (kind, index)
        assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"], (
            kind,
            index,
        )


def test_expansions_are_laid_out_like_mail():
    for _, kind, index, text in messages():
        head, blank, body = (
            text.partition("\n\n") if not text.startswith("\n") else ("", "\n", text[1:])
        )
        keys = [line.partition(": ")[0] for line in head.splitlines()]
        assert keys == [key for key in templates.HEAD if key in keys], (kind, index, text)
        assert (
            blank
            and (body.strip() or head)
            and text.endswith("\n")
            and all(line.partition(": ")[2] for line in head.splitlines())
        )


def test_expansions_of_a_template_differ():
    few = []
    for label, kind, text in TEMPLATES:
        found = set()
        for i in range(24):
            if len(found) < 12:
                found.add(templates.expand(text, random.Random(i)))
        if len(found) < 12:
            few.append((label, kind, len(found)))
    assert few == []


def test_texts_depend_on_the_seed_alone():
    assert templates.texts(3, 50) == templates.texts(3, 50)
    assert templates.texts(3, 50) != templates.texts(4, 50)
    assert templates.texts(3, 80)[:50] == templates.texts(3, 50)


def test_texts_use_every_template_as_often_as_it_has_choices_before_any_again():
    for label in templates.LABELS:
        indices = [index for its, _, index, _ in messages() if its == label]
        round_of = sorted(
            index
            for index, template in enumerate(TEMPLATES)
            if template[0] == label
            for _ in range(templates.times(template[2]))
        )
        assert sorted(indices[: len(round_of)]) == round_of


def test_bits_are_the_logarithm_of_the_choices():
    bits = lambda text: templates.bits(templates.parse(text))
    assert bits("a $name b") == 0 and bits("{a|b}") == 1 and bits("{a|b} {a|b|c|d}") == 3
    assert bits("{a|{b|c}}") == 1.5 and bits("{a|}") == 1
    assert (
        templates.times("{a|b}") == 1
        and templates.times("{a|b}" * 24) == 3
        and templates.times("{a|b}" * 1000) == templates.MAX_TIMES
    )


def test_realistic_templates_come_more_often():
    texts = [
        text
        for path in sorted((templates.FOLDER / "realistic").iterdir())
        for _, _, text in templates.read(path)
    ]
    assert len(texts) > 500 and set(texts) == templates.realistic() < {
        text for _, _, text in TEMPLATES
    }
    assert all(
        templates.times(text) >= templates.REALISTIC
        and templates.times(text) % templates.REALISTIC == 0
        for text in texts
    )
    assert (
        max(templates.times(text) for _, _, text in TEMPLATES if text not in templates.realistic())
        <= templates.MAX_TIMES
    )


def test_texts_are_of_the_label_and_the_kind_of_their_template():
    assert all((label, kind) == TEMPLATES[index][:2] for label, kind, index, _ in messages())


def test_slot_keeps_its_value_within_a_text():
    text = templates.expand(
        "=== ham x\nSubject: $name\n\n$first $last|$name2|$email|$host", random.Random(1)
    )
    head, _, body = text.partition("\n\n")
    name, other, email, host = body.splitlines()[0].split("|")
    assert f"Subject: {name}" in head and other != name and email.endswith("@" + host)


def test_language_takes_its_own_slots():
    days = {
        templates.expand("=== ham x de\nSubject: $day\n\n-", random.Random(i)).split()[1]
        for i in range(40)
    }
    assert days <= set(templates.slots()["day.de"]) and len(days) > 3


@pytest.mark.parametrize("text", ["a {b|c", "a b} c", "{a|{b}"])
def test_unbalanced_braces_are_refused(text):
    with pytest.raises(ValueError):
        templates.parse(text)


def test_dollar_signs_and_digits_are_expanded():
    text = templates.expand("=== spam x\n\n$$5 $5 $$$n a|b #1# #x #$n", random.Random(2))
    assert re.match(r"\n\$5 \$5 \$\d+ a\|b \d1\d #x #\d+\n", text), text


def test_codes_are_filled_in():
    """A caret or tilde alone is itself; in a run of ^, ~ and # it is replaced."""
    text = templates.expand("=== ham x\n\n^^## ~~~~ x^#-##~ ~/x a^b y ~ x", random.Random(2))
    assert re.match(r"\n[A-Z]{2}\d\d [0-9a-f]{4} x[A-Z]\d-\d\d[0-9a-f] ~/x a\^b y ~ x\n", text), (
        text
    )


def test_mailer_lines_have_no_preferred_label():
    of = lambda label: [
        templates.expand(f"=== {label} x\n\nbody", random.Random(i)) for i in range(200)
    ]
    texts = of("ham")
    assert texts == of("spam")
    assert (
        20 < sum(text.endswith("\nbody\n") for text in texts) < 120
        and sum("\n\nbody\n" in text.lstrip("\n") for text in texts) > 40
    )


def test_common_links_favour_no_label():
    n, with_link = Counter(), Counter()
    elsewhere = " ".join(templates.slots()["badhost"]) + " ".join(text for _, _, text in TEMPLATES)
    # hosts that only common links have
    common = {host for host in templates.slots()["commonlink"] if host not in elsewhere}
    assert len(common) >= 8
    for label, _, _, text in templates.texts(1, 4000):
        n[label] += 1
        links = re.search(r"^Links: (.*)$", text.partition("\n\n")[0], re.M)
        with_link[label] += bool(links and common & set(links[1].split(", ")))
    shares = [with_link[label] / n[label] for label in templates.LABELS]
    assert min(shares) > 0.02 and abs(shares[0] - shares[1]) < 0.03, shares


def test_bad_opening_is_named(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("=== maybe parcel\n\nhello\n")
    with pytest.raises(ValueError, match="x.txt.*maybe parcel"):
        templates.read(path)
