"""configs/postfix/README.md: its commands, in order, in a private Postfix as Debian installs it."""

import re
import sys

import postfix
import pytest
from conftest import ROOT, wait_for
from filtered import start_worker
from letters import marked_once, own_fields
from sink import Sink

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]
PAGE = ROOT / "configs/postfix/README.md"


def blocks():
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def test_page_for_administrators():
    with postfix.Postfix(show=[ROOT, sys.base_prefix], users=()) as p, Sink(p) as sink:
        p.run("sh", "-c", f"mkdir -p /opt/sluice /run/sluice; ln -s {ROOT}/bin /opt/sluice/bin")
        before = p.run("sh", "-c", "postconf -n; postconf -Mf; postconf -Pf").stdout
        said = []
        for block in blocks():
            block = block.replace("/usr/local/src/sluice", str(ROOT))
            done = p.run("sh", "-ec", f"cd {ROOT}\n{block}", check=False)
            said.append(done.stdout.decode())
            assert done.returncode == 0 and not re.search(rb"warning|fatal|error", done.stderr), (
                block,
                done,
            )
            if "adduser" in block:
                p.run("chown", "filter", "/run/sluice")
                start_worker(p)
            if "smtp-source" in block:
                wait_for(lambda: not p.queue(), "empty queue")
            if "spam_checks" in block and "cp " in block:
                held(p, sink)
        after = p.run("sh", "-c", "postconf -n; postconf -Mf; postconf -Pf").stdout
    assert after == before and len(said) >= 13
    assert any("X-Spam-Status: Yes" in out for out in said)
    assert any("answer=yes score=" in out for out in said) and any(
        "1 answer=yes\n" in out for out in said
    )
    assert any(
        "status=sent (delivered via filter service)" in out and "Mail queue is empty" in out
        for out in said
    )
    copy_time, live = sink.mails[:2]
    assert (
        not own_fields(copy_time.data)
        and marked_once(live.data)
        and own_fields(live.data)["x-spam-flag"] == ["YES"]
    )


def held(p, sink):
    """What is marked waits in the hold queue; what is not, and what is only forged, arrives."""
    n = len(sink.mails)
    p.run(
        "smtp-source",
        "-f",
        "you@example.net",
        "-t",
        "you@example.org",
        "-F",
        ROOT / "tests/mails/spam-cards.eml",
        "127.0.0.1:25",
    )
    p.run(
        "smtp-source",
        "-f",
        "you@example.net",
        "-t",
        "you@example.org",
        "-F",
        ROOT / "tests/mails/ham-mutt.eml",
        "127.0.0.1:25",
    )
    sink.wait(n + 1)
    wait_for(lambda: [mail["queue_name"] for mail in p.queue()] == ["hold"], "mail on hold alone")
    p.run("postsuper", "-d", "ALL")
    assert own_fields(sink.mails[n].data)["x-spam-flag"] == ["NO"]
