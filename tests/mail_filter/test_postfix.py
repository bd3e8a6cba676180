"""mail-filter behind Debian's Postfix: what Postfix does with each end of a filter, and that any
mail arrives as without it.
"""

import base64
import re
import signal
import subprocess
import time

import dkim
import letters
import postfix
import pytest
from filtered import PLAIN, filtered

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]


def transaction(client, sender, recipients, data, *options, bdat=False):
    """One mail with an envelope as it is, no quoting by smtplib; the codes that are not 250, by
    what they answered.
    """
    client.command_encoding = "utf-8"
    client.ehlo_or_helo_if_needed()
    codes = {"MAIL": client.docmd("MAIL", " ".join([f"FROM:<{sender}>", *options]))}
    codes.update({to: client.docmd("RCPT", f"TO:<{to}>") for to in recipients})
    if all(code == 250 for code, _ in codes.values()):
        if bdat:
            client.send(b"BDAT %d LAST\r\n" % len(data) + data)
            codes["DATA"] = client.getreply()
        else:
            codes["DATA"] = client.data(data)
    else:
        client.rset()
    return {what: answer for what, answer in codes.items() if answer[0] != 250}


# --- what pipe(8) makes of a filter's end ---

STUB = r"""#!/bin/sh
# The local part of the recipient says how to end.
case $1 in
unread-*) exit "${1#*-}" ;;
hang) exec sleep 600 ;;
esac
cat >/dev/null
case $1 in
exit-*) exit "${1#*-}" ;;
signal-*) ulimit -c 0; exec env --default-signal sh -c 'kill -"$0" $$; sleep 60' "${1#*-}" ;;  # Postfix has SIGPIPE ignored
say-*) IFS=-; set -- $1; echo "$2 said"; exit "$3" ;;
esac
"""
STUB_SERVICE = (
    "stub unix - n n - 20 pipe\n  flags=Rq user=filter null_sender= argv=/etc/postfix/stub"
    " ${user}\n"
)
SIGNALS = (
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "TRAP",
    "ABRT",
    "BUS",
    "FPE",
    "KILL",
    "USR1",
    "SEGV",
    "USR2",
    "PIPE",
    "ALRM",
    "TERM",
)
DEFERRED_CODES = {71, 75}  # EX_OSERR, EX_TEMPFAIL
NAMED_CODES = set(range(64, 79))  # what <sysexits.h> names


def expected():
    """{local part: (status, first digit of the code, part of the reason)}: the contract of
    pipe(8).
    """
    table = {
        "exit-0": ("sent", "2", "delivered"),
        "unread-0": ("sent", "2", "delivered"),
        "hang": ("bounced", "5", "Command time limit exceeded"),
    }
    for code in range(1, 256):
        if code in DEFERRED_CODES:
            table[f"exit-{code}"] = "deferred", "4", "" if code == 71 else "temporary failure"
        else:
            table[f"exit-{code}"] = (
                "bounced",
                "5",
                "" if code in NAMED_CODES else f"Command died with status {code}",
            )
    for name in SIGNALS:
        table[f"signal-{name}"] = (
            "deferred",
            "4",
            f"Command died with signal {int(getattr(signal, 'SIG' + name))}",
        )
    for code in (1, 64, 70, 71, 75, 127):
        table[f"say-4.7.1-{code}"] = "deferred", "4", "said"
        table[f"say-5.7.1-{code}"] = "bounced", "5", "said"
        table[f"unread-{code}"] = (
            "deferred" if code in DEFERRED_CODES else "bounced",
            "4" if code in DEFERRED_CODES else "5",
            "",
        )
    table["say-4.7.1-0"] = table["say-5.7.1-0"] = "sent", "2", "delivered"
    return table


def test_postfix_handles_each_exit_status_as_documented():
    table = expected()
    main = {
        "default_transport": "stub",
        "relayhost": "",
        "stub_destination_recipient_limit": "1",
        "stub_time_limit": "15s",
        "minimal_backoff_time": "1h",
        "maximal_backoff_time": "1h",
        "smtpd_recipient_limit": "1000",
    }
    with postfix.Postfix(main, STUB_SERVICE) as p:
        stub = p.directory / "etc/postfix/stub"
        stub.write_text(STUB)
        stub.chmod(0o755)
        body = b"Subject: x\r\n\r\n" + b"more than a pipe holds, in a line\r\n" * 10000
        with p.smtp() as client:  # a domain each: no delivery waits for another's failure
            refused = client.sendmail(
                "", [f"{name}@d{n}.example.org" for n, name in enumerate(table)], body
            )
        assert not refused
        end = time.monotonic() + 180
        while len(p.deliveries()) < len(table) and time.monotonic() < end:
            time.sleep(0.1)
        seen = {
            to.split("@")[0]: (status, dsn[0], text) for _, to, dsn, status, text in p.deliveries()
        }
    wrong = {
        name: (seen.get(name), row)
        for name, row in table.items()
        if name not in seen or seen[name][:2] != row[:2] or row[2] not in seen[name][2]
    }

    assert not wrong and len(seen) == len(table) >= 290


