"""Kinds of parts, encodings and links: what a client shows of them is the text."""

import base64
import codecs
import struct

import pytest
from conftest import run
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.mail import (
    bidi,
    charsets,
    enriched,
    flowed,
    ical,
    links,
    markup,
    message,
    mime,
    smime,
    tnef,
)


def read(head, body=b"", attached=False):
    """The Mail of a head (str, lines) and a body."""
    body = body.encode() if isinstance(body, str) else body
    return message.read(f"Subject: x\n{head}\n\n".encode() + body, attached)


def multipart(kind, *parts, parameters=""):
    """The head and body of a multipart; parts are (head, body)."""
    text = "".join(f"--b\n{head}\n\n{body}\n" for head, body in parts)
    return f"Content-Type: multipart/{kind}; boundary=b{parameters}", text + "--b--\n"


HTML, PLAIN = "Content-Type: text/html", "Content-Type: text/plain"


# Multiparts
# ------------------------------------------------------------------------------------------------


def test_related_shows_its_root_and_names_the_others():
    picture = ("Content-Type: image/png; name=a.png\nContent-ID: <a@x>", "x")
    note = (PLAIN + "; name=b.txt", "unseen")
    found = read(*multipart("related", (HTML, "<p>seen"), picture, note))
    assert (found.body, found.files) == ("seen", ["a.png", "b.txt"])


@pytest.mark.parametrize("start", ["<r@x>", "r@x", '"<r@x>"'])
def test_related_begins_where_start_says(start):
    parts = ((PLAIN + "\nContent-ID: <q@x>", "unseen"), (HTML + "\nContent-ID: <r@x>", "<p>seen"))
    found = read(*multipart("related", *parts, parameters=f"; start={start}"))
    assert (found.body, found.files) == ("seen", ["text/plain"])


def test_related_with_a_start_that_is_not_there_begins_with_its_first_part():
    parts = ((HTML, "<p>seen"), (PLAIN, "unseen"))
    assert read(*multipart("related", *parts, parameters="; start=z")).body == "seen"


def test_related_that_begins_with_a_picture_shows_the_text():
    parts = (("Content-Type: image/png", "x"), (HTML, "<p>seen"), (PLAIN, "unseen"))
    found = read(*multipart("related", *parts))
    assert (found.body, found.files) == ("seen", ["image/png", "text/plain"])


def test_related_names_the_files_in_a_multipart_that_it_does_not_show():
    inner = (
        "Content-Type: multipart/mixed; boundary=c",
        "--c\nContent-Type: text/plain; name=q.txt\n\nunseen\n--c--",
    )
    found = read(*multipart("related", (HTML, "<p>seen"), inner))
    assert (found.body, found.files) == ("seen", ["q.txt"])


ALTERNATIVE = [
    ("<a href=http://a.example><img src=x></a>", ""),
    ("<img src=x>", ""),
    ("<p style='display:none'>hidden</p>", ""),
    ("<body background=x.png></body>", ""),
    ("<div style='background:url(x.png)'></div>", ""),
    ("<style>p{background:url(x.png)}</style><p></p>", ""),
    ("<img src=x alt=words>", "words"),
    ("", "plain"),
    ("<html><body><p>&nbsp;<br></p></body></html>", "plain"),
]


@pytest.mark.parametrize("html, body", ALTERNATIVE, ids=range(len(ALTERNATIVE)))
def test_alternative_that_is_chosen_stays_chosen(html, body):
    """If a page shows something else than text, the plain text is not what its reader sees."""
    assert read(*multipart("alternative", (PLAIN, "plain"), (HTML, html))).body == body


# Calendars
# ------------------------------------------------------------------------------------------------

