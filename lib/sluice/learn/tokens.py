"""The tokens of a text: what learning counts.

    offer                 a word of the text, folded as mail/normalize.py folds it
    subject:offer         a word of a header field
    has:list-unsubscribe  the header has this field
    rcvd:mx.example.org   a host that a Received field names

A folded word has no colon with letters around it, so no word is a token of a header. Fields that
identify a message, carry the verdict of another program or are added by a mailbox have no tokens
(SKIPPED): they would say what is true of one message or of one program only.

Tokens are a set: neither order nor repetition counts. Their number and the time are bounded for any
input: MAX_HEADER tokens of a header, the first in their order; then the first and the last words of
the text, up to MAX_TOKENS in all.
"""

import re

from ..mail import fields

MAX_TOKENS = 320
MAX_HEADER = 200
MAX_BYTES = 1 << 14  # of each end of a text, and of its tail if the middle was dropped
HEADER_BYTES = 1 << 16
MAX_FIELDS = 200
MAX_NAME, MAX_VALUE = 60, 2000  # characters of a field
MAX_WORDS = 40  # of a field
MAX_WORD = 40  # characters
# of fields that a message has by RFC 5322: without one of them it is a text, not a message
FIELDS = frozenset("from to cc subject date received return-path message-id sender".split())
SKIPPED = re.compile(
    "(resent-)?(message-id|date)|references|in-reply-to|content-length|content-id|lines"
    "|x?-?(status|keywords)|x-(uid|uidl|imap|imapbase|mozilla-.*|evolution.*|gmail-.*|gm-.*)"
    "|thread-(index|topic)|(dkim|domainkey)-signature|arc-.*|authentication-results|received-spf"
    "|x-(spam|bogosity|bogofilter|virus|scanned|rspamd|crm114|dspam|pyzor|razor|ham|barracuda).*"
    "|x-sluice.*|x-(google|received|ms-|microsoft-|forefront-|exchange-).*|x-.*-id|(x-)?envelope-.*"
)
WORDS = re.compile(r'[^\s<>()\[\]",;:=?&/\'|]+')
HOSTS = re.compile(r"\b(?:from|by)\s{1,9}\(?([a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,9})")
DIGITS = re.compile(r"\d+")
SENDERS = frozenset(("from", "reply-to", "return-path", "sender", "list-id"))
# fields that name the sender or the list, and nobody else
FROM = SENDERS.union(("list-post", "mailing-list", "x-mailing-list", "x-beenthere", "x-loop"))


def header_of(data: bytes) -> bytes | None:
    """Return the header of a message, at most HEADER_BYTES; None if it has none."""
    head = data[:HEADER_BYTES]
    ends = [at for at in (head.find(b"\n\n"), head.find(b"\n\r\n")) if at >= 0]
    return head[: min(ends, default=len(head))] or None


def of(
    text: bytes, rest: bytes | None = None, header: bytes | None = None, is_folded: bool = True
) -> set[str]:
    """Return the tokens of a text.

    text, rest: as inputs.text gives them. header: what header_of gives; None for what is no
    message. is_folded: whether text and rest are in the form of normalize.fold.
    """
    found = set(_of_header(header)) if header else set()
    words = dict.fromkeys(_words(text, is_folded))
    if rest:
        words |= dict.fromkeys(_words(rest, is_folded))
    kept = [word for word in words if len(word) > 1 or word > "\x7f"]
    half = (MAX_TOKENS - len(found)) // 2
    # both ends: a sender may begin or end with words that say nothing
    return found.union(kept if len(kept) <= 2 * half else kept[:half] + kept[-half:])


def is_of_header(token: str) -> bool:
    """Whether a token is one of a header."""
    return ":" in token


def is_of_sender(token: str) -> bool:
    """Whether a token names the sender or the list of a message (FROM)."""
    return token.partition(":")[0] in FROM


def _of_header(header):
    """Return the tokens of a header, a list without repetition of at most MAX_HEADER."""
    found: dict[str, None] = {}
    every = fields.fields(header)
    if not any(name in FIELDS for name, _ in every):
        return []
    for name, value in every[:MAX_FIELDS]:
        if SKIPPED.fullmatch(name) or len(name) > MAX_NAME:
            continue
        value = value[:MAX_VALUE]
        found["has:" + name] = None
        if name == "received":
            value = value.lower()
            found.update((f"rcvd:{host}", None) for host in HOSTS.findall(value)[:MAX_WORDS])
        else:
            if "=?" in value or not value.isascii():
                value = _decoded(value)
            value = value.lower()
            for word in WORDS.findall(value)[:MAX_WORDS]:
                if len(word) <= MAX_WORD and not word.startswith("boundary"):
                    found[f"{name}:{DIGITS.sub('0', word)}"] = None
            if name in SENDERS and "@" in value:
                found.update((f"{name}:@{host}", None) for host in _domains(value))
        if len(found) >= MAX_HEADER:
            break
    return list(found)[:MAX_HEADER]


def _domains(value):
    """The domains of the addresses in a field: what stands behind an @."""
    words = WORDS.findall(value)[:MAX_WORDS]
    return [word.rpartition("@")[2] for word in words if "@" in word and len(word) <= 80]


def _decoded(value):
    """A field's value with its encoded words decoded."""
    from ..mail import transfer

    return transfer.header_text(value, set())


def _words(text, is_folded):
    if len(text) > 2 * MAX_BYTES:
        text = text[:MAX_BYTES] + b" " + text[-MAX_BYTES:]
    found = text.decode("utf-8", "ignore")
    if not is_folded:
        from ..mail import normalize

        found = normalize.fold(found)
    return found.split()
