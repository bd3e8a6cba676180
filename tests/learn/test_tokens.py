"""tokens.of: what learning counts of a text, and that hostile input is bounded."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.learn import tokens
from sluice.texts import inputs

MAIL = b"""Received: from mx.birds.example (mx.birds.example [192.0.2.7])
\tby mail.home.example with ESMTP id 4711; Thu, 26 Nov 2026 10:00:00 +0000
Return-Path: <bounce-17@birds.example>
From: =?utf-8?q?J=C3=B6rg?= <joerg@birds.example>
To: me@home.example
Subject: A heron
Date: Thu, 26 Nov 2026 10:00:00 +0000
Message-ID: <4711@birds.example>
List-Id: <users.birds.example>
X-Spam-Status: yes score=9
Authentication-Results: mail.home.example; spf=pass
References: <1@x.example>
Status: RO

A heron stood there, 17 minutes.
"""


def of_mail(mail):
    return tokens.of(inputs.text(mail, True, True)[0], None, tokens.header_of(mail))


def test_tokens_are_words_and_header_fields():
    found = of_mail(MAIL)
    assert {"heron", "stood", "minutes", "00"} <= found
    assert {"subject:heron", "has:list-id", "list-id:users.birds.example"} <= found
    assert {"rcvd:mx.birds.example", "rcvd:mail.home.example", "from:jörg"} <= found
    assert {"from:@birds.example", "return-path:@birds.example", "to:me@home.example"} <= found


def test_what_identifies_a_message_or_is_a_verdict_is_no_token():
    names = {token.partition(":")[0] for token in of_mail(MAIL) if ":" in token}
    names |= {token.partition(":")[2] for token in of_mail(MAIL) if token.startswith("has:")}
    assert not names & {
        "date",
        "message-id",
        "x-spam-status",
        "authentication-results",
        "references",
        "status",
    }


def test_same_mail_with_what_mailboxes_add_has_the_same_tokens():
    more = b"X-UID: 7\nX-Bogosity: Ham\nX-Spam-Flag: NO\nContent-Length: 33\nX-Keywords: a\n"
    assert of_mail(more + MAIL) == of_mail(MAIL) == of_mail(MAIL.replace(b"\n", b"\r\n"))


def test_text_that_is_no_message_has_words_alone():
    text = b"Note: a list\nhas: two lines\n\nand a rest\n"
    assert not [token for token in of_mail(text) if ":" in token]
    assert tokens.of(b"Hello WORLD, hello 12!", is_folded=False) == {"hello", "world", "00"}


def test_of_many_words_those_at_both_ends_count():
    words = [f"w{chr(97 + i % 26)}{i}" for i in range(5000)]
    found = tokens.of(" ".join(words).encode())
    assert len(found) == tokens.MAX_TOKENS and {words[0], words[-1]} <= found
    assert words[2500] not in found
    assert tokens.of(b"a" * 100, b"tail words") >= {"tail", "words"}


@given(st.lists(st.text("abc\xe9 \n", max_size=8), max_size=30), st.randoms())
def test_order_and_repetition_of_words_do_not_count(words, draw):
    one = tokens.of(" ".join(words).encode())
    words = words * 2
    draw.shuffle(words)
    assert tokens.of(" ".join(words).encode()) == one


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_bytes_have_tokens(header, text):
    for head in (header, b"From: a@b.example\nX: " + header):
        found = tokens.of(text, None, tokens.header_of(head + b"\n\n" + text), is_folded=False)
        assert len(found) <= tokens.MAX_TOKENS and all(isinstance(x, str) for x in found)


HOSTILE = {
    "one line of 10 MB": b"From: a\nSubject: " + b"a b" * 3_500_000 + b"\n\nx",
    "a million fields": b"From: a\n" + b"".join(b"X%d: y\n" % i for i in range(1_000_000)),
    "encoded words": b"From: a\n" + b"Subject: " + b"=?utf-8?q?=C3?= " * 500_000 + b"\n\nx",
    "encoded words in each field": b"From: a\n"
    + b"X-A: =?utf-8?b?w7zDvMO8?= =?x?q?a?=\n" * 200_000,
    "hosts": b"From: a\nReceived: " + b"from a.a.a.a.a by " * 500_000 + b"\n\nx",
    "dots": b"From: a\nReceived: from " + b"a." * 5_000_000 + b"\n\nx",
    "continuations": b"From: a\nSubject: a\n" + b" b\n" * 3_000_000 + b"\nx",
    "words": b"From: a\n\n" + b" ".join(b"w%x" % i for i in range(1_200_000)),
    "no space": b"From: a\n\n" + b"x" * 10_000_000,
    "commas": b"From: " + b",@" * 5_000_000 + b"\n\nx",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mails_are_bounded(name):
    """A bound, not a timing: what is square in 10 MB takes hours."""
    mail = HOSTILE[name]
    began = time.process_time()
    header = tokens.header_of(mail)
    found = tokens.of(mail.partition(b"\n\n")[2], None, header, is_folded=False)
    assert time.process_time() - began < 2 and len(found) <= tokens.MAX_TOKENS
    assert max(map(len, found), default=0) < 150
