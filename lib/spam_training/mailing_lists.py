"""Augmentation: change texts as a mailing list would, with a subject tag, "via", and a footer.

In the corpora nearly all list mail is ham (94 of 100 SpamAssassin messages with a tag). A net
trained on that takes tag and footer for evidence of ham. So a share of the training texts, the same
for both labels, is changed as a list would resend them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np

from sluice.mail import normalize
from sluice.mail.message import MAX_LINKS

from . import templates
from .texts import Text

P_RESENT = 0.2  # share of texts that are changed
P_TAG, P_VIA, P_FOOTER = 0.6, 0.4, 0.9  # shares of these with a tag, "via", a footer
# by kind of footer; other kinds have any host
HOSTS = {"groups": "googlegroups.com", "groups-io": "groups.io", "yahoo": "yahoogroups.com"}
REPLY = re.compile(r"Subject: (?:(?:re|fwd?|aw|wg|sv|antw|rif|tr)(?: \[ 0+ \])? : )*")
SENDER = re.compile(r"From: (?:(?P<name>[^<]+) )?(?:< )?(?P<user>\S+) @ ")
BY_A_LIST = re.compile(
    r"mailing list|listinfo|majordomo|(?:yahoo|google)groups|groups \. (?:io|yahoo)|unsubscribe"
    r" from (?:this|the) (?:list|group)"
)
LINK = re.compile(r"https?://([\w.-]+\w)")


def resend_some(texts: Sequence[Text], is_kept: np.ndarray) -> tuple[list[Text], np.ndarray]:
    """Resend some texts: ([texts.Text]; bool [n], which of them changed).

    texts: [texts.Text]. is_kept: bool [n], texts that must not change.
    """
    out = [text if stay else maybe_resent(text) for text, stay in zip(texts, is_kept)]
    return out, np.array([a != b for a, b in zip(texts, out)], bool)


def maybe_resent(text: Text) -> Text:
    """A texts.Text, resent with probability P_RESENT.

    The choice is a function of corpus, name and body: texts of one template share a name.
    """
    rng = random.Random(f"lists {text.corpus} {text.name} {text.body}")
    return resent(text, rng) if rng.random() < P_RESENT else text


def resent(text: Text, rng: random.Random) -> Text:
    """A texts.Text as a list resends it.

    Lines From and Subject are changed, never invented; tags and footers of a list are not added
    twice. rng: random.Random.
    """
    filler, head, body = templates.Filler(rng, None), dict(text.head), text.body
    kind, footer = rng.choice(templates.around("list_footers.txt"))
    if kind in HOSTS:
        filler.values_so_far["listhost", ""] = HOSTS[kind], None
    name, host = filler.slot("list", ""), filler.slot("listhost", "")
    subject = head.get("Subject", "")
    reply = REPLY.match(subject)
    if reply and not subject.startswith("[ ", reply.end()) and rng.random() < P_TAG:
        head["Subject"] = f"{reply[0]}{normalize.fold(f'[{name}]')} {subject[reply.end() :]}"
    sender = SENDER.match(head.get("From", ""))
    if sender and " via " not in head["From"] and rng.random() < P_VIA:
        head["From"] = (
            f"From: {sender['name'] or sender['user']}"
            f" {normalize.fold(f'via {name} <{name}@{host}>')}"
        )
    if not BY_A_LIST.search(body) and rng.random() < P_FOOTER:
        footer = filler.template(footer)
        body = normalize.fold(f"{body} {footer}")
        links_before = head["Links"][len("Links: ") :].split(" , ") if "Links" in head else []
        links = list(
            dict.fromkeys(links_before + [normalize.fold(link) for link in LINK.findall(footer)])
        )[:MAX_LINKS]
        if links:
            head["Links"] = "Links: " + " , ".join(links)
    return text._replace(head={key: head[key] for key in templates.HEAD if key in head}, body=body)
