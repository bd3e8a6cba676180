"""Header fields in their order, and the signals of a server: what counts, and what anybody could
have written.
"""

import email
import email.policy
import re

import pytest
from conftest import ROOT, find_data
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.mail import fields, signals

MX = "mx.example.com"
RECEIVED = "Received: from a.example.org (a.example.org [192.0.2.1]) by mx.example.com; now\n"


def found(header, *ids):
    """Tokens without the prefix, sorted."""
    return sorted(
        token.removeprefix(signals.PREFIX)
        for token in signals.tokens(header.encode("latin-1"), ids)
    )


def auth(value, *ids):
    return found(f"Authentication-Results: {value}\n\n", *(ids or (MX,)))


# Authentication-Results.


def test_results_of_a_trusted_server_count_with_the_domains_that_passed():
    """The examples of RFC 8601, appendix B, for the host that a reader trusts."""
    assert auth("mx.example.com 1; none") == []
    assert auth("mx.example.com; spf=pass smtp.mailfrom=example.net") == [
        "spf=pass",
        "spf=pass/example.net",
    ]
    value = (
        "mx.example.com;\n auth=pass (cram-md5) smtp.auth=sender@example.net;\n"
        " spf=fail smtp.mailfrom=example.net"
    )
    assert auth(value) == ["auth=pass", "spf=fail"]
    value = (
        'mx.example.com;\n dkim=pass reason="good; signature" header.i=@mail-router.example.net;\n'
        ' dkim=fail reason="bad" header.d=newyork.example.com'
    )
    assert auth(value) == ["dkim=fail", "dkim=pass", "dkim=pass/mail-router.example.net"]
    value = (
        "MX.example.com (a comment; dkim=pass) / 1 ;\r\n\tdmarc = pass (p=none; (nested) dis=none)\r\n"
        "\theader . from = Example.ORG"
    )
    assert auth(value.replace(" . ", ".")) == ["dmarc=pass", "dmarc=pass/example.org"]


@pytest.mark.parametrize(
    "value",
    [
        "other.example; spf=pass",
        "mx.example.com.evil.example; spf=pass",
        "(mx.example.com) other.example; spf=pass",
        "",
        ";;;",
        "mx.example.com",
        "mx.example.com; spf",
        "mx.example.com; =pass",
        "mx.example.com; spf=certainly",
        "mx.example.com; x-mine=pass",
        "mx.example.com; spf=pass (a comment that does not end",
        'mx.example.com; spf=pass reason="a string that does not end',
        "mx.example.com; spf=pass) smtp.mailfrom=a.example",
    ],
)
def test_results_of_others_and_malformed_ones_are_ignored(value):
    assert auth(value) == []


def test_nobody_is_trusted_unless_named():
    assert found(f"Authentication-Results: {MX}; spf=pass\n\n") == []


def test_results_that_came_with_the_message_lie_below_received_and_are_ignored():
    mine = f"Authentication-Results: {MX}; dkim=fail\n"
    forged = f"Authentication-Results: {MX}; dkim=pass header.d=bank.example; spf=pass\n"
    for header in (mine + RECEIVED + forged, RECEIVED + mine + RECEIVED + forged):
        assert found(header + "\n", MX) == ["dkim=fail"]
    # right below the server's own field: the first field of a method decides
    assert "dkim=pass" not in found(RECEIVED + mine + forged + "\n", MX)


def test_several_servers_may_be_trusted():
    header = (
        "Authentication-Results: spf.example.com; spf=pass\n"
        f"Authentication-Results: {MX}; dkim=pass\n{RECEIVED}\n"
    )
    assert found(header, MX, "SPF.example.com") == ["dkim=pass", "spf=pass"]


# The other fields.


def test_received_spf_counts_at_the_top_and_for_this_server():
    line = "Received-SPF: SoftFail (mx.example.com: domain) client-ip=192.0.2.1; receiver=%s;\n"
    assert found(line % MX + RECEIVED + "\n") == ["spf=softfail"]
    assert found(line % MX + RECEIVED + "\n", MX) == ["spf=softfail"]
    assert found(line % "other.example" + RECEIVED + "\n", MX) == []
    assert found(RECEIVED + RECEIVED + line % MX + "\n", MX) == []
    both = f"Authentication-Results: {MX}; spf=fail\n" + line % MX + RECEIVED + "\n"
    assert found(both, MX) == ["spf=fail"]


