"""Allow and block lists: rules by which a message is answered without the model.

    received-by: [mx.example.com]
    rules:
      - rule: partners
        answer: no
        sender: [ann@example.org, "@example.com", "news-*@*.example.net"]
        authenticated: true
      - rule: lists
        answer: no
        list-id: users.example.org
      - rule: scanners
        answer: yes
        client: [192.0.2.0/24, 2001:db8::/32]

The first rule that matches decides. A rule matches if each of its conditions does, and a condition
if one of its patterns does:

    sender         the address in From: ADDRESS, @DOMAIN (and its subdomains), or a pattern: either
                   with * and ?
    domain         the domain of that address: DOMAIN (and its subdomains), or a pattern
    list-id        the identifier of List-Id, or a pattern
    client         the address, or network, of the host that delivered the message
    authenticated  true: a server that was named (--authserv-id) found that the domain in From, or
                   one above it, signed the message (dkim=pass), or dmarc=pass

From and List-Id are written by the sender, so anybody can forge them: an allow list of them is as
good as the server's DMARC, unless the rule says `authenticated`. A message with two From fields, or
two addresses in one, has no sender.

The client is what the mail server names (`mail-filter --client`, mail-milter). If it names none, it
is the address in the topmost Received field of a host in `received-by`, above all others, as
Postfix and Sendmail write it: "from HELO (NAME [ADDRESS]) by HOST". Fields of these hosts without
an address, or with a loopback one, are passed over. Any other Received field ends the search, as
the sender may have written it.
"""

import re

from . import fields, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Header = Sequence[tuple[str, str]]

CLIENT = re.compile(r"from \S{1,300} \((?:\S{1,300} )?\[(?:IPv6:)?([0-9A-Fa-f:.]{2,45})\]")


class Patterns:
    """Patterns of names (domains, identifiers) or addresses, all in lower case.

    exact: set. below: set of domains, which stand for their subdomains, too. globs: list.
    """

    def __init__(self) -> None:
        self.exact: set[str] = set()
        self.below: set[str] = set()
        self.globs: list[str] = []

    def match(self, text: str) -> bool:
        """Whether `text`, an address or a name, matches a pattern."""
        if text in self.exact:
            return True
        host = fields.domain_of(text)
        while self.below and host:
            if host in self.below:
                return True
            host = host.partition(".")[2]
        return any(glob(pattern, text) for pattern in self.globs)


class Networks:
    """Networks of ipaddress: one look-up for each length of prefix that occurs."""

    def __init__(self) -> None:
        self._prefixes: dict[
            tuple[int, int], set[int]
        ] = {}  # {(version, bits that vary): prefixes}

    def add(self, network: "Any") -> None:
        n = network.max_prefixlen - network.prefixlen
        known = self._prefixes.setdefault((network.version, n), set())
        known.add(int(network.network_address) >> n)

    def match(self, ip: "Any") -> bool:
        """Whether an address of ipaddress is in one of the networks."""
        number, version = int(ip), ip.version
        return any(
            v == version and number >> n in known for (v, n), known in self._prefixes.items()
        )


class Rule:
    """name, answer: str. sender, domain, list_id: Patterns or None. clients: Networks or None.
    is_authenticated: bool.
    """

    def __init__(self, name: str, answer: str) -> None:
        self.name, self.answer = name, answer
        self.sender: Patterns | None = None
        self.domain: Patterns | None = None
        self.list_id: Patterns | None = None
        self.clients: Networks | None = None
        self.is_authenticated = False


class Rules:
    """rules: list of Rule. received_by: set of hosts. authserv_ids: those that are trusted."""

    def __init__(
        self,
        rules: "list[Rule]",
        received_by: "Iterable[str]" = (),
        authserv_ids: "Iterable[str]" = (),
    ) -> None:
        self.rules, self._received_by = rules, frozenset(received_by)
        self._authserv_ids = frozenset(name.lower() for name in authserv_ids)
        self._needs_client = any(rule.clients for rule in rules)

    def match(self, mail: bytes, client: str | None = None) -> "Rule | None":
        """Return the first rule that matches a message, or None.

        client: the address that the mail server names, or None.
        """
        header = fields.fields(mail)
        found = _Message(header, self._authserv_ids)
        if self._needs_client:
            found.client = _ip(client) if client else self._client_of(header)
        return next((rule for rule in self.rules if found.matches(rule)), None)

    def _client_of(self, header: "Header") -> "Any":
        for name, value in header:
            if name != "received":
                continue
            words = (fields.without_comments(value) or "").lower().split()
            by = words.index("by") if "by" in words[:3] else -1
            if by not in (0, 2) or len(words) == by + 1:
                return None
            if words[by + 1].rstrip(".;") not in self._received_by:
                return None
            written = CLIENT.match(value)
            ip = _ip(written[1]) if written else None
            if ip is not None and not ip.is_loopback:
                return ip
            if by and ip is None:  # from a host whose address is not written as expected
                return None
        return None


class _Message:
    """What conditions look at, found once."""

    def __init__(self, header: "Header", authserv_ids: "frozenset[str]") -> None:
        self._header, self._ids = header, authserv_ids
        senders = [value for name, value in header if name == "from"]
        self._sender = fields.address(senders[0]) if len(senders) == 1 else ""
        lists = [value for name, value in header if name == "list-id"]
        self._list_id = fields.list_id(lists[0]) if len(lists) == 1 else ""
        self.client: Any = None
        self._is_authenticated: bool | None = None

    def matches(self, rule: Rule) -> bool:
        for patterns, text in (
            (rule.sender, self._sender),
            (rule.domain, fields.domain_of(self._sender)),
            (rule.list_id, self._list_id),
        ):
            if patterns and not (text and patterns.match(text)):
                return False
        if rule.clients is not None:
            if self.client is None or not rule.clients.match(self.client):
                return False
        return not rule.is_authenticated or self._authenticated()

    def _authenticated(self) -> bool:
        if self._is_authenticated is None:
            domain = fields.domain_of(self._sender)
            results = signals.authentication(self._header, self._ids) if domain else []
            self._is_authenticated = any(
                result == "pass"
                and (
                    method == "dkim"
                    and host
                    and fields.is_below(domain, host)
                    or method == "dmarc"
                    and host in ("", domain)
                )
                for method, result, host in results
            )
        return self._is_authenticated


def glob(pattern: str, text: str) -> bool:
    """Whether `text` matches `pattern`, in which * is any characters and ? is one.

    At most len(pattern) * len(text) steps.
    """
    p = t = 0
    star, resumed = -1, 0
    while t < len(text):
        if p < len(pattern) and pattern[p] == "*":
            star, resumed, p = p, t, p + 1
        elif p < len(pattern) and pattern[p] in ("?", text[t]):
            p, t = p + 1, t + 1
        elif star >= 0:
            resumed += 1
            p, t = star + 1, resumed
        else:
            return False
    return not pattern[p:].strip("*")


def _ip(text: str) -> "Any":
    """The ipaddress of `text`, of an IPv4-mapped one that of IPv4; None if it is none."""
    import ipaddress

    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