# --- what arrives is what arrives without the filter, but for our fields ---

ADDRESSES = (
    "-dash@example.net",
    "--@example.net",
    '"quoted local"@example.net',
    r'"a\"b"@example.net',
    r'"back\\slash"@example.net',
    '"-f x"@example.net',
    '"@"@example.net',
    '"a,b"@example.net',
    '"<a>"@example.net',
    '" "@example.net',
    "user+ext@example.net",
    "a=b@example.net",
    "it's@example.net",
    "$(id)@example.net",
    "`id`@example.net",
    "|id@example.net",
    "a;b@example.net",
    "#%&*@example.net",
    "~root@example.net",
    "a!b@example.net",
    "{a}@example.net",
    "${sender}@example.net",
    "a%b@example.net",
    "jörg@example.net",
    "名前@example.net",
    "a@bücher.example",
    "x" * 64 + "@example.net",
    '"From "@example.net',
    '"a b" @example.net',
    "root@[127.0.0.1]",
    "owner-x@example.net",
    "a..b@example.net",
    ".a@example.net",
    '""@example.net',
)


def both_ways(p, sink, mails):
    """Send each (sender, recipients, data, options) without and with the filter: [(without, with)],
    None twice where smtpd refused.
    """
    refused = []
    for n, (sender, recipients, data, *options) in enumerate(mails):
        bdat = "BDAT" in options
        options = [o for o in options if o != "BDAT"]
        answers = []
        for port in (PLAIN, 25):
            with p.smtp(port) as client:
                answers.append(
                    transaction(
                        client,
                        sender,
                        [*recipients, f"{n}@{port}.example"],
                        data,
                        *options,
                        bdat=bdat,
                    )
                )
        assert bool(answers[0]) == bool(answers[1]), (mails[n], answers)
        refused.append(bool(answers[0]))
    sink.wait(2 * refused.count(False))
    p.drain()
    found = {to: mail for mail in sink.mails for to in mail.recipients}
    return [
        (found.get(f"{n}@{PLAIN}.example"), found.get(f"{n}@25.example")) for n in range(len(mails))
    ]


def differences(pair):
    """What differs between the mail without and with the filter that may not."""
    a, b = pair
    return [
        name
        for name, x, y in (
            ("sender", a.sender, b.sender),
            (
                "recipients",
                *(
                    sorted(to for to in mail.recipients if not re.match(r"\d+@", to))
                    for mail in pair
                ),
            ),
            ("data", letters.without_ours(a.data), letters.without_ours(b.data)),
            ("own fields", True, letters.marked_once(b.data)),
        )
        if x != y
    ]


def test_any_envelope_and_any_bytes_arrive_as_without_the_filter():
    text = b"Subject: x\r\n\r\nbody\r\n"
    mails = []
    for address in ADDRESSES:
        utf8 = [] if address.isascii() else ["SMTPUTF8"]
        mails += [
            (address, ["to@example.org"], text, *utf8),
            ("from@example.net", [address], text, *utf8),
        ]
    mails += [
        ("", ["to@example.org"], text),
        ("from@example.net", ["to@example.org"], text, "BODY=8BITMIME"),
        (
            "from@example.net",
            ["to@example.org"],
            "Subject: ü\r\n\r\nü\r\n".encode(),
            "BODY=8BITMIME",
            "SMTPUTF8",
        ),
        ("from@example.net", [*ADDRESSES[4:12], "to@example.org"], text),
    ]
    mails += [
        ("from@example.net", ["to@example.org"], letters.crlf(data)) for data in letters.hostile()
    ]
    mails += [
        ("from@example.net", ["to@example.org"], data, "BDAT")
        for data in (b"Subject: no end", b"no header, no end", b"a: b\r\n\r\n.\r\n..\r\n.", b"x")
    ]
    with filtered({"allow_min_user": "yes"}) as (p, sink):
        found = both_ways(p, sink, mails)
    wrong = [
        (mails[n][:2], differences(pair), pair)
        for n, pair in enumerate(found)
        if pair[0] and differences(pair)
    ]
    assert not wrong
    assert sum(pair[0] is not None for pair in found) >= 90


def test_message_to_a_thousand_recipients_arrives_once_at_each():
    everybody = [f"r{n}@d{n % 7}.example.org" for n in range(999)]
    with filtered() as (p, sink):
        both_ways(p, sink, [("from@example.net", everybody, letters.crlf(letters.ordinary()[0]))])
        got = [to for mail in sink.mails for to in mail.recipients if to[0] == "r"]
        bodies = {letters.without_ours(mail.data) for mail in sink.mails}
        assert sorted(got) == sorted(2 * everybody) and len(bodies) == 1


@pytest.mark.parametrize("header", ["raw latin-1", "raw utf-8"])
def test_headers_for_a_hop_without_smtputf8_stay_the_same(header):
    data = "Subject: Grüße\r\nFrom: Jürgen <j@example.net>\r\n\r\nx\r\n".encode(
        "utf-8" if header == "raw utf-8" else "latin-1"
    )
    with filtered() as (p, sink):
        sink.extensions = tuple(e for e in sink.extensions if e != "SMTPUTF8")
        (pair,) = both_ways(p, sink, [("from@example.net", ["to@example.org"], data)])
        assert not differences(pair)


