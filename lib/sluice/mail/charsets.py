"""Decode bytes by the name of a character set in a message: an allow-list, and rules for names and
bytes that are wrong.

Names are compared by their letters and digits alone, so that `cp-1251`, `CP1251` and `cp_1251` are
one. The table has all labels of the WHATWG's "Encoding Standard" and the aliases that mailers
write. A label means what that standard says (iso-8859-1 is windows-1252, gb2312 is gb18030,
shift_jis is windows-31j), but for the labels that it replaces: iso-2022-kr and hz-gb-2312 are
decoded, and utf-7, which it does not know. Codecs of Python that are no character sets of mail, are
slow or change what text means (idna, punycode, unicode_escape ...) cannot be reached.

No name, us-ascii and a name that is not in the list: UTF-8 where the bytes are mostly valid UTF-8,
ISO-2022-JP where they have its escape sequences, else windows-1252, which is latin-1 with printable
characters in 0x80 to 0x9F.

Bytes that contradict their name are decoded as what they are: by a byte order mark, as valid UTF-8,
or as the set of the same language in which the fewest are invalid. One invalid byte among many is
one U+FFFD, and contradicts nothing.
"""

import codecs

CP1252 = "cp1252"
JP = "iso2022_jp_ext"
# Codec: labels, without what is neither letter nor digit.
LABELS = {
    "utf-8": "utf8 unicode11utf8 unicode20utf8 xunicode20utf8 xutf8 utf8mb4 cesu8",
    "utf-16": "utf16 utf16le csunicode iso10646ucs2 ucs2 ucs2le unicode unicodefeff",
    "utf-16-be": "utf16be unicodefffe ucs2be",
    "utf-7": "utf7 unicode11utf7 csunicode11utf7 xunicode20utf7 unicode20utf7 utf7imap",
    CP1252: (
        "l1 latin1 isolatin1 iso88591 iso885911987 isoir100 csisolatin1 cp819 ibm819 iso8859 ansi"
        " westerneuropean"
    ),
    "iso8859_2": "l2 latin2 iso88592 iso885921987 isoir101 csisolatin2",
    "iso8859_3": "l3 latin3 iso88593 iso885931988 isoir109 csisolatin3",
    "iso8859_4": "l4 latin4 iso88594 iso885941988 isoir110 csisolatin4",
    "iso8859_5": "cyrillic iso88595 iso885951988 isoir144 csisolatincyrillic",
    "iso8859_6": (
        "arabic asmo708 csiso88596e csiso88596i csisolatinarabic ecma114 iso88596 iso88596e"
        " iso88596i iso885961987 isoir127"
    ),
    "iso8859_7": (
        "csisolatingreek ecma118 elot928 greek greek8 iso88597 iso885971987 iso885972003 isoir126"
        " suneugreek"
    ),
    "iso8859_8": (
        "csiso88598e csiso88598i csisolatinhebrew hebrew iso88598 iso88598e iso88598i iso885981988"
        " isoir138 logical visual"
    ),
    "iso8859_10": "l6 latin6 iso885910 isoir157 csisolatin6 iso8859101992",
    "iso8859_13": "iso885913 latin7 l7",
    "iso8859_14": "iso885914 latin8 l8 isoceltic isoir199",
    "iso8859_15": "l9 latin9 iso885915 csisolatin9",
    "iso8859_16": "iso885916 latin10 l10 isoir226",
    "cp1254": "l5 latin5 iso88599 iso885991989 isoir148 csisolatin5",
    "cp874": "dos874 iso885911 tis620 tis62025331 windows874 cp874 ms874 ibm874 xwindows874",
    "koi8_r": "koi koi8 koi8r cskoi8r xkoi8r",
    "koi8_u": "koi8u koi8ru cskoi8u xkoi8u",
    "koi8_t": "koi8t",
    "mac_roman": "macintosh mac csmacintosh xmacroman macroman xmacintosh",
    "mac_cyrillic": "xmaccyrillic xmacukrainian maccyrillic macukraine",
    "mac_latin2": "xmacce macce maccentraleurope xmaccentraleurroman",
    "mac_greek": "xmacgreek macgreek",
    "mac_turkish": "xmacturkish macturkish",
    "mac_iceland": "xmacicelandic maciceland",
    "mac_romanian": "xmacromanian",
    "mac_croatian": "xmaccroatian",
    "gb18030": (
        "gb18030 gb180302000 chinese csgb2312 csiso58gb231280 gb2312 gb231280 gb23121980 gbk xgbk"
        " isoir58 euccn xeuccn eucgb2312cn cngb cp936 ms936 windows936 csgbk csgb18030"
    ),
    "hz": "hz hzgb hzgb2312",
    "big5hkscs": (
        "big5 big5hkscs cnbig5 csbig5 xxbig5 xbig5 chinesebig5 big5tw big5eten big5hkscs2004 cp950"
        " ms950 windows950 csbig5hkscs"
    ),
    "euc_jp": (
        "eucjp xeucjp cseucpkdfmtjapanese extendedunixcodepackedformatforjapanese ujis eucjpms"
        " xeucjpms eucjpwin cp51932 eucj"
    ),
    JP: (
        "iso2022jp iso2022jp1 iso2022jp2 iso2022jp3 iso2022jpext csiso2022jp csiso2022jp2"
        " iso2022jpms xiso2022jp iso2022jpesc iso2022jp2004 cp50220 cp50221 cp50222 jis junet"
    ),
    "cp932": (
        "shiftjis csshiftjis ms932 mskanji sjis windows31j xsjis cp932 windows932 cswindows31j"
        " xmscp932 xshiftjis shiftjiswin sjiswin mscp932 ibm943 cp943 pck"
    ),
    "cp949": (
        "euckr cseuckr csksc56011987 isoir149 korean ksc56011987 ksc56011989 ksc5601 windows949"
        " cp949 ms949 uhc xwindows949 xeuckr euckrcn kscs56011987 ksx1001 cp51949"
    ),
    "johab": "johab xjohab cp1361 ksc56011992",
    "iso2022_kr": "iso2022kr csiso2022kr xiso2022kr",
    "kz1048": "kz1048 rk1048 strk10482002",
    "ptcp154": "ptcp154 csptcp154 pt154 cp154",
    "hp_roman8": "hproman8 roman8 r8 cshproman8",
    "cp866": "866 csibm866 dos866",
}
CODEC = {label: codec for codec, labels in LABELS.items() for label in labels.split()}
for _n in range(1250, 1259):
    for _prefix in ("windows", "cp", "xcp", "win", "ms", "xwindows", "ibm", "cswindows"):
        CODEC[f"{_prefix}{_n}"] = f"cp{_n}"
