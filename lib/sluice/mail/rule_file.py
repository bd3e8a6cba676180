"""Read the YAML file of --rules (rules.py), and read it again when it changes."""

import os
import re

from .. import yamlfile
from ..faults import Error, data_error, printable
from ..system import files
from .fields import domain
from .rules import Networks, Patterns, Rule, Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    At = tuple[str | int, ...]  # keys and indices that lead to a value

MAX_BYTES = 4 << 20
MAX_RULES = 1000
MAX_PATTERNS = 50_000  # of a file
MAX_GLOBS = 1000  # of these, with * or ?: each is tried on each message
MAX_PATTERN = 320  # characters
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
GLOB = re.compile(r"[!-~]+")
KEYS = "rule", "answer", "sender", "domain", "list-id", "client", "authenticated"
CONDITIONS = KEYS[2:]


class RuleFile:
    """The rules in the file at `path`.

    answers: {word: answer of the question} that a rule may name. authserv_ids: as of Rules.
    say: called with a message if a changed file cannot be used: the rules stay as they were.

    Raises DataError naming file and line, or OSError, if it cannot be used at first. The file must
    not be writable by others (files.open_trusted).
    """

    def __init__(
        self,
        path: str,
        answers: "dict[str, str]",
        authserv_ids: "Sequence[str]" = (),
        say: "Callable[[str], object] | None" = None,
    ) -> None:
        self.path, self._say = path, say
        self._answers, self._authserv_ids = answers, authserv_ids
        self._seen = self._signature()
        self._rules = self._read()

    def current(self) -> Rules:
        """Return the rules, read again if the file has changed."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._rules = self._read()
            except (Error, OSError) as e:
                if self._say:
                    why = str(e) if isinstance(e, Error) else f"{self.path}: {e.strerror}"
                    self._say(f"{why}; the rules stay as they were")
        return self._rules

    def _signature(self) -> "Any":
        try:
            s = os.stat(self.path)
        except OSError as e:
            return e.errno
        return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns

    def _read(self) -> Rules:
        with open(files.open_trusted(self.path), "rb") as f:
            data = f.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise data_error(self.path, f"more than {MAX_BYTES} bytes")
        return parse(data, self.path, self._answers, self._authserv_ids)


def parse(
    data: bytes, path: str, answers: "dict[str, str]", authserv_ids: "Sequence[str]" = ()
) -> Rules:
    """Return the Rules in `data`. Raises DataError naming `path` and the line."""
    lines: dict[At, int] = {}
    tree = yamlfile.parse(data, path, lines)
    return _Reader(path, lines, answers, authserv_ids).read(tree)


class _Reader:
    def __init__(
        self,
        path: str,
        lines: "dict[At, int]",
        answers: "dict[str, str]",
        authserv_ids: "Sequence[str]",
    ) -> None:
        self._path, self._lines, self._answers = path, lines, answers
        self._authserv_ids = authserv_ids
        self._n_patterns = self._n_globs = 0

    def _error(self, at: "At", problem: str) -> Error:
        return data_error(self._path, f"line {self._lines.get(at, 1)}: {problem}")

    def read(self, tree: "Any") -> Rules:
        self._check_keys((), tree, ("received-by", "rules"))
        if "rules" not in tree:
            raise self._error((), "rules: is missing")
        hosts = [
            self._host(at, text)
            for at, text in self._strings(("received-by",), tree, "received-by")
        ]
        if not isinstance(tree["rules"], list) or len(tree["rules"]) > MAX_RULES:
            raise self._error(("rules",), f"rules: is not a list of at most {MAX_RULES} rules")
        names, rules = set(), []
        for i, item in enumerate(tree["rules"]):
            rule = self._rule(("rules", i), item)
            if rule.name in names:
                raise self._error(("rules", i, "rule"), f"rule: two rules are called {rule.name}")
            names.add(rule.name)
            rules.append(rule)
        return Rules(rules, hosts, self._authserv_ids)

    def _rule(self, at: "At", item: "Any") -> Rule:
        self._check_keys(at, item, KEYS)
        for key in ("rule", "answer"):
            if not isinstance(item.get(key), str):
                raise self._error((*at, key) if key in item else at, f"{key}: is no word")
        if not NAME.fullmatch(item["rule"]):
            raise self._error(
                (*at, "rule"),
                f"rule: {printable(item['rule'])} is not a name of 1 to 40 of a-z 0-9 . _ -",
            )
        if item["answer"] not in self._answers:
            raise self._error(
                (*at, "answer"),
                f"answer: {printable(item['answer'])} is none of {', '.join(self._answers)}",
            )
        if not any(key in item for key in CONDITIONS):
            raise self._error(at, f"the rule has none of {', '.join(CONDITIONS)}")
        rule = Rule(item["rule"], self._answers[item["answer"]])
        rule.sender = self._patterns(at, item, "sender")
        rule.domain = self._patterns(at, item, "domain")
        rule.list_id = self._patterns(at, item, "list-id")
        if "client" in item:
            rule.clients = Networks()
            for place, text in self._strings(at, item, "client"):
                rule.clients.add(self._network(place, text))
        value = item.get("authenticated", False)
        if not isinstance(value, bool):
            raise self._error((*at, "authenticated"), "authenticated: is not true or false")
        if value and not self._authserv_ids:
            raise self._error(
                (*at, "authenticated"), "authenticated: needs a server to trust, --authserv-id"
            )
        rule.is_authenticated = value
        return rule

    def _check_keys(self, at: "At", value: "Any", known: "tuple[str, ...]") -> None:
        if not isinstance(value, dict):
            raise self._error(at, f"is not a mapping with {', '.join(known)}")
        for key in value:
            if key not in known:
                raise self._error(
                    (*at, key), f"unknown key {printable(key)}; known are {', '.join(known)}"
                )

    def _strings(self, at: "At", item: "Any", key: str) -> "list[tuple[At, str]]":
        """[(place, text)] of a text or a list of texts; [] if there is no such key."""
        if key not in item:
            return []
        value, at = item[key], at if at[-1:] == (key,) else (*at, key)
        pairs = [((*at, i), v) for i, v in enumerate(value)] if isinstance(value, list) else []
        pairs = pairs if isinstance(value, list) else [(at, value)]
        self._n_patterns += len(pairs)
        if self._n_patterns > MAX_PATTERNS:
            raise self._error(at, f"{key}: more than {MAX_PATTERNS} patterns in the file")
        if not pairs:
            raise self._error(at, f"{key}: is empty")
        for place, text in pairs:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_PATTERN:
                raise self._error(
                    place, f"{key}: is no text of 1 to {MAX_PATTERN} characters; quote numbers"
                )
        return [(place, text.lower()) for place, text in pairs]

    def _patterns(self, at: "At", item: "Any", key: str) -> Patterns | None:
        if key not in item:
            return None
        found = Patterns()
        for place, text in self._strings(at, item, key):
            self._add(found, key, place, text)
        return found

    def _add(self, found: Patterns, key: str, at: "At", text: str) -> None:
        local, sign, host = text.rpartition("@")
        if key == "sender" and not sign:
            raise self._error(at, f"{key}: {printable(text)} has no @; domain: is for domains")
        if key != "sender" and sign:
            raise self._error(at, f"{key}: {printable(text)} is no domain; sender: has addresses")
        if "*" in text or "?" in text:
            if not GLOB.fullmatch(text):
                raise self._error(at, f"{key}: {printable(text)} has other than ASCII characters")
            self._n_globs += 1
            if self._n_globs > MAX_GLOBS:
                raise self._error(at, f"{key}: more than {MAX_GLOBS} patterns with * or ?")
            found.globs.append(text if not sign or local else "*" + text)
        elif key == "list-id":
            found.exact.add(self._host(at, text))
        elif key == "domain" or not local:
            found.below.add(self._host(at, host))
        else:
            found.exact.add(f"{local}@{self._host(at, host)}")

    def _host(self, at: "At", text: str) -> str:
        name = domain(text)
        if not name:
            raise self._error(
                at, f"{printable(text)} is no domain; write others than ASCII as xn--..."
            )
        return name

    def _network(self, at: "At", text: str) -> "Any":
        import ipaddress

        try:
            return ipaddress.ip_network(text)
        except ValueError:
            raise self._error(
                at, f"client: {printable(text)} is no IP address or network (192.0.2.0/24)"
            ) from None