INVITATION = """BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VTIMEZONE
DESCRIPTION:unseen
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY;LANGUAGE=en;X="a:b;c":Lunch\\, then talk
LOCATION:Room 7
DESCRIPTION:First line\\nSecond li
 ne; see https://a.exam
\tple/x
BEGIN:VALARM
DESCRIPTION:unseen
END:VALARM
ATTENDEE:mailto:unseen@example.org
END:VEVENT
END:VCALENDAR
"""
INVITED = "Lunch, then talk\nRoom 7\nFirst line\nSecond line; see https://a.example/x"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_calendar_shows_what_it_asks_for(newline):
    found = read("Content-Type: text/calendar; method=REQUEST", INVITATION.replace("\n", newline))
    assert (found.body, found.links) == (INVITED, ["a.example"])
    part = ("Content-Type: text/calendar\nContent-Disposition: attachment; filename=i.ics", "x")
    assert read(*multipart("mixed", (PLAIN, "seen"), part)).files == ["i.ics"]


def test_calendar_adds_to_its_alternatives_what_they_do_not_say():
    calendar = ("Content-Type: text/calendar", INVITATION)
    html = (HTML, "<p>Lunch, then talk<p>Room 7")
    found = read(*multipart("alternative", (PLAIN, "plain"), html, calendar))
    assert found.body == (
        "Lunch, then talk\n\nRoom 7\n\nFirst line\nSecond line; see https://a.example/x"
    )
    assert read(*multipart("alternative", (PLAIN, ""), calendar)).body == INVITED


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["BEGIN:VEVENT", "END:VEVENT", "BEGIN:", "SUMMARY:a", 'summary;x="y:b', " c", "\\", ":"]
        ),
        max_size=20,
    )
)
def test_any_calendar_is_read(lines):
    text = ical.text("\n".join(lines))
    assert len(text) <= len("\n".join(lines))


# S/MIME
# ------------------------------------------------------------------------------------------------


def der(tag, *content):
    """An element of DER."""
    content = b"".join(content)
    n = len(content)
    size = bytes([n]) if n < 128 else bytes([0x84]) + n.to_bytes(4, "big")
    return bytes([tag]) + size + content


def ber(tag, *content):
    """An element without length."""
    return bytes([tag, 0x80]) + b"".join(content) + b"\0\0"


def signed(content, make=der, octets=None):
    """`content` in a CMS SignedData without signers."""
    octets = octets or (lambda data: der(0x04, data))
    return make(
        0x30,
        der(0x06, smime.SIGNED_DATA),
        make(
            0xA0,
            make(
                0x30,
                der(0x02, b"\1"),
                make(0x31, der(0x30, der(0x06, b"\x60\x86\x48"))),
                make(0x30, der(0x06, smime.DATA), make(0xA0, octets(content))),
                der(0x31),
            ),
        ),
    )


def chunks(data):
    """An octet string of many."""
    return ber(0x24, *[der(0x04, data[i : i + 10]) for i in range(0, len(data), 10)])


INNER = b"Content-Type: text/html\r\n\r\n<p>Hello <i hidden>un</i>seen</p>\r\n"


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: application/pkcs7-mime; smime-type=signed-data; name=smime.p7m",
        "Content-Type: application/x-pkcs7-mime",
        "Content-Type: application/octet-stream; name=SMIME.P7M",
        "Content-Type: application/pkcs7-mime\nContent-Disposition: attachment; filename=smime.p7m",
    ],
)
@pytest.mark.parametrize("make, octets", [(der, None), (ber, None), (ber, chunks), (der, chunks)])
def test_opaque_signature_is_unwrapped(head, make, octets):
    data = base64.encodebytes(signed(INNER, make, octets))
    found = read(f"{head}\nContent-Transfer-Encoding: base64", data)
    assert (found.body, found.files, found.reasons) == ("Hello seen", [], [])


def test_signature_within_a_signature():
    head = b"Content-Type: application/pkcs7-mime\nContent-Transfer-Encoding: base64\n\n"
    data = INNER
    for _ in range(5):
        data = head + base64.encodebytes(signed(data))
    assert message.read(b"Subject: x\n" + data).body == "Hello seen"
    for _ in range(mime.MAX_DEPTH):
        data = head + base64.encodebytes(signed(data))
    found = message.read(b"Subject: x\n" + data)
    assert (found.body, found.files) == ("", ["application/pkcs7-mime"])


