"""What mailing lists put around a mail: a tag before its subject, the list as its sender, a footer
below.

In the corpora nearly all that came by a list is wanted (of SpamAssassin's mails with a tag 94 in
100), so that a net takes the tag and the footer for an answer, and calls wanted what a spammer
writes to a list today. Hence a share of the texts that are learnt from, the same of both labels,
are shown as a list would have sent them on.
"""

import random
import re

import numpy as np

from sluice.mail import normalize
from sluice.mail.message import MAX_LINKS

from . import written

P_LISTED = 0.2  # of texts
P_TAG, P_VIA, P_FOOTER = 0.6, 0.4, 0.9  # of these: which have what
# by kind of footer; of others any
HOSTS = {"groups": "googlegroups.com", "groups-io": "groups.io", "yahoo": "yahoogroups.com"}
REPLY = re.compile(r"Subject: (?:(?:re|fwd?|aw|wg|sv|antw|rif|tr)(?: \[ 0+ \])? : )*")
SENDER = re.compile(r"From: (?:(?P<name>[^<]+) )?(?:< )?(?P<user>\S+) @ ")
BY_A_LIST = re.compile(
    r"mailing list|listinfo|majordomo|(?:yahoo|google)groups|groups \. (?:io|yahoo)|unsubscribe"
    r" from (?:this|the) (?:list|group)"
)
LINK = re.compile(r"https?://([\w.-]+\w)")


def shown(texts, stays):
    """([texts.Text] as they are learnt from; bool [n], which of them are not as they came). stays:
    bool [n], which are to be.
    """
    sent = [text if stay else listed(text) for text, stay in zip(texts, stays)]
    return sent, np.array([a != b for a, b in zip(texts, sent)], bool)


def listed(text):
    """A texts.Text as it is, or as a list sends it on; a function of its corpus, name and body
    (texts of one template have one name).
    """
    rng = random.Random(f"lists {text.corpus} {text.name} {text.body}")
    return sent_on(text, rng) if rng.random() < P_LISTED else text


def sent_on(text, rng):
    """A texts.Text as a list sends it on, by random.Random `rng`. No line From or Subject is made
    up, and what a list has put there stays alone.
    """
    filler, head, body = written.Filler(rng, None), dict(text.head), text.body
    kind, footer = rng.choice(written.around("list_footers.txt"))
    if kind in HOSTS:
        filler.kept["listhost", ""] = HOSTS[kind], None
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
        known = head["Links"][len("Links: ") :].split(" , ") if "Links" in head else []
        links = list(
            dict.fromkeys(known + [normalize.fold(link) for link in LINK.findall(footer)])
        )[:MAX_LINKS]
        if links:
            head["Links"] = "Links: " + " , ".join(links)
    return text._replace(head={key: head[key] for key in written.HEAD if key in head}, body=body)