for _n in (
    *(437, 720, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866, 869),
    *(1125, 1006),
):
    for _prefix in ("ibm", "cp", "dos", "csibm", "cspc"):
        CODEC[f"{_prefix}{_n}"] = f"cp{_n}"
UNNAMED = frozenset(
    (
        "",
        "usascii",
        "ascii",
        "ansix341968",
        "ansix341986",
        "iso646us",
        "iso646irv1991",
        "isoir6",
        "646",
        "us",
        "csascii",
        "cp367",
        "ibm367",
        "7bit",
        "8bit",
        "unknown8bit",
        "unknown",
        "xunknown",
        "default",
        "defaultcharset",
        "none",
        "binary",
        "replacement",
        "xuserdefined",
    )
)
# what bytes may be that are not what a name of the same language says
RELATED = {
    JP: ("cp932", "euc_jp"),
    "cp932": ("euc_jp",),
    "euc_jp": ("cp932",),
    "gb18030": ("big5hkscs",),
    "hz": ("gb18030", "big5hkscs"),
    "big5hkscs": ("cp950", "gb18030"),
    "cp949": ("johab",),
    "iso2022_kr": ("cp949",),
    "johab": ("cp949",),
}
# not a superset of ASCII, so that bytes below 0x80 have to be decoded, too
NOT_ASCII = frozenset((JP, "utf-7", "hz", "iso2022_kr", "utf-16", "utf-16-be"))
ESCAPES = (b"\x1b$B", b"\x1b$@", b"\x1b(J", b"\x1b(I", b"\x1b$(")  # of ISO-2022-JP
FFFD = "\ufffd"
LOW = bytes(range(128))
PRINTABLE = bytes((9, 10, 13, *range(32, 127)))
# so many characters are valid UTF-8 by chance in no text of two bytes
MIN_UTF8 = 6
MAX_ESCAPES = 10_000