def test_encrypted_message_is_a_file():
    enveloped = der(0x30, der(0x06, smime.SIGNED_DATA[:-1] + b"\3"), der(0xA0, der(0x30)))
    head = "Content-Type: application/pkcs7-mime; name=smime.p7m\nContent-Transfer-Encoding: base64"
    for data in (enveloped, b"", b"x" * 1000, b"\x30\x80" * 1000):
        found = read(head, base64.encodebytes(data))
        assert (found.body, found.files) == ("", ["smime.p7m"])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.binary(max_size=4))
def test_any_signature_is_read(content, at, other):
    data = signed(content, ber, chunks)
    assert smime.signed_content(data) == content
    found = smime.signed_content(data[:at] + other + data[at + len(other) :])
    assert found is None or len(found) <= len(data) + 4


# winmail.dat
# ------------------------------------------------------------------------------------------------


def attribute(level, id, data):
    return struct.pack("<BII", level, id, len(data)) + data + struct.pack("<H", sum(data) & 0xFFFF)


def properties(*pairs):
    """MAPI properties: (type, id, value bytes)."""
    out = struct.pack("<I", len(pairs))
    for kind, id, value in pairs:
        out += struct.pack("<HH", kind, id)
        if id >= 0x8000:
            out += b"g" * 16 + struct.pack("<II", 1, 6) + b"a\0b\0\0\0" + b"\0\0"
        if kind in (tnef.STRING8, tnef.UNICODE, tnef.BINARY):
            out += struct.pack("<II", 1, len(value)) + value + bytes(-len(value) % 4)
        else:
            out += value
    return out


WINMAIL = (
    struct.pack("<IH", tnef.SIGNATURE, 1)
    + attribute(1, 0x00089006, struct.pack("<I", 0x10000))
    + attribute(1, 0x0002800C, b"body\0")
    + attribute(2, 0x00069002, bytes(14))
    + attribute(2, 0x00018010, b"REPORT~1.DOC\0")
    + attribute(
        2,
        0x00069005,
        properties(
            (3, 0x0E20, b"\1\0\0\0"),
            (tnef.BINARY, 0x8001, b"\1\2\3"),
            (tnef.STRING8, tnef.DISPLAY_NAME, b"Report.doc\0"),
            (tnef.UNICODE, tnef.LONG_NAME, "Report für Mai.doc\0".encode("utf-16-le")),
        ),
    )
    + attribute(2, 0x00069002, bytes(14))
    + attribute(2, 0x00018010, b"run.exe\0")
)


@pytest.mark.parametrize(
    "head", ["Content-Type: application/ms-tnef", "Content-Type: application/octet-stream"]
)
def test_winmail_is_named_with_what_is_in_it(head):
    part = (
        f"{head}; name=winmail.dat\nContent-Transfer-Encoding: base64",
        base64.encodebytes(WINMAIL).decode(),
    )
    found = read(*multipart("mixed", (PLAIN, "seen"), part))
    assert found.files == ["winmail.dat", "Report für Mai.doc", "run.exe"]
    assert found.body == "seen"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(WINMAIL)), st.binary(max_size=8))
def test_any_winmail_is_read(at, other):
    names = tnef.names(WINMAIL[:at] + other + WINMAIL[at + len(other) :])
    assert all(name and len(name) <= len(WINMAIL) for name in names)
    assert tnef.names(WINMAIL[:at]) in (
        [],
        ["REPORT~1.DOC"],
        ["Report für Mai.doc"],
        ["Report für Mai.doc", "run.exe"],
    ) or at < len(WINMAIL)


# Messages that are attached
# ------------------------------------------------------------------------------------------------

ATTACHED = "From: b@c.example\nSubject: inner\nContent-Type: text/html\n\n<p hidden>un</p>inside"


