"""Messages for a Postfix with a filter: make them, send them, and compare their delivery with that
of the same Postfix without the filter.
"""

import random
import re
import smtplib
import threading
import time

from conftest import DATA, ROOT, find_data

OWN = re.compile(rb"x-spam-[!-9;-~]*[ \t]*:", re.I)
RECEIVED = re.compile(rb"received:.*\bby mx\.example\.com\b", re.I | re.S)
HEADER = re.compile(rb"[!-9;-~]+[ \t]*:")
WORDS = (
    "the of meeting invoice price kernel tomorrow offer free list patch please attached order"
    " account claim winner".split()
)


def crlf(data):
    """The same lines, each ended by CR LF, as SMTP has them."""
    return re.sub(rb"\r?\n", b"\r\n", data)


def ordinary():
    """Ordinary messages that Postfix does not change: those of the tests and, if present, samples."""
    paths = sorted((ROOT / "tests/mails").glob("*.eml"))
    if samples := find_data("spam/samples"):
        paths += sorted(samples.glob("*.eml"))
    mails = [
        re.sub(rb"\A(From .*\n)?", b"", re.sub(rb"(?m)^Return-Path:.*\n", b"", p.read_bytes()))
        for p in paths
    ]
    return [
        m
        for m in mails
        if len(m) < 60_000 and b"\r" not in m and max(map(len, m.split(b"\n"))) <= 990
    ]


def hostile():
    """Messages made to break a parser, and those of other test collections."""
    deep = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(90)
    )
    mails = [
        b"",
        b"\n",
        b"no header at all\nand a second line\n",
        b"Subject:no blank\nX\nY: z\n\nbody\n",
        b"Subject: only a header\n",
        b"Subject: eight bits\n\n" + bytes(range(128, 256)) * 20 + b"\n",
        b"Subject: nul\n\na\0b\0\0c\n",
        b"Subject: cr\n\na\rb\r\rc\r\r\nd\n",
        b"Subject: long\n\n" + b"x" * 100_000 + b"\n",
        b"Subject: " + b"y" * 50_000 + b"\n\nbody\n",
        b"Subject: dots\n\n.\n..\n...\n. .\n.x\n.\n",
        b"Subject: from\n\nFrom here on\n>From there\nFrom \n",
        b" leading blank\nSubject: x\n\nbody\n",
        b"From: " + b"(" * 500 + b"\n\nbody\n",
        deep + b"\nbottom\n",
        b"Content-Type: text/html\n\n" + b"<a " * 20_000,
        b"Content-Type: text/plain; charset=idna\n\n" + b"a" * 5000 + b"\n",
        (
            b"Content-Type: text/plain; charset=utf-7\nContent-Transfer-Encoding:"
            b" base64\n\n====\n!!!!\n"
        ),
        (
            b"Content-Type: multipart/mixed; boundary=a;"
            b" boundary=b\n\n--a\n\none\n--b\n\ntwo\n--a--\n--b--\n"
        ),
        b"To: " + b"a@b.example, " * 7000 + b"\n\nbody\n",
        (
            b"X-Spam-Flag: NO\nX-Spam-Status: No, score=0\n\tx-spam: y\nSubject:"
            b" forged\n\nX-Spam-Flag: body\n"
        ),
        b"Subject: \xff\xfe\nTo: \xe2\x80\xae\n\n\xf3\xa0\x81\x81 tags\n",
        b"\xef\xbb\xbfSubject: bom\n\nbody\n",
    ]
    files = sorted((DATA / "mime").rglob("*"))
    mails += [p.read_bytes() for p in files if p.is_file() and 0 < p.stat().st_size < 200_000]
    return [m for m in mails if not re.match(rb"From ", m)]


def load(n, seed=1):
    """[(recipient, bytes)]: n messages, one in ten hostile, the others with different texts."""
    rng = random.Random(seed)
    good, bad = ordinary(), hostile()
    mails = []
    for i in range(n):
        if rng.random() < 0.1:
            data = bad[i % len(bad)]
        else:
            line = b"Reference %d: %s\n\n" % (i, " ".join(rng.choices(WORDS, k=20)).encode())
            head, gap, body = rng.choice(good).partition(b"\n\n")
            data = head + gap + line + body
        mails.append((f"m{i}@example.org", crlf(data)))
    return mails


def connect(instance, port):
    """A client that announces no size: the limit is met where the bytes are counted."""
    client = instance.smtp(port)
    client.ehlo()
    client.esmtp_features.pop("size", None)
    return client


def send(
    instance, mails, port=25, senders=4, sender="from@example.net", options=(), gap=0.0, sent=None
):
    """Send as a mail server does, and retry after temporary errors.

    sent: {recipient: time of the answer}, filled in here.
    """
    todo, lock, errors = list(reversed(mails)), threading.Lock(), []

    def work():
        client = None
        while True:
            with lock:
                if not todo:
                    break
                to, data = todo.pop()
            for _ in range(600):
                try:
                    client = client or connect(instance, port)
                    client.sendmail(sender, [to], data, mail_options=options)
                    if sent is not None:
                        sent[to] = time.time()
                    break
                except smtplib.SMTPResponseException as e:
                    code = e.smtp_code
                except smtplib.SMTPRecipientsRefused as e:
                    ((code, _),) = e.recipients.values()
                except OSError:
                    code = 421
                if code >= 500:
                    errors.append((to, code))
                    break
                client = None
                time.sleep(0.2)
            else:
                errors.append((to, "never taken"))
            time.sleep(gap)
        if client:
            client.close()

    threads = [threading.Thread(target=work) for _ in range(senders)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


def split(data):
    """([header fields with their folded lines], the rest: empty line and body)."""
    fields, at = [], 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end]
        if fields and line[:1] in b" \t":
            fields[-1] += line
        elif HEADER.match(line):
            fields.append(line)
        else:
            break
        at = end
    return fields, data[at:]


def without_ours(data):
    """The message without the fields that Postfix's second pass and the filter may add or remove.

    These are Received and X-Spam- fields.
    """
    fields, rest = split(data)
    return b"".join(f for f in fields if not OWN.match(f) and not RECEIVED.match(f)) + rest


def own_fields(data):
    """{lower-case name: [values]} of the top-level X-Spam- fields."""
    found = {}
    for field in split(data)[0]:
        if OWN.match(field):
            name, _, value = field.partition(b":")
            found.setdefault(name.strip().lower().decode(), []).append(
                value.strip().decode("latin-1")
            )
    return found


def marked_once(data):
    """Whether the message has exactly one set of X-Spam fields, with a verdict or "unchecked"."""
    own = own_fields(data)
    if (
        any(len(values) != 1 for values in own.values())
        or not {"x-spam-status", "x-spam-checker-version"} <= own.keys()
    ):
        return False
    unchecked = re.fullmatch(r"unchecked; reason=[a-z]+", own["x-spam-status"][0])
    return len(own) == 2 if unchecked else len(own) == 4 and own["x-spam-flag"][0] in ("YES", "NO")
