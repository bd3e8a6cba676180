"""Header fields of a message, in their order, and the values that rules and signals read.

A line is a field as csrc/mail/marking.c has it: printable ASCII without a colon, spaces, a colon;
lines that begin with a space or tab continue it. The first other line ends the header. What is
malformed gives nothing: no value is guessed, as both callers decide on it. Every function takes
linear time.
"""

import re

MAX_BYTES = 1 << 17  # of the header; the rest is not read
MAX_FIELDS = 1000
MAX_ADDRESS = 320  # characters: 64 + 1 + 255, RFC 5321
NAME = re.compile(rb"([!-9;-~]+)[ \t]*:")
DOMAIN = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,60}")
MARKS = re.compile(r'\\.|["()]', re.S)
# What separates words, inside a quoted string: it shall not separate there.
HIDDEN = str.maketrans(" \t;=,<>:", "________")


def fields(mail: bytes) -> list[tuple[str, str]]:
    """Return [(name in lower case, value)] of a message; a character of a value is a byte.

    A value is one line without its outer spaces. Of a header beyond MAX_BYTES or MAX_FIELDS the
    whole fields before that are returned.
    """
    found: list[list[str]] = []
    is_first = True
    end = len(mail) if len(mail) <= MAX_BYTES else mail.rfind(b"\n", 0, MAX_BYTES) + 1
    for line in bytes(mail[:end]).split(b"\n"):
        line = line.removesuffix(b"\r")
        if is_first and line.lstrip(b">").startswith(b"From ") and not NAME.match(line):
            continue  # the separator of an mbox
        is_first = False
        text = line.decode("latin-1").replace("\r", " ")
        if line[:1] in (b" ", b"\t") and found:
            found[-1].append(text)
            continue
        head = NAME.match(line)
        if not head:
            break
        if len(found) == MAX_FIELDS:
            break
        found.append([head[1].decode().lower(), text[head.end() :]])
    else:
        if end < len(mail) and found:  # it goes on
            found.pop()
    return [(name, " ".join(" ".join(parts).split())) for name, *parts in found]


def without_comments(value: str) -> str | None:
    """Return `value` with a space for each comment, and quoted strings as words without quotes.

    In such a word an underscore replaces each character that separates. None if a comment or a
    quoted string does not end.
    """
    out: list[str] = []
    depth, at, quote = 0, 0, -1
    for mark in MARKS.finditer(value):
        kind, begin = mark[0], mark.start()
        if quote >= 0:
            if kind == '"':
                inside = re.sub(r"\\(.)", r"\1", value[quote:begin], flags=re.S)
                out.append(inside.translate(HIDDEN))
                quote, at = -1, mark.end()
        elif kind == "(":
            if not depth:
                out.append(value[at:begin] + " ")
            depth += 1
        elif kind == ")":
            if not depth:
                return None
            depth -= 1
            at = mark.end()
        elif kind == '"' and not depth:
            out.append(value[at:begin])
            quote = mark.end()
    if depth or quote >= 0:
        return None
    return "".join(out) + value[at:]


def domain(text: str) -> str:
    """Return a domain in lower case without a final dot, or "" if `text` is none."""
    text = text.lower().removesuffix(".")
    return text if len(text) <= 253 and DOMAIN.fullmatch(text) else ""


def address(value: str) -> str:
    """Return the only address in a field like From, in lower case; "" if there is not exactly one.

    Two addresses give none: readers differ in which of them they show.
    """
    text = without_comments(value)
    if text is None or len(text) > MAX_BYTES:
        return ""
    text = text.strip()
    if text.endswith(">"):
        before, _, text = text[:-1].rpartition("<")
        if set(before) & set("<>,;:"):  # a list, a group or a route
            return ""
    local, _, host = text.strip().rpartition("@")
    host = domain(host)
    # of a quoted local part the spaces are underscores
    if not host or not re.fullmatch(r"[^\x00-\x20\x7f<>@,;:\\\[\]]{1,64}", local):
        return ""
    return f"{local.lower()}@{host}"


def domain_of(mailbox: str) -> str:
    """Return the domain of an address of `address`."""
    return mailbox.rpartition("@")[2]


def is_below(name: str, parent: str) -> bool:
    """Whether the domain `name` is `parent` or one of its subdomains."""
    return name == parent or name.endswith("." + parent)


def list_id(value: str) -> str:
    """Return the identifier of a List-Id field (RFC 2919) in lower case, or ""."""
    _, less, rest = value.rpartition("<")
    found, greater, _ = rest.partition(">")
    return domain(found.strip()) if less and greater else domain(value.strip())
