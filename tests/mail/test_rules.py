"""Rules: which message each condition matches, which rule decides, and what a bad file says."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.faults import DataError
from sluice.mail import rule_file
from sluice.mail.rules import glob

ANSWERS = {"yes": "yes", "no": "no", "spam": "yes"}
RECEIVED = b"Received: from helo.example (name.example [192.0.2.7])\n\tby mx.example.com (Postfix) with ESMTP id 4\n"


def rules(text, authserv_ids=()):
    return rule_file.parse(text.encode(), "r.yaml", ANSWERS, authserv_ids)


def decided(condition, mail, client=None, top="", ids=("mx.example.com",)):
    """Whether a rule with the one condition, in YAML, matches a message."""
    found = rules(f"{top}\nrules:\n  - {{rule: a, answer: no, {condition}}}\n", ids)
    return found.match(mail, client) is not None


def sender(pattern, address):
    return decided(f"sender: '{pattern}'", f"From: {address}\n\n".encode())


@pytest.mark.parametrize(
    "pattern, matching, others",
    [
        (
            "Ann@Example.org",
            ["ann@example.org", "Ann <ANN@EXAMPLE.ORG>", '"ann@bad.example" <ann@example.org>'],
            ["bann@example.org", "ann@example.org.evil.example", "ann@sub.example.org", ""],
        ),
        (
            "@example.org",
            ["ann@example.org", "bob@a.b.example.org"],
            ["ann@notexample.org", "ann@example.org.evil.example", "example.org", "a@org"],
        ),
        (
            "news-*@*.example.net",
            ["news-1@a.example.net", "news-@x.y.example.net"],
            ["news-1@example.net", "news@a.example.net"],
        ),
        ("@*.example.net", ["a@b.example.net"], ["a@example.net", "a@b.example.net.evil.example"]),
        ("a?@example.org", ["ab@example.org"], ["a@example.org", "abc@example.org"]),
    ],
)
def test_sender(pattern, matching, others):
    assert [a for a in matching if not sender(pattern, a)] == []
    assert [a for a in others if sender(pattern, a)] == []


def test_message_with_two_senders_has_none():
    two = b"From: ann@example.org\nFrom: bob@evil.example\n\n"
    assert not decided("sender: '@example.org'", two)
    assert not decided("sender: '@example.org'", b"From: ann@example.org, b@evil.example\n\n")
    assert not decided("sender: '@example.org'", b"Subject: x\n\nFrom: ann@example.org\n")


def test_domain_and_list():
    mail = b"From: ann@a.example.org\nList-Id: Users <users.lists.example.net>\n\n"
    assert decided("domain: example.org", mail) and decided("domain: 'a.*.org'", mail)
    assert not decided("domain: ample.org", mail)
    assert decided("list-id: [x.example, users.lists.example.net]", mail)
    assert decided("list-id: '*.example.net'", mail)
    assert not decided("list-id: lists.example.net", mail)


def test_all_conditions_of_a_rule_must_hold():
    mail = b"From: ann@example.org\nList-Id: <l.example.net>\n\n"
    assert decided("domain: example.org, list-id: l.example.net", mail)
    assert not decided("domain: example.org, list-id: m.example.net", mail)


@pytest.mark.parametrize(
    "client, matches",
    [
        ("192.0.2.7", True),
        ("::ffff:192.0.2.7", True),
        ("2001:db8::1", True),
        ("192.0.3.7", False),
        ("2001:db9::1", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_client_that_the_server_names(client, matches):
    assert decided("client: [192.0.2.0/24, '2001:db8::/32']", b"From: a@b\n\n", client) == matches


LOCAL = b"Received: from localhost (localhost [127.0.0.1]) by mx.example.com; x\n"
SUBMITTED = b"Received: by mx.example.com (Postfix, from userid 61000) id 4; x\n"
FORGED = b"Received: from x (x [192.0.2.7]) by other.example; x\n"


@pytest.mark.parametrize(
    "header, matches",
    [
        (RECEIVED, True),
        (SUBMITTED + RECEIVED, True),
        (b"Return-Path: <x>\n" + LOCAL + SUBMITTED + RECEIVED, True),
        (RECEIVED.replace(b"192.0.2.7", b"IPv6:2001:db8::5"), True),
        (FORGED + RECEIVED, False),
        (FORGED, False),
        (b"", False),
        # what a client says in HELO is not its address
        (
            RECEIVED.replace(
                b"helo.example (name.example [192.0.2.7])", b"[192.0.2.7] (x [203.0.113.1])"
            ),
            False,
        ),
        (RECEIVED.replace(b"(name.example [192.0.2.7])", b"(helo=[192.0.2.7])"), False),
        (RECEIVED.replace(b"192.0.2.7", b"203.0.113.1") + RECEIVED, False),
        (RECEIVED.replace(b"by mx", b"(by mx.example.com) by mx"), True),
        (RECEIVED.replace(b"by mx.example.com", b"by (mx.example.com) evil.example"), False),
        (RECEIVED.replace(b"(name", b"((name"), False),
    ],
)
def test_client_of_the_topmost_received_field_of_a_named_host(header, matches):
    condition, top = "client: [192.0.2.0/24, '2001:db8::/32']", "received-by: MX.example.com"
    assert decided(condition, header + b"\n", top=top) == matches
    assert not decided(condition, header + b"\n")  # no host is named


AUTH = b"Authentication-Results: mx.example.com; %s\nReceived: x by mx.example.com\nFrom: ann@a.example.org\n\n"


@pytest.mark.parametrize(
    "results, matches",
    [
        (b"dmarc=pass header.from=a.example.org", True),
        (b"dmarc=pass (p=none)", True),
        (b"dmarc=pass header.from=b.example", False),
        (b"dmarc=fail header.from=a.example.org", False),
        (b"dkim=pass header.d=a.example.org", True),
        (b"dkim=pass header.i=@example.org", True),
        (b"dkim=pass header.d=evil.example; dkim=pass header.d=example.org", True),
        (b"dkim=pass header.d=evil.example", False),
        (b"dkim=pass header.d=x.a.example.org", False),
        (b"dkim=pass", False),
        (b"spf=pass smtp.mailfrom=a.example.org", False),
        (b"none", False),
    ],
)
def test_authenticated_sender(results, matches):
    condition = "domain: example.org, authenticated: true"
    assert decided(condition, AUTH % results) == matches
    assert not decided(condition, (AUTH % results).replace(b"Results: mx", b"Results: other"))


def test_first_rule_that_matches_decides():
    found = rules(
        "rules:\n"
        "- {rule: one, answer: no, sender: ann@example.org}\n"
        "- {rule: two, answer: spam, domain: example.org}\n"
        "- {rule: three, answer: no, domain: example.org}\n"
    )
    name = lambda who: (r := found.match(f"From: {who}\n\n".encode())) and (r.name, r.answer)
    assert name("ann@example.org") == ("one", "no")
    assert name("bob@example.org") == ("two", "yes")
    assert name("bob@example.net") is None


@settings(max_examples=300, deadline=None)
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_glob_is_that_of_the_shell(pattern, text):
    import fnmatch

    assert glob(pattern, text) == fnmatch.fnmatchcase(text, pattern)


# Bad files.

GOOD = "rules:\n  - rule: a\n    answer: no\n    domain: example.org\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "line 1: is not a mapping with received-by, rules"),
        ("received-by: mx.example.com\n", "line 1: rules: is missing"),
        ("rules: 1\n", "line 1: rules: is not a list of at most 1000 rules"),
        ("rules:\n  - 1\n", "line 2: is not a mapping with rule, answer"),
        (GOOD + "colour: red\n", 'line 5: unknown key "colour"; known are received-by, rules'),
        (GOOD + "    form: x\n", 'line 5: unknown key "form"; known are rule, answer, sender'),
        (GOOD.replace("no", "maybe"), 'line 3: answer: "maybe" is none of yes, no, spam'),
        (GOOD.replace("    answer: no\n", ""), "line 2: answer: is no word"),
        (GOOD.replace("rule: a", "rule: A b"), 'line 2: rule: "A b" is not a name of 1 to 40'),
        (GOOD.replace("rule: a", "rule: 7"), "line 2: rule: is no word"),
        (
            GOOD.replace("    domain: example.org\n", ""),
            "line 2: the rule has none of sender, domain",
        ),
        (GOOD + GOOD[7:], "line 5: rule: two rules are called a"),
        (GOOD.replace("example.org", "7"), "line 4: domain: is no text of 1 to 320 characters"),
        (GOOD.replace("example.org", "[]"), "line 4: domain: is empty"),
        (GOOD.replace("example.org", "[a.example,\n      'b c']"), 'line 5: "b c" is no domain'),
        (GOOD.replace("example.org", "bücher.example"), "line 4: "),
        (
            GOOD.replace("example.org", "a@example.org"),
            'line 4: domain: "a@example.org" is no domain',
        ),
        (GOOD.replace("domain", "sender"), 'line 4: sender: "example.org" has no @'),
        (GOOD.replace("domain: example.org", "client: 192.0.2.1/24"), "line 4: client: "),
        (
            GOOD.replace("domain: example.org", "client: [192.0.2.1,\n      x]"),
            'line 5: client: "x"',
        ),
        (GOOD + "    authenticated: 1\n", "line 5: authenticated: is not true or false"),
        (GOOD + "    authenticated: true\n", "line 5: authenticated: needs a server to trust"),
        ("received-by: 'a b'\n" + GOOD, 'line 1: "a b" is no domain'),
        ("rules: &a []\n", "line 1: aliases and anchors are not read"),
        ("rules: !!python/object:os.system []\n", "line 1: the tag "),
        ("rules: [\n", "line 2: "),
        (GOOD.replace("example.org", f"[{'a.b,' * 50_001}]"), "line 4: domain: more than 50000"),
        (
            GOOD.replace("example.org", f"[{chr(39)}*.b{chr(39)}" + ",'*.b'" * 1000 + "]"),
            "line 4: domain: more",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_bad_file_is_named_with_its_line(text, message):
    with pytest.raises(DataError) as e:
        rules(text)
    assert str(e.value).startswith(f"r.yaml: {message}"), e.value
    assert "\n" not in str(e.value) and len(str(e.value)) < 300


def test_large_file_matches_at_once():
    """By look-ups, not one pattern after the other: 50,000 patterns, 2,000 messages."""
    addresses = ", ".join(f"'u{i}@d{i}.example'" for i in range(25_000))
    networks = ", ".join(f"10.{i >> 8}.{i & 255}.0/24" for i in range(25_000))
    text = "rules:\n- {rule: a, answer: no, sender: [%s]}\n- {rule: b, answer: no, client: [%s]}\n"
    found = rules(text % (addresses, networks))
    for i in range(2000):
        mail = f"From: u{i}@d{i}.example\n\n".encode()
        assert found.match(mail).name == "a"
        assert found.match(b"From: x@y.example\n\n", f"10.0.{i & 255}.9").name == "b"


# The file.


def test_file_is_read_again_when_it_changes(tmp_path):
    path, said = tmp_path / "r.yaml", []
    path.write_text(GOOD)
    file = rule_file.RuleFile(str(path), ANSWERS, (), said.append)
    mail = b"From: a@example.org\n\n"
    assert file.current().match(mail).answer == "no" and file.current() is file.current()
    path.write_text(GOOD.replace("answer: no", "answer: yes"))
    assert file.current().match(mail).answer == "yes"
    path.write_text("rules: 1\n")
    assert file.current().match(mail).answer == "yes"
    path.unlink()
    assert file.current().match(mail).answer == "yes" and file.current()
    assert [line.split(": ", 1)[1] for line in said] == [
        "line 1: rules: is not a list of at most 1000 rules; the rules stay as they were",
        "No such file or directory; the rules stay as they were",
    ]
    path.write_text(GOOD)
    assert file.current().match(mail).answer == "no" and len(said) == 2


@pytest.mark.parametrize("how", ["link", "others", "fifo", "directory", "large"])
def test_file_that_others_could_have_written_is_refused(tmp_path, how):
    path = tmp_path / "r.yaml"
    if how == "link":
        (tmp_path / "s.yaml").write_text(GOOD)
        path.symlink_to("s.yaml")
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()
    else:
        path.write_text(GOOD + "#" * (rule_file.MAX_BYTES if how == "large" else 0))
        path.chmod(0o666 if how == "others" else 0o644)
    with pytest.raises(DataError, match="r.yaml: "):
        rule_file.RuleFile(str(path), ANSWERS)  # it does not wait for a writer of the FIFO


BYTES = st.binary(max_size=200)


@settings(max_examples=200, deadline=None)
@given(
    BYTES,
    st.sampled_from([b"", b"From: ", b"Received: ", b"List-Id: <"]),
    st.none() | st.text(max_size=20),
)
def test_no_message_is_beyond_the_rules(data, begin, client):
    found = rules(
        "received-by: mx.example.com\n"
        "rules:\n- {rule: a, answer: no, sender: '*@*', client: 0.0.0.0/0, list-id: '*'}\n"
    )
    found.match(begin + data, client)