@pytest.mark.parametrize(
    "header, wanted",
    [
        ("DKIM-Signature: v=1; d=x\n", ["dkim-signature"]),
        ("List-Id: The users' list <Users.Example.org>\n", ["list=users.example.org"]),
        ('List-Id: "a <b>" <users.example.org>\n', ["list=users.example.org"]),
        ("List-Id: users.example.org\n", ["list=users.example.org"]),
        ("List-Id: no id at all\n", []),
        ("List-Unsubscribe: <mailto:x@y.example>\n", ["unsubscribe=mail"]),
        (
            "List-Unsubscribe: <https://y.example/u>,\n <mailto:x@y.example>\n",
            ["unsubscribe=mail", "unsubscribe=web"],
        ),
        (
            "List-Unsubscribe: <https://y.example/u>\n"
            "List-Unsubscribe-Post: List-Unsubscribe=One-Click\n",
            ["unsubscribe=one-click"],
        ),
        ("From: a@x.example\nReply-To: a@y.example\n", ["reply-to=other"]),
        ("From: a@x.example\nReply-To: A <b@lists.X.example>\n", []),
        ("From: a@x.example, b@z.example\nReply-To: a@y.example\n", []),
        ("From: a@x.example\n", []),
    ],
)
def test_field(header, wanted):
    assert found(header + "\nList-Id: <of.the.body>\n") == wanted


def test_words_name_no_domain_and_no_list():
    header = (
        f"Authentication-Results: {MX}; dkim=pass header.d=secret.example; spf=none\n{RECEIVED}"
        "List-Id: <secret.example>\nDKIM-Signature: x\nFrom: a@b.example\nReply-To: a@c.example\n\n"
    )
    assert signals.words(signals.tokens(header.encode(), [MX])) == [
        "dkim-signature",
        "dkim:pass",
        "list",
        "reply-to:other",
        "spf:none",
    ]


# Addresses.


@pytest.mark.parametrize(
    "value, wanted",
    [
        ("Ann <Ann@Example.ORG>", "ann@example.org"),
        ("ann@example.org", "ann@example.org"),
        ("ann@example.org (Ann)", "ann@example.org"),
        ('"Doe, Ann" <ann@example.org>', "ann@example.org"),
        ('"ann@good.example" <ann@bad.example>', "ann@bad.example"),
        ("(ann@good.example) <ann@bad.example>", "ann@bad.example"),
        ("=?utf-8?q?=C3=84nn?= <ann@example.org>", "ann@example.org"),
        ("<ann@good.example> <ann@bad.example>", ""),
        ("ann@good.example, <ann@bad.example>", ""),
        ("ann@good.example <ann@bad.example>", "ann@bad.example"),
        ("friends: ann@example.org;", ""),
        ("<@relay.example:ann@example.org>", ""),
        ("<ann@example.org", ""),
        ('"ann <ann@example.org>', ""),
        ("ann", ""),
        ("@example.org", ""),
        ("ann@", ""),
        ("ann@exa mple.org", ""),
        ("ann@[192.0.2.1]", ""),
        ("ann@example..org", ""),
        ("", ""),
        ("a" * 65 + "@example.org", ""),
    ],
)
def test_address(value, wanted):
    assert fields.address(value) == wanted


# Hostile input.