@pytest.mark.parametrize(
    "head, body",
    [
        ("Content-Type: message/rfc822; name=m.eml", ATTACHED),
        (
            "Content-Type: application/octet-stream; name=m.EML\nContent-Transfer-Encoding: base64",
            base64.encodebytes(ATTACHED.encode()).decode(),
        ),
        (
            "Content-Type: message/rfc822; name=m.eml\nContent-Transfer-Encoding: base64",
            base64.encodebytes(ATTACHED.encode()).decode(),
        ),
    ],
)
def test_attached_message_is_shown_if_asked_for(head, body):
    part = (head + "\nContent-Disposition: attachment", body)
    whole = multipart("mixed", (PLAIN, "outside"), part)
    found = read(*whole)
    assert found.body == "outside" and found.files == [found.files[0]]
    assert found.files[0].lower() == "m.eml"
    found = read(*whole, attached=True)
    assert found.body == "outside\n\nFrom: b@c.example\nSubject: inner\n\ninside"
    assert found.files[0].lower() == "m.eml"
    mail = f"Subject: x\n{whole[0]}\n\n{whole[1]}".encode()
    assert run("mail-text", "--attachments", "--body", input=mail).stdout.endswith(b"inside\n")
    assert run("mail-text", "--body", input=mail).stdout == b"outside\n"


def test_attached_messages_within_each_other():
    mail = ATTACHED
    for i in range(4):
        head, body = multipart(
            "mixed",
            (
                f"Content-Type: application/octet-stream; name={i}.eml"
                "\nContent-Disposition: attachment\nContent-Transfer-Encoding: base64",
                base64.encodebytes(mail.encode()).decode(),
            ),
        )
        mail = f"Subject: x{i}\n{head}\n\n{body}"
    assert message.read(mail.encode(), True).body.endswith("inside")
    assert message.read(mail.encode()).body == ""


# Text of other kinds
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delsp, text, want",
    [
        (True, "Your pay \nment of \nit", "Your payment ofit"),
        (False, "Your pay \nment", "Your pay ment"),
        (False, "a\nb", "a\nb"),
        (False, "> a \n> b \nc", "> a b \nc"),
        (False, "> a \n>> b", "> a \n>> b"),
        (True, "> pay \n> ment", "> payment"),
        (False, " from \n from", "from from"),
        (False, "x \n-- \nAnn", "x \n-- \nAnn"),
        (False, "", ""),
    ],
)
def test_flowed_lines_are_joined(delsp, text, want):
    assert flowed.joined(text, delsp) == want


def test_flowed_is_asked_for_by_its_parameter():
    assert read("Content-Type: text/plain; format=Flowed; DelSp=YES", "a \nb").body == "ab"
    assert read("Content-Type: text/plain; delsp=yes", "a \nb").body == "a\nb"


@pytest.mark.parametrize(
    "text, want",
    [
        ("<bold>Hello</bold> there", "Hello there"),
        ("one\nline\n\nnext\n\n\nlast", "one line\nnext\n\nlast"),
        ("a << b <<c>", "a < b <c>"),
        ("<fontfamily><param>Times</param>seen</fontfamily>", "seen"),
        ("<color><param>red</param>seen</color><color><param>white</param>gone</color>", "seen"),
        ("<color><param>FFFF,FFFF,FEFE</param>gone</color>seen", "seen"),
        ("<nofill>a\nb</nofill>", "a\nb"),
        ("<param>gone", ""),
        ("a & b &amp; c", "a & b &amp; c"),
        ("<x-tag>a</x-tag><b>c</b>", "ac"),
        ("</param>a", "a"),
    ],
)
def test_enriched_text(text, want):
    assert read("Content-Type: text/enriched", text).body == want


def test_richtext():
    text = "<comment>gone</comment>a<lt>b<nl>c\nd<bold>e</bold>"
    assert read("Content-Type: text/richtext", text).body == "a<b\nc de"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<", "<<", ">", "<param>", "</param>", "<color>", "</color>", "<nofill>"])
        | st.text(max_size=3),
        max_size=20,
    ).map("".join),
    st.booleans(),
)
def test_any_enriched_text_is_read(text, is_richtext):
    html = enriched.to_html(text, is_richtext)
    assert not markup.read(html)[1].is_cut or "&" in text


