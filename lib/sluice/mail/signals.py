"""Signals that only a server has: what it wrote about a message, and what lists and senders add.

They are tokens for learning. The text that a model reads never has them: what they are worth
differs from one user to the next.

    signal:dkim=pass                  Authentication-Results, a result of each method
    signal:dkim=pass/example.org      and the domain that passed
    signal:spf=softfail               Authentication-Results, else Received-SPF
    signal:dkim-signature             there is one, valid or not
    signal:list=users.example.org     List-Id
    signal:unsubscribe=mail           List-Unsubscribe by mail, web, or one-click (RFC 8058)
    signal:reply-to=other             its domain is not that of From

Anybody can write Authentication-Results (RFC 8601, section 7.1). Those fields count whose
authserv-id was named, and of these the topmost ones: between two of them there is no Received
field, which the server puts between its own fields and those that came. Of a method the first
field that has it decides. A server must remove fields with its own authserv-id that come from
outside (section 5); one that neither does this nor adds a field leaves the word to the sender.
"""

from . import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PREFIX = "signal:"
METHODS = frozenset("arc auth dkim dmarc iprev spf".split())
RESULTS = frozenset("none pass fail policy neutral temperror permerror softfail hardfail".split())
# properties that name the domain of a method's "pass"
PROPERTIES = {
    "dkim": ("header.d", "header.i"),
    "spf": ("smtp.mailfrom", "smtp.helo"),
    "dmarc": ("header.from",),
}
MAX_TOKENS = 50
MAX_RESULTS = 100  # of a field


def tokens(mail: bytes, authserv_ids: "Iterable[str]") -> set[str]:
    """Return the tokens of a message (or its header), at most MAX_TOKENS.

    authserv_ids: those whose Authentication-Results are trusted. Raises nothing.
    """
    return tokens_of(fields.fields(mail), authserv_ids)


def tokens_of(header: "Sequence[tuple[str, str]]", authserv_ids: "Iterable[str]") -> set[str]:
    """Return the tokens of a header that fields.fields gave."""
    found: list[str] = []
    trusted = frozenset(name.lower() for name in authserv_ids)
    results = authentication(header, trusted)
    for method, result, host in results:
        found.append(f"{method}={result}")
        if host:
            found.append(f"{method}={result}/{host}")
    if not any(method == "spf" for method, *_ in results):
        found += _received_spf(header, trusted)
    first: dict[str, str] = {}
    for name, value in header:
        first.setdefault(name, value)
    if "dkim-signature" in first:
        found.append("dkim-signature")
    if name := fields.list_id(first.get("list-id", "")):
        found.append(f"list={name}")
    found += _unsubscribe(first)
    sender, reply = (
        fields.domain_of(fields.address(first.get(name, ""))) for name in ("from", "reply-to")
    )
    if sender and reply and not fields.is_below(sender, reply):
        if not fields.is_below(reply, sender):
            found.append("reply-to=other")
    return {PREFIX + word for word in found[:MAX_TOKENS]}


def words(found: "Iterable[str]") -> list[str]:
    """Return fixed words for the tokens `found`, sorted: no name of a domain or list is in them."""
    out = set()
    for token in found:
        word = token.removeprefix(PREFIX).partition("/")[0]
        name, _, value = word.partition("=")
        out.add("list" if name == "list" else f"{name}:{value}" if value else name)
    return sorted(out)


def authentication(
    header: "Sequence[tuple[str, str]]", trusted: "frozenset[str]"
) -> list[tuple[str, str, str]]:
    """Return [(method, result, domain or "")] of the trusted topmost Authentication-Results.

    trusted: authserv-ids in lower case. A domain is given for "pass" alone.
    """
    found: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    for name, value in header if trusted else ():
        if name == "received" and found:
            break
        if name == "authentication-results":
            here = [r for r in _results(value, trusted) if r[0] not in seen]
            found += here
            seen |= {method for method, *_ in here}
    return found


def _results(value: str, trusted: "frozenset[str]") -> "Iterator[tuple[str, str, str]]":
    text = fields.without_comments(value)
    if text is None:
        return
    # "=" without spaces, so that a word is a whole property
    first, *statements = "=".join(part.strip() for part in text.split("=")).split(";")
    if first.lower().split()[:1] not in [[name] for name in trusted]:
        return
    for statement in statements[:MAX_RESULTS]:
        words = statement.split()
        if not words:
            continue
        method, _, result = words[0].lower().partition("=")
        method = method.partition("/")[0]
        if method not in METHODS or result not in RESULTS:
            continue
        properties = dict(word.lower().split("=", 1) for word in words[1:] if "=" in word)
        values = [properties.get(name, "") for name in PROPERTIES.get(method, ())]
        host = next((d for v in values if (d := fields.domain(v.rpartition("@")[2]))), "")
        yield method, result, host if result == "pass" else ""


def _received_spf(header: "Sequence[tuple[str, str]]", trusted: "frozenset[str]") -> list[str]:
    """The topmost Received-SPF (RFC 7208, section 9.1), above the second Received field."""
    n_received = 0
    for name, value in header:
        n_received += name == "received"
        if n_received > 1:
            break
        if name != "received-spf":
            continue
        text = fields.without_comments(value)
        words = (text or "").lower().replace(";", " ").split()
        by = [word.partition("=")[2] for word in words if word.startswith("receiver=")]
        is_ours = not by or not trusted or by[0] in trusted
        return [f"spf={words[0]}"] if words and words[0] in RESULTS and is_ours else []
    return []


def _unsubscribe(first: dict[str, str]) -> list[str]:
    value = first.get("list-unsubscribe", "").lower()
    is_web = "<https:" in value or "<http:" in value
    if is_web and "one-click" in first.get("list-unsubscribe-post", "").lower():
        return ["unsubscribe=one-click"]
    return ["unsubscribe=web"] * is_web + ["unsubscribe=mail"] * ("<mailto:" in value)
