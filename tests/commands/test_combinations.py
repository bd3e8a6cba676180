"""Which options exclude or need each other: the rules of a table, and the table of classify."""

import itertools
import re

import click
import pytest

from sluice.cli import classify_combinations, combinations
from sluice.cli.combinations import (
    excludes,
    need,
    need_files,
    need_one_question,
    not_with,
    one_of,
    take_no_file,
    without,
)
from sluice.commands.classify import main as classify

PARAMETERS = {p.name: p for p in classify.params}
# what a parameter has that is not given, and one that is
ABSENT = {"files": (), "asked": (), "authserv_ids": ()}
GIVEN = {"files": ("a",), "asked": ("a", "b"), "prior": "texts", "mode": 0}


def message(rules, *names, **values):
    """What is said of a command line of classify that has these options, or None."""
    ctx = click.Context(classify)
    ctx.params = {name: ABSENT.get(name) for name in PARAMETERS}
    ctx.params |= {name: GIVEN.get(name, True) for name in names} | values
    with ctx:
        try:
            combinations.check(rules)
        except click.UsageError as e:
            return e.message
    return None


@pytest.mark.parametrize(
    ("rule", "names", "said"),
    [
        (one_of("as_json", "long", "files"), ("long",), None),
        (one_of("as_json", "long"), ("long", "as_json"), "--json and --long exclude each other"),
        (one_of("files", "listen"), ("files", "listen"), "FILE and --listen exclude each other"),
        (without("why", "long", "fit"), ("long", "fit"), None),
        (without("why", "long", "fit"), ("fit", "why"), "--why and --fit exclude each other"),
        (excludes("curve", "prior", "fit"), ("prior", "fit"), None),
        (excludes("curve", "prior", "fit"), ("curve", "fit"), "--curve excludes --prior and --fit"),
        (not_with(("top", "spans"), "fit"), ("top", "spans"), None),
        (not_with(("top", "spans"), "fit"), ("spans", "fit"), "--top and --spans: not with --fit"),
        (need(("top", "spans"), "why"), ("why", "top"), None),
        (need(("top", "spans"), "why"), ("spans",), "--top and --spans: need --why"),
        (need(("html",), "why", "fit"), ("html",), "--html: needs --why or --fit"),
        (need(("mode",), "listen"), ("mode",), "--mode: needs --listen"),  # 0 is a value
        (need_files("fit", "LABELLED"), ("fit",), "--fit: needs LABELLED"),
        (need_files("fit", "LABELLED"), ("fit", "files"), None),
        (take_no_file("reset"), ("reset", "files"), "--reset: takes no FILE"),
        (need_one_question("rules"), ("rules",), None),
        (need_one_question("rules"), ("rules", "asked"), "--rules: needs one question"),
    ],
)
def test_rule_says_what_is_wrong(rule, names, said):
    assert message([rule], *names) == said


def test_value_that_goes_with_others():
    rule = excludes("prior", "fit", unless="none")
    assert message([rule], "fit", prior="none") is None
    assert message([rule], "fit", prior="texts") == "--prior excludes --fit"


def test_first_rule_that_is_broken_is_said():
    assert message([one_of("why", "fit"), one_of("why", "long")], "why", "long", "fit") == (
        "--why and --fit exclude each other"
    )


def test_messages_of_classify_name_options_that_are_given():
    """For every pair: so each name in the table is a parameter, and no message is of another."""
    for names in itertools.combinations(PARAMETERS, 2):
        said = message(classify_combinations.RULES, *names)
        if said:
            shown = {"FILE" if n == "files" else o for n in names for o in PARAMETERS[n].opts}
            assert shown & set(re.findall(r"--[a-z-]+|FILE", said)), (names, said)
    assert message(classify_combinations.RULES) is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("evaluate", "fit", "files"), "--evaluate and --fit exclude each other"),
        (("reset", "evaluate", "files"), "--list-learned and --reset: take no FILE"),
        (("list_learned", "reset"), "--reset and --list-learned exclude each other"),
        (("listen", "long"), "--long and --listen exclude each other"),
        (("rules", "learn"), "--rules and --learn exclude each other"),
        (("learned_in", "auto_learn"), "--learned-in and --auto-learn exclude each other"),
        (("learn", "asked"), "--learn, --forget, --list-learned, --reset and --auto-learn: need one question"),
    ],
)  # fmt: skip
def test_table_of_classify(names, said):
    assert message(classify_combinations.RULES, *names) == said
