"""What mailing lists put around a mail: a tag before its subject, the list as its sender, a footer below.

In the corpora nearly all that came by a list is wanted (of SpamAssassin's mails with a tag 94 in 100), so that a net takes the tag and the footer
for an answer, and calls wanted what a spammer writes to a list today. Hence a share of the texts that are learnt from, the same of both labels, are
shown as a list would have sent them on.
"""
import random
import re

from ..mail import plain
from . import written

P_LISTED = 0.2                           # of texts
P_TAG, P_VIA, P_FOOTER = 0.6, 0.4, 0.9   # of these: which have what
REPLY = re.compile("Subject: ((?:re|fwd?|aw) : )?")
LINK = re.compile(r"https?://([\w.-]+\w)")


def listed(text):
    """A texts.Text as it is, or as a list sends it on; a function of its corpus, name and body (texts of one template have one name)."""
    rng = random.Random(f"lists {text.corpus} {text.name} {text.body}")
    return sent_on(text, rng) if rng.random() < P_LISTED else text


def sent_on(text, rng):
    """A texts.Text as a list sends it on, by random.Random `rng`. Its lines From and Subject are there or not as before."""
    filler, head, body = written.Filler(rng, None), dict(text.head), text.body
    name, host = filler.slot("list", ""), filler.slot("listhost", "")
    if "Subject" in head and rng.random() < P_TAG:
        head["Subject"] = REPLY.sub(lambda found: found[0] + plain.fold(f"[{name}]") + " ", head["Subject"], count=1)
    if "From" in head and rng.random() < P_VIA:
        head["From"] = head["From"].split(" < ")[0] + " " + plain.fold(f"via {name} <{name}@{host}>")
    if rng.random() < P_FOOTER:
        footer = filler.template(rng.choice(written.around("listed.txt"))[1])
        body = f"{body} {plain.fold(footer)}".strip()
        linked = ", ".join(dict.fromkeys(LINK.findall(footer)))
        if linked:
            head["Links"] = f"{head['Links']} , {plain.fold(linked)}" if "Links" in head else f"Links: {plain.fold(linked)}"
    return text._replace(head={key: head[key] for key in written.HEAD if key in head}, body=body)