# Bytes
# ------------------------------------------------------------------------------------------------

WHATWG = [
    ("866", "Привет"),
    ("cp-1251", "Привет"),
    ("Windows_1251", "Привет"),
    ("x-cp1251", "Привет"),
    ("win1251", "Привет"),
    ("koi8-ru", "Привет"),
    ("koi", "Привет"),
    ("cyrillic", "Привет"),
    ("csisolatincyrillic", "Привет"),
    ("iso_8859-5:1988", "Привет"),
    ("x-mac-ukrainian", "Привет"),
    ("iso8859-2", "źle"),
    ("l2", "źle"),
    ("x-cp1250", "źle"),
    ("latin4", "ēķ"),
    ("greek8", "Γειά"),
    ("elot_928", "Γειά"),
    ("windows1253", "Γειά"),
    ("hebrew", "שלום"),
    ("iso-8859-8-i", "שלום"),
    ("logical", "שלום"),
    ("asmo-708", "سلام"),
    ("ecma-114", "سلام"),
    ("cp1256", "سلام"),
    ("iso-8859-9", "ığ"),
    ("latin5", "ığ"),
    ("tis620", "ไทย"),
    ("dos-874", "ไทย"),
    ("iso8859-11", "ไทย"),
    ("iso885915", "€"),
    ("iso-8859-16", "ș€"),
    ("latin-1", "é"),
    ("iso-ir-100", "é"),
    ("ibm819", "é"),
    ("chinese", "你好世界"),
    ("gb_2312-80", "你好世界"),
    ("x-gbk", "你好世界"),
    ("ms936", "你好世界"),
    ("hz-gb-2312", "你好世界"),
    ("cn-big5", "你好嗎世界"),
    ("big5_hkscs", "你好嗎世界"),
    ("cp950", "你好嗎世界"),
    ("eucjp", "すもももももも"),
    ("x-euc-jp", "すもももももも"),
    ("ms_kanji", "すもももももも"),
    ("windows-31j", "すもももももも"),
    ("iso2022jp", "すもももももも"),
    ("csiso2022jp", "すもももももも"),
    ("ksc5601", "계정이 정지되었습니다"),
    ("ks_c_5601-1989", "계정이 정지되었습니다"),
    ("windows-949", "계정이 정지되었습니다"),
    ("uhc", "계정이 정지되었습니다"),
    ("csiso2022kr", "계정이 정지되었습니다"),
    ("unicode-1-1-utf-8", "źж你"),
    ("unicode20utf8", "źж你"),
    ("utf8", "źж你"),
    ("utf-16", "źж你"),
    ("ucs-2", "źж你"),
    ("unicodefffe", "źж你"),
    ("utf-7", "źж你"),
    ("unicode-1-1-utf-7", "źж你"),
]


@pytest.mark.parametrize("name, text", WHATWG, ids=[name for name, _ in WHATWG])
def test_names_of_character_sets(name, text):
    codec = charsets.codec(name)
    data = text.encode("utf-16-le" if codec == "utf-16" else codec)
    head = f'Content-Type: text/plain; charset="{name}"\nContent-Transfer-Encoding: base64'
    found = read(head, base64.encodebytes(data))
    assert (found.body, found.reasons) == (text, [])
    word = f"=?{name}?b?{base64.b64encode(data).decode()}?="
    assert message.read(f"Subject: {word}\n\nx".encode()).subject == text


def test_every_codec_is_one_of_python_and_no_name_is_two():
    for codec in set(charsets.CODEC.values()):
        codecs.lookup(codec)
    labels = [label for labels in charsets.LABELS.values() for label in labels.split()]
    assert len(labels) == len(set(labels)) and not charsets.UNNAMED & set(charsets.CODEC)
    assert all(label.isalnum() and label == label.lower() for label in labels)