def codec(name: str) -> str | None:
    """The codec of a name, "" where the name says nothing (us-ascii), None where it is not
    known.
    """
    key = "".join(c for c in name[:100].lower() if "a" <= c <= "z" or "0" <= c <= "9")
    found = CODEC.get(key)
    # no name of a few marks only is a wrong one, such as `=`
    is_empty = key in UNNAMED and (key != "" or not name.strip(" \t\"'"))
    return found if found else "" if is_empty else None


def decode(data: bytes, name: str, cut: bool = False, default: str = "") -> tuple[str, bool]:
    """Decode bytes; return (characters, whether the name is known). Invalid bytes become U+FFFD.

    cut: the bytes are the beginning of more, so the last character may be incomplete. default: the
    name that bytes have which are no UTF-8 and have no name themselves.
    """
    found = codec(name)
    known = found is not None
    if data.startswith(b"\xef\xbb\xbf"):
        found, data = "utf-8", data[3:]
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")) and found != "utf-7":
        return data.decode("utf-16", "replace"), known
    if data.isascii() and found not in NOT_ASCII:
        # there are no such bytes in text, and where Japanese is not called so, they begin it
        if b"\x1b" in data and any(escape in data for escape in ESCAPES):
            return _named(data, JP, cut), known
        return data.decode("ascii"), known
    if not found:
        return _unnamed(data, cut, default), known
    return _named(data, found, cut), known


def _unnamed(data: bytes, cut: bool, default: str) -> str:
    """The characters of bytes that are not ASCII and have no name."""
    text, n_bad, n_good = _utf8(data, cut)
    if n_good >= n_bad:
        return text
    found = default and codec(default)
    return _named(data, found, cut) if found and found != "utf-8" else _latin(data)


def _latin(data: bytes) -> str:
    return data.decode(CP1252, "replace")


def _utf8(data: bytes, cut: bool) -> tuple[str, int, int]:
    """(characters, number of invalid sequences, number of valid characters that are not ASCII)."""
    try:
        text, n_read = codecs.utf_8_decode(data, "strict", not cut)
        if n_read or not data:
            return text, 0, 1
    except UnicodeDecodeError:
        pass
    text = data.decode("utf-8", "replace")
    n_bad = text.count(FFFD) - data.count(b"\xef\xbf\xbd")
    n_other = len(text) - len(text.encode("ascii", "ignore"))
    return text, n_bad, n_other - n_bad


def _named(data: bytes, codec: str, cut: bool) -> str:
    """The characters of bytes by a codec of the table, or by the one that they contradict it
    with.
    """
    if codec == "utf-8":
        text, n_bad, n_good = _utf8(data, cut)
        # the last character may have been cut by whoever encoded it
        return text if n_good >= n_bad - text.endswith(FFFD) else _latin(data)
    if codec.startswith("utf-16"):
        return _utf16(data, codec)
    if codec in RELATED:
        return _of_a_language(data, codec, cut)
    if codec != "utf-7":
        text, n_bad, _ = _utf8(data, cut)
        if not n_bad:  # by chance, other text is hardly ever valid
            return text
    return data.decode(codec, "replace")


