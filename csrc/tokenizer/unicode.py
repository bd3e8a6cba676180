"""Make csrc/tokenizer/unicode.h: the classes of code points that the pre-tokenizers of
csrc/tokenizer/pretokenize.c distinguish.

    pip install unicodedata2==16.0.0      # the Unicode Character Database as a module; nothing else
                                          needs it
    python3 csrc/tokenizer/unicode.py >csrc/tokenizer/unicode.h

Version 16.0 is that of the regular expressions of Hugging Face tokenizers 0.23 (Oniguruma 6.9.10),
so both split alike. The classes come from general categories (Unicode Standard, section 4.5);
White_Space is Z and the controls named below (PropList.txt; no version since 6.3 changed it).
"""

import sys

VERSION = "16.0.0"
CLASSES = ("OTHER", "UPPER", "LOWER", "LETTER", "MARK", "NUMBER", "SPACE")
OF_CATEGORY = {"Lu": "UPPER", "Lt": "UPPER", "Ll": "LOWER", "Lm": "LETTER", "Lo": "LETTER"}
OF_GROUP = {"M": "MARK", "N": "NUMBER", "Z": "SPACE"}
CONTROLS_THAT_ARE_SPACE = (*range(0x09, 0x0E), 0x85)
A_LINE = 11

HEAD = """\
/* unicode.h - the class of each code point in Unicode {version}. Made by unicode.py: do not edit.
 * A number is first << 3 | class, valid up to the first code point of the next number. */
// clang-format off
static const uint32_t unicode_ranges[{n}] = {{
"""


def class_of(point, category):
    """The name of the class of code point `point`, whose general category is `category`."""
    if point in CONTROLS_THAT_ARE_SPACE:
        return "SPACE"
    return OF_CATEGORY.get(category) or OF_GROUP.get(category[0], "OTHER")


def ranges(category):
    """[(first code point, class)] of all code points in order; category: code point -> general
    category.
    """
    out = []
    for point in range(0x110000):
        name = class_of(point, category(point))
        if not out or out[-1][1] != name:
            out.append((point, name))
    return out


def main():
    import unicodedata2

    if unicodedata2.unidata_version != VERSION:
        sys.exit(
            f"unicode.py: unicodedata2 has Unicode {unicodedata2.unidata_version}; install"
            f" unicodedata2=={VERSION}"
        )
    numbers = [
        first << 3 | CLASSES.index(name)
        for first, name in ranges(lambda point: unicodedata2.category(chr(point)))
    ]
    print(HEAD.format(version=VERSION[:4], n=len(numbers)), end="")
    for i in range(0, len(numbers), A_LINE):
        print("    " + " ".join(f"{number:#x}," for number in numbers[i : i + A_LINE]))
    print("};")


if __name__ == "__main__":
    main()