@pytest.mark.parametrize(
    "data, name, want",
    [
        ("日本語".encode("iso2022_jp"), "", "日本語"),
        ("日本語".encode("iso2022_jp"), "us-ascii", "日本語"),
        ("日本語 ①㈱".encode("cp932"), "iso-2022-jp", "日本語 ①㈱"),
        (b"\x1b$B\x2d\x21\x2d\x6a\x1b(B x", "iso-2022-jp", "①㈱ x"),
        (b"\x1b$BF|\x1b(B\xff \x1b$BF|\x1b(B", "iso-2022-jp", "日\ufffd 日"),
        (b"\x1b$BF|", "iso-2022-jp", "日"),
        ("すもももももももものうち".encode("euc_jp"), "iso-2022-jp", "すもももももももものうち"),
        ("すもももももももものうち".encode(), "shift_jis", "すもももももももものうち"),
        ("すもももももももものうち".encode(), "gb2312", "すもももももももものうち"),
        ("你好，世界和平".encode("big5"), "gb2312", "你好，世界和平"),
        ("你好，世界和平，明天会更好".encode("gbk"), "hz-gb-2312", "你好，世界和平，明天会更好"),
        ("Überweisung – jetzt".encode(), "iso-8859-1", "Überweisung – jetzt"),
        ("Привет всем".encode(), "koi8-r", "Привет всем"),
        ("Überweisung".encode("latin-1"), "utf-8", "Überweisung"),
        ("Über–weis\xe4".encode() + b"\xff.", "utf-8", "Über–weis\xe4\ufffd."),
        ("Über–weis\xe4".encode() + b"\xff.", "", "Über–weis\xe4\ufffd."),
        (
            "계정이 정지되었습니다".encode("cp949") + b" \xff!",
            "euc-kr",
            "계정이 정지되었습니다 \ufffd!",
        ),
        ("你好世界你好世界".encode("gbk") + b"\xff.", "gbk", "你好世界你好世界\ufffd."),
        ("ab\u20ac".encode("utf-8-sig"), "windows-1252", "ab\u20ac"),
        ("ab\u20ac".encode("utf-16"), "utf-8", "ab\u20ac"),
        ("hello, world".encode("utf-16-be"), "utf-16", "hello, world"),
        (b"plain", "utf-16", "plain"),
        (b"plain", "utf-7", "plain"),
        (b"a+AGI-c +- 2+2", "utf-7", "abc + 2\ufffd"),
        (b"~{VPND~} x", "hz", "中文 x"),
    ],
)
def test_bytes_that_contradict_their_name_are_read_as_what_they_are(data, name, want):
    assert charsets.decode(data, name)[0] == want


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(charsets.CODEC) + ["", "x"]), st.binary(max_size=80), st.booleans())
def test_any_bytes_have_characters(name, data, cut):
    for some in (data, data + b"\x1b$B" + data, "日本ж".encode() + data):
        text, _ = charsets.decode(some, name, cut)
        assert len(text) <= 2 * len(some) + 4


@pytest.mark.parametrize(
    "head, want",
    [
        ("Content-Type: text/plain; charset=koi8-r", "Ваш заказ"),
        ("Content-Type: multipart/mixed; boundary=b", "Ваш заказ"),
        ("Content-Type: text/plain; charset=utf-8", "÷ÁÛ ÚÁËÁÚ"),
        ("X-Y: z", "÷ÁÛ ÚÁËÁÚ"),
    ],
)
def test_header_of_8_bits_has_the_character_set_of_the_body(head, want):
    subject, part = (
        "Ваш заказ".encode("koi8-r"),
        b"--b\nContent-Type: text/plain; charset=KOI8-R\n\nx\n--b--",
    )
    data = b"From: %s <a@b.example>\nSubject: %s\n%s\n\n%s"
    found = message.read(data % (subject, subject, head.encode(), part))
    assert (found.subject, found.sender) == (want, f"{want} <a@b.example>")
    valid = "Ваш заказ".encode()
    assert message.read(data % (valid, valid, head.encode(), part)).subject == "Ваш заказ"