def _utf16(data: bytes, codec: str) -> str:
    if data.isascii() and not data.translate(None, PRINTABLE):
        return data.decode("ascii")
    if codec == "utf-16":
        # without a mark it is little-endian; if every other byte is 0, these decide
        even, odd = data[:2000:2].count(0), data[1:2000:2].count(0)
        codec = "utf-16-be" if even > odd else "utf-16-le"
    return data.decode(codec, "replace")


def _of_a_language(data: bytes, codec: str, cut: bool) -> str:
    """The characters of bytes of a set of two bytes, or of the related set that fits better."""
    text = data.decode(codec, "replace") if codec != JP else _iso_2022_jp(data)
    is_stateful = codec in NOT_ASCII
    n_high = len(data.translate(None, LOW))
    if not n_high or is_stateful and b"\x1b" in data:
        return text
    as_utf8, n_invalid, n_valid = _utf8(data, cut)
    if not n_invalid and (len(as_utf8) - len(data) + n_high >= MIN_UTF8 or is_stateful):
        return as_utf8
    n_bad, _ = badness = _badness(text)
    if n_bad <= cut and not is_stateful:
        return text
    others = [((n_invalid, 0), as_utf8)]
    for other in RELATED[codec]:
        as_other = data.decode(other, "replace")
        others.append((_badness(as_other), as_other))
    least, best = min(others, key=lambda pair: pair[0])
    if is_stateful:
        return best if least[0] < n_high else text
    # of a damaged character or two, no other set makes text without any
    is_damaged = n_bad <= 1 + n_high // 50
    return best if least < ((1, 0) if is_damaged else badness) else text


def _badness(text: str) -> tuple[int, int]:
    """(number of characters that no text has, of those that a wrong set makes of other text)."""
    import re

    n_private = len(re.findall("[\ue000-\uf8ff]", text))
    return text.count(FFFD) + n_private, len(re.findall("[\uff61-\uff9f]", text))


def _iso_2022_jp(data: bytes) -> str:
    """The characters of ISO-2022-JP; one invalid byte is one U+FFFD.

    Also those that NEC and IBM added to JIS X 0208, which Python's codec does not know.
    """
    try:
        return data.decode(JP)
    except UnicodeDecodeError:
        if data.count(b"\x1b") > MAX_ESCAPES:
            return data.decode(JP, "replace")
    import re

    out, mode = [], b"(B"
    for piece in re.split(rb"(\x1b(?:\$\([A-Z]|[$(][@A-Z]|\$[A-Z]|&@))", data):
        if piece.startswith(b"\x1b"):
            mode = piece[1:]
        elif mode in (b"$B", b"$@"):
            # a line ends in ASCII, whatever was on it
            lines = piece.split(b"\n")
            out.append(_jis(lines[0]))
            if len(lines) > 1:
                out.append("\n" + b"\n".join(lines[1:]).decode("ascii", "replace"))
                mode = b"(B"
        elif mode == b"(I":
            out.append(bytes(c | 0x80 if 0x20 < c < 0x60 else c for c in piece).decode("cp932"))
        elif mode in (b"(B", b"(J"):
            out.append(piece.decode("ascii", "replace"))
        else:
            out.append((b"\x1b" + mode + piece + b"\x1b(B").decode(JP, "replace"))
    return "".join(out)


def _jis(data: bytes) -> str:
    """The characters of JIS X 0208 in 7 bits, as windows-31j, to whose bytes they are shifted."""
    out, i = bytearray(), 0
    while i < len(data):
        row, cell = data[i], data[i + 1] if i + 1 < len(data) else 0
        if not (0x21 <= row <= 0x7E and 0x21 <= cell <= 0x7E):
            # a control character, or a byte without its other half
            out.append(row if row < 0x21 else 0xFF)
            i += 1
            continue
        lead = (row - 0x21 >> 1) + 0x81
        out.append(lead if lead < 0xA0 else lead + 0x40)
        out.append(cell + (0x7E if not row & 1 else 0x20 if cell >= 0x60 else 0x1F))
        i += 2
    return bytes(out).decode("cp932", "replace")