def test_signatures_hold():
    """DKIM, simple and relaxed, over all headers that a mail has and one that it has not."""
    key, public = dkim_key()
    mails = []
    for n, data in enumerate((letters.ordinary() * 4)[:20]):
        data = letters.crlf(
            b"X-Number: %d\n" % n + re.sub(rb"(?im)^(x-spam-|dkim-).*\n([ \t].*\n)*", b"", data)
        )
        how = (b"simple", b"relaxed")[n % 2]
        names = {
            name.lower()
            for name in re.findall(rb"(?m)^([!-9;-~]+):", data.partition(b"\r\n\r\n")[0])
        } - {b"received", b"delivered-to"}
        signed = dkim.sign(
            data,
            b"s",
            b"example.net",
            key,
            canonicalize=(how, how),
            include_headers=[*names, b"from", b"x-absent"],
        )
        mails.append(("from@example.net", ["to@example.org"], signed + data))
    with filtered() as (p, sink):
        found = both_ways(p, sink, mails)
    for pair in found:
        assert not differences(pair) and all(
            dkim.verify(mail.data, dnsfunc=lambda *_, **__: public) for mail in pair
        )
        changed = pair[1].data.replace(b"\r\n\r\n", b"\r\n\r\nx", 1)
        assert not dkim.verify(changed, dnsfunc=lambda *_, **__: public)


def dkim_key():
    """(a new private key, the record of its public key)."""
    pem = subprocess.run(
        ["openssl", "genrsa", "-traditional", "2048"], capture_output=True, check=True
    ).stdout
    public = subprocess.run(
        ["openssl", "rsa", "-pubout", "-outform", "DER"], input=pem, capture_output=True, check=True
    ).stdout
    return pem, b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)


# --- headers that only look like ours ---


def forgeries():
    """A hundred spellings of a header of the X-Spam- family, each with the text `forged`."""
    names = (
        "X-Spam-Flag",
        "X-Spam-Status",
        "X-Spam-Score",
        "X-Spam-Checker-Version",
        "X-Spam-Level",
        "X-Spam-Report",
        "X-Spam-",
        "X-Spam-\x7e",
    )
    values = (
        "forged",
        "YES forged",
        "No, forged",
        "\r\n\tforged",
        "forged\r\n forged",
        "\tforged",
        "=?utf-8?q?forged?=",
        "unchecked; reason=forged",
    )
    found = [f"{name}: {value}" for name in names for value in values]
    found += [
        f"{name}{colon}forged"
        for name in ("X-Spam-Flag", "x-spam-status", "X-SPAM-FLAG", "x-Spam-sCORE")
        for colon in (":", " :", "\t: ", "  \t :")
    ]
    found += [
        f"X-Spam-Flag: forged\r\n{again}"
        for again in (
            "X-Spam-Flag: forged",
            "Subject: y\r\nX-Spam-Flag: forged",
            "x-spam-flag : forged",
            " forged",
        )
    ]
    found += [
        f"{before}\r\nX-Spam-Flag: forged"
        for before in (
            "Subject:",
            "To: a\r\n\tb",
            "A: b" * 300,
            "Y: c\r\nZ: d",
            "X-Spam: kept",
            "X-Spamforged: kept",
        )
    ]
    found += [
        "X-Spam-Flag: forged" * 5000,
        "X-Spam-" + "x" * 900 + ": forged",
        "X-Spam-Flag: \xe4\xf6 forged",
        "X-Spam-Flag: a\0forged",
        "X-Spam-Flag: \r forged",
        "X-Spam-Flag:\r\n \r\n forged",
        "X-Spam-Flag: forged\r\n" * 200 + "A: b",
        "X-Spam-Flag: forged\r\n\t\x0bforged",
        "X-Spam-Status:forged",
        "X-Spam-Flag:\x00forged",
    ]
    return [text.encode("latin-1") for text in found]


def test_no_forged_header_survives_and_nested_ones_stay():
    body = (
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nX-Spam-Flag:"
        b" nested\r\n\r\nX-Spam-Flag: text\r\n--b\r\nContent-Type:"
        b" message/rfc822\r\n\r\nX-Spam-Status: attached\r\n\r\nx\r\n--b--\r\n"
    )
    heads = forgeries()
    mails = [("from@example.net", ["to@example.org"], head + b"\r\n" + body) for head in heads]
    with filtered() as (p, sink):
        found = both_ways(p, sink, mails)
    assert len(found) >= 100
    for head, pair in zip(heads, found):
        assert not differences(pair), (head, pair)
        fields, rest = letters.split(pair[1].data)
        assert not any(b"forged" in f for f in fields if letters.OWN.match(f)), (head, fields)
        assert rest == letters.split(pair[0].data)[1] and rest.count(b"X-Spam-") == 3