@pytest.mark.parametrize(
    "text, want",
    [
        ("com= \npen= \t \nsation", "compensation"),
        ("a=\t\r\nb", "ab"),
        ("a = b", "a = b"),
        ("a=  ", "a="),
        ("a=3D \nb", "a=\nb"),
    ],
)
def test_padding_behind_a_soft_line_end(text, want):
    assert read("Content-Transfer-Encoding: quoted-printable", text).body == want


def test_cr_cr_lf_is_one_line_end():
    data = b"From: a@b.example\nSubject: x\nContent-Type: text/html\n\n<p>a<p>b\n"
    for newline in (b"\r\n", b"\r\r\n", b"\r"):
        found = message.read(data.replace(b"\n", newline))
        assert (found.subject, found.body) == ("x", "a\n\nb")


@pytest.mark.parametrize(
    "kind",
    [
        '"text/html"; charset="utf-8"',
        '"text/html; charset=utf-8"',
        "'text/html'; charset=utf-8",
        '"Text/HTML" ; charset=utf-8',
        '(c) "text/html"; charset=utf-8',
    ],
)
def test_quoted_type(kind):
    found = read(f"Content-Type: {kind}", "<p hidden>un</p>seen ä")
    assert (found.body, found.files) == ("seen ä", [])


# Direction
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, want",
    [
        ("a \u202ecba\u202c d", "a abc d"),
        ("\u202ecba", "abc"),
        ("\u202ecba\ncba", "abc\ncba"),
        ("\u202efed\u202dabc\u202c", "abcdef"),
        ("\u202ecba \u202efed\u202c", "def abc"),
        ("\u202e(a)\u202c", "(a)"),
        ("\u202ee\u0301x\u202c", "xe\u0301"),
        ("\u202eשלום\u202c", "שלום"),
        ("\u202ecba\u2069 x\u202c y", "x abc y"),
        ("\u2066\u202ecba\u2069 x", "abc x"),
        ("\u202a\u202bab\u202c\u202c", "\u202a\u202bab\u202c\u202c"),
        ("plain", "plain"),
    ],
)
def test_overridden_text_is_in_the_order_of_the_eye(text, want):
    assert bidi.displayed(text) == want


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab(\n\u202a\u202c\u202d\u202e\u2066\u2069\u0301ש"), max_size=60))
def test_any_direction_keeps_the_characters(text):
    shown = bidi.displayed(text)
    kept = [c for c in text if c not in "\u202a\u202c\u202d\u202e\u2066\u2069()"]
    assert sorted(c for c in shown if c in "ab\n\u0301ש") == sorted(kept)


@pytest.mark.parametrize(
    "html, want",
    [
        ("x <bdo dir=rtl>cba</bdo> y", "x abc y"),
        ("<bdo dir=rtl>fed <b>cba</b></bdo>", "abc def"),
        ("<p style='unicode-bidi:bidi-override;direction:rtl'>cba<p>y", "abc\n\ny"),
        ("<style>p{direction:rtl;unicode-bidi:isolate-override}</style><p>cba", "abc"),
        ("<bdo dir=rtl><p>cba<p>fed</bdo>", "abc\n\ndef"),
        ("<bdo dir=ltr>abc</bdo><p dir=rtl>abc", "abc\n\nabc"),
        ("<p style='direction:rtl'>abc", "abc"),
        ("<bdo dir=rtl>cba <bdo dir=ltr>def</bdo></bdo>", "abc def"),
    ],
)
def test_elements_that_turn_text_round(html, want):
    assert markup.read(html)[0] == want


# Links and pictures
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "html, want",
    [
        ("<base href=http://b.example/><a href=x.php>x</a>", ["b.example"]),
        ("<a href=x.php>x</a><base href='HTTPS://B.example/dir/'>", ["b.example"]),
        ("<base href=http://b.example/><a href=http://c.example>x</a>", ["c.example"]),
        ("<base href=http://b.example/><a href=//c.example>x</a>", ["c.example"]),
        ("<base href=http://b.example/><a href=mailto:a@b>x</a><a href=#x>x</a>", []),
        ("<base href=http://b.example/>", []),
        ("<base href=x><a href=y>y</a>", []),
        ("<base href=http://b.example><base href=http://c.example><a href=/>", ["b.example"]),
        ("<a href=www.shop.example/x>x</a>", ["www.shop.example"]),
        ("<a href=shop.example>x</a><a href='shop.example:80?q'>x</a>", ["shop.example"] * 2),
        ("<a href=index.html>x</a><a href=a/b.example>x</a><a href=3.14>x</a>", []),
        ("<form action=http://f.example></form>", ["f.example"]),
        ("<form><button formaction=//g.example>x</button></form>", ["g.example"]),
        ("<input type=submit formaction=http://h.example>", ["h.example"]),
        ("<meta http-equiv=Refresh content='0; URL=http://r.example/x'>", ["r.example"]),
        ("<meta http-equiv=refresh content='3;http://r.example'>", ["r.example"]),
        ("<meta http-equiv=refresh content=\"0;url='http://r.example/'\">", ["r.example"]),
        ("<meta http-equiv=refresh content=5>", []),
        ("<meta name=x content='0;url=http://r.example'>", []),
        ("<map><area href=http://m.example></map>", ["m.example"]),
        ("<svg><a xlink:href=http://s.example>x</a></svg>", ["s.example"]),
        ("<link href=http://l.example><a href='javascript:x()'>x</a>", []),
    ],
)
def test_hosts_of_links(html, want):
    _, page = markup.read(html)
    assert links.hosts(page.links, page.base) == want