BYTES = st.binary(max_size=300) | st.text(max_size=300).map(str.encode)
VALUES = st.lists(
    st.sampled_from(
        [
            *'()"\\;=/<>@, \t',
            "\r\n ",
            "\n\t",
            MX,
            "spf",
            "dkim",
            "pass",
            "header.d",
            "example.org",
            "receiver",
        ]
    ),
    max_size=40,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    BYTES, VALUES, st.sampled_from(["From", "Authentication-Results", "List-Id", "Received-SPF"])
)
def test_any_bytes_give_bounded_tokens(data, value, name):
    for mail in (
        data,
        f"{name}: {value}\n\n".encode() + data,
        data + f"\n{name}: {value}".encode(),
    ):
        got = signals.tokens(mail, [MX])
        assert len(got) <= signals.MAX_TOKENS
        assert all(re.fullmatch(r"signal:[a-z0-9=/._-]{1,300}", token) for token in got)
        assert all(re.fullmatch(r"[a-z:-]{1,40}", word) for word in signals.words(got))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z][A-Za-z-]{0,8}", fullmatch=True),
            st.lists(st.from_regex(r"[!-~]{1,9}", fullmatch=True), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_fields_are_those_of_pythons_parser(pairs):
    text = "".join(
        f"{name}: {chr(10).join(' ' + w for w in words)[1:]}\r\n" for name, words in pairs
    )
    parsed = email.message_from_string(text + "\r\nbody", policy=email.policy.compat32)
    wanted = [(name.lower(), " ".join(value.split())) for name, value in parsed.items()]
    assert fields.fields((text + "\r\nbody: x").encode()) == wanted


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_comments_are_removed_or_the_value_is_refused(value):
    text = fields.without_comments(value)
    if text is not None and "\\" not in value and '"' not in value:
        assert "(" not in text and ")" not in text
        assert value.count("(") == value.count(")")


@pytest.mark.parametrize(
    "mail",
    [
        b"Authentication-Results: mx.example.com; " + b"(" * 200_000,
        b"Authentication-Results: mx.example.com; " + b"\\" * 200_000,
        b"Authentication-Results: mx.example.com" + b"; spf=pass" * 20_000,
        b"Authentication-Results: mx.example.com; spf" + b" =" * 60_000,
        b"From: " + b"<" * 100_000 + b"\nReply-To: " + b"@" * 20_000,
        b"From: " + b"a." * 60_000 + b"@x",
        b"x:\n" * 100_000,
        b"From x\n" * 100_000,
        b"A" * (1 << 20),
        b"List-Id: <" + b"a." * 60_000 + b"b>",
        b"Received-SPF: " + b"pass " * 25_000,
    ],
    ids=lambda m: repr(m[:30]),
)
def test_hostile_sizes_are_bounded(mail):
    """Work is linear: this would take minutes otherwise."""
    assert len(signals.tokens(mail, [MX])) <= signals.MAX_TOKENS
    assert sum(len(value) for _, value in fields.fields(mail)) <= fields.MAX_BYTES


def test_field_that_is_cut_off_is_not_read():
    mail = b"A: b\nFrom: ann@example.org" + b" " * fields.MAX_BYTES + b"\n\n"
    assert fields.fields(mail) == [("a", "b")]


def test_real_messages_give_their_lists():
    mails = {path.stem: path.read_bytes() for path in (ROOT / "tests/mails").glob("*.eml")}
    got = {stem: signals.words(signals.tokens(mail, [])) for stem, mail in mails.items()}
    assert "signal:list=ilug.linux.ie" in signals.tokens(mails["ham-mutt"], [])
    assert got == {
        "ham-apt": ["list", "reply-to:other", "unsubscribe:mail", "unsubscribe:web"],
        "ham-freetype": ["list", "reply-to:other", "unsubscribe:mail", "unsubscribe:web"],
        "ham-mutt": ["list"],
        "spam-cards": ["reply-to:other"],
        "spam-investment": [],
        "spam-search-engines": [],
    }


def test_samples_of_spamassassin_are_read_as_pythons_parser_reads_them():
    samples = find_data("spam/samples")
    if not samples:
        pytest.skip("no samples: set SLUICE_SHARED")
    n_lists = n_replies = 0
    for path in sorted(samples.glob("**/*.eml")):
        data = path.read_bytes()
        parsed = email.message_from_bytes(data)
        got = signals.tokens(data, [MX])
        value = str(parsed.get("list-id", ""))
        wanted = re.search(r"<([\w.-]+)>\s*$", value)
        n_lists += bool(wanted)
        assert (f"signal:list={wanted[1].lower()}" in got) == bool(wanted) if wanted else True
        assert ("signal:dkim-signature" in got) == ("dkim-signature" in parsed)
        n_replies += "signal:reply-to=other" in got
    assert n_lists and n_replies
