"""Decode bytes by the name of a character set in a message: an allow-list, and a rule for all other
names.

The names are those that mail uses, read as the WHATWG's "Encoding Standard" reads them where that
is what senders mean (iso-8859-1 is windows-1252, gb2312 is gb18030, shift_jis is windows-31j).
Codecs of Python that are no character sets of mail, are slow or change what text means (idna,
punycode, unicode_escape, utf-7 ...) cannot be reached.

No name, us-ascii and a name that is not in the list: UTF-8 where the bytes are valid UTF-8, else
windows-1252, which is latin-1 with printable characters in 0x80 to 0x9F.
"""

CODEC = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "unicode-1-1-utf-8": "utf-8",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "iso8859-1": "cp1252",
    "iso-latin-1": "cp1252",
    "koi8-r": "koi8_r",
    "koi8": "koi8_r",
    "koi8-u": "koi8_u",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "gb18030": "gb18030",
    "euc-cn": "gb18030",
    "cp936": "gb18030",
    "gb-2312-80": "gb18030",
    "hz-gb-2312": "hz",
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "cn-big5": "big5hkscs",
    "chinesebig5": "big5hkscs",
    "x-x-big5": "big5hkscs",
    "euc-tw": None,
    "euc-kr": "cp949",
    "ks-c-5601-1987": "cp949",
    "ks-c-5601": "cp949",
    "ksc5601": "cp949",
    "cp949": "cp949",
    "iso-2022-kr": "iso2022_kr",
    "euc-jp": "euc_jp",
    "x-euc-jp": "euc_jp",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "ms-kanji": "cp932",
    "windows-31j": "cp932",
    "cp932": "cp932",
    "iso-2022-jp": "iso2022_jp",
    "iso-2022-jp-1": "iso2022_jp_1",
    "iso-2022-jp-2": "iso2022_jp_2",
    "iso-2022-jp-3": "iso2022_jp_3",
    "macintosh": "mac_roman",
    "x-mac-roman": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "tis-620": "cp874",
    "windows-874": "cp874",
    "ibm437": "cp437",
    "cp437": "cp437",
    "ibm850": "cp850",
    "cp850": "cp850",
    "ibm852": "cp852",
    "cp852": "cp852",
    "ibm866": "cp866",
    "cp866": "cp866",
}
CODEC.update({f"iso-8859-{n}": f"iso8859_{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)})
CODEC.update(
    {
        "iso-8859-1": "cp1252",
        "iso-8859-9": "cp1254",
        "iso-8859-11": "cp874",
        "iso-8859-8-i": "iso8859_8",
        "iso-8859-6-i": "iso8859_6",
    }
)
CODEC.update(
    {
        f"{prefix}{n}": f"cp{n}"
        for n in range(1250, 1259)
        for prefix in ("windows-", "cp", "x-cp", "win-", "windows")
    }
)
UNNAMED = frozenset(
    (
        "",
        "us-ascii",
        "ascii",
        "ansi-x3.4-1968",
        "iso-ir-6",
        "646",
        "7bit",
        "8bit",
        "unknown-8bit",
        "x-unknown",
    )
)


def decode(data: bytes, name: str, cut: bool = False) -> tuple[str, bool]:
    """Decode bytes; return (characters, whether the name is known). Invalid bytes become U+FFFD.

    cut: the bytes are the beginning of more, so the last character may be incomplete.
    """
    name = name.strip(" \t\"'").lower().replace("_", "-")
    codec = CODEC.get(name)
    if codec:
        return data.decode(codec, "replace"), True
    known = name in UNNAMED
    if data.isascii():
        return data.decode("ascii"), known
    try:
        return data.decode("utf-8"), known
    except UnicodeDecodeError as e:
        if (
            cut
            and e.reason == "unexpected end of data"
            and e.start >= len(data) - 3
            and e.start > 0
        ):
            return data[: e.start].decode("utf-8"), known
        return data.decode("cp1252", "replace"), known