@pytest.mark.parametrize(
    "html, want",
    [
        ("<img alt='Buy now'>", "Buy now"),
        ("a<img alt='b'>c", "a b c"),
        ("<a href=x><img src=y alt='Buy&amp;win' width=600></a>", "Buy&win"),
        ("<input type=image alt=Go><area alt=There>", "Go There"),
        ("<img alt=''><img alt>x", "x"),
        ("<img alt=gone width=1 height=1>x", "x"),
        ("<img alt=gone height='0'>x", "x"),
        ("<img alt=gone style='display:none'>x", "x"),
        ("<div hidden><img alt=gone></div>x", "x"),
        ("<img width='100%' height=auto alt=seen>", "seen"),
        ("<style>img{visibility:hidden}</style><img alt=gone>x", "x"),
    ],
)
def test_alternative_text_of_pictures(html, want):
    assert markup.read(html)[0] == want


# Nothing to read
# ------------------------------------------------------------------------------------------------

NOTHING = [
    b"From: a@b.example\nSubject: Hello\n\n",
    b"From: a@b.example\nSubject: Hello\nContent-Type: text/html\n\n<img src=http://i.example/1.png>",
    b"From: a@b.example\nSubject: Hello\nContent-Type: image/png\n\nx",
    b"From: a@b.example\nSubject: Cheap meds\nContent-Type: text/html\n\n<p hidden>x</p>",
    b"\n",
]


@pytest.mark.parametrize("mail", NOTHING, ids=range(len(NOTHING)))
def test_message_with_nothing_to_read_is_unsure(mail):
    import json

    options = ("--no-calibration", "--no-cache")
    done = run("classify", "--json", *options, input=mail)
    found = json.loads(done.stdout)
    assert done.returncode == 2 and found["answer"] == "unsure" and "no-text" in found["reasons"]
    line = run("classify", "--long", *options, input=mail)
    assert (line.returncode, line.stdout.split()[0]) == (2, b"unsure")
    marked = run("classify", "--pass-through", *options, input=mail).stdout
    assert b"\nX-Spam-Status: Unsure" in b"\n" + marked or b"unsure" in marked.lower()


def test_message_with_a_link_or_a_word_is_judged():
    import json

    for body in (b"<a href=http://shop.example><img src=x></a>", b"<img src=x alt='Cheap meds'>"):
        mail = b"Subject: Hello\nContent-Type: text/html\n\n" + body
        found = json.loads(run("classify", "--json", "--no-cache", input=mail).stdout)
        assert "no-text" not in found["reasons"]
