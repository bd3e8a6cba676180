"""mail-filter behind Debian's Postfix while what it needs is broken or killed: sendmail, the disk,
anything on the way.
"""

import letters
import postfix
import pytest
import soak
from conftest import wait_for
from filtered import filtered
from test_postfix import SIGNALS

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]

# --- the way back is broken ---

SENDMAIL = r"""#!/bin/sh
# In sendmail's place: the last recipient says how to end.
for last; do :; done
case $last in
exit-*) cat >/dev/null; last=${last%@*}; exit "${last#*-}" ;;
unread-*) last=${last%@*}; exit "${last#*-}" ;;
signal-*) last=${last%@*}; ulimit -c 0; kill -"${last#*-}" $$; sleep 60 ;;
hang@*) cat >/dev/null; sleep 600 & exec sleep 600 ;;
esac
"""


def test_whatever_becomes_of_sendmail_the_mail_stays_and_arrives_later():
    ends = (
        [f"exit-{code}" for code in range(1, 256)]
        + [f"unread-{code}" for code in (1, 64, 75)]
        + [f"signal-{name}" for name in SIGNALS]
        + ["hang"]
    )
    mails = [
        (f"{end}@d{n}.example.org", letters.crlf(letters.ordinary()[n % 6]))
        for n, end in enumerate(ends)
    ]
    main = {
        "minimal_backoff_time": "1h",
        "maximal_backoff_time": "1h",
        "queue_run_delay": "1h",
        "soft_bounce": "no",
        "filter_destination_concurrency_limit": "20",
    }
    with filtered(main) as (p, sink):
        p.run(
            "postconf",
            "-M",
            "filter/unix=filter unix - n n - 20 pipe flags=Rq user=filter null_sender="
            " argv=/opt/sluice/bin/mail-filter --classify /bin/false --send-limit 3 -f ${sender} --"
            " ${recipient}",
        )
        p.run("postfix", "reload")
        stub = p.directory / "etc/sendmail-stub"
        stub.write_text(SENDMAIL)
        stub.chmod(0o755)
        p.run("mount", "--bind", "/etc/sendmail-stub", "/usr/sbin/sendmail")
        assert not letters.send(p, mails)
        wait_for(
            lambda: len([d for d in p.deliveries() if d[0] == "pipe"]) >= len(mails),
            "attempt at each mail",
        )
        seen = {
            (to.split("@")[0], status, dsn)
            for service, to, dsn, status, _ in p.deliveries()
            if service == "pipe"
        }
        assert seen == {(end, "deferred", "4.3.0") for end in ends} and not sink.mails
        p.run("umount", "-l", "/usr/sbin/sendmail")
        p.drain()
        arrived(sink, mails, p)


def arrived(sink, mails, p):
    """Every mail once, marked once, its bytes as they were sent; none bounced."""
    got = {}
    for mail in sink.mails:
        for to in mail.recipients:
            got.setdefault(to, []).append(mail.data)
    assert sorted(got) == sorted(to for to, _ in mails) and all(
        len(copies) == 1 for copies in got.values()
    )
    for to, data in mails:
        assert letters.marked_once(got[to][0]) and letters.without_ours(
            got[to][0]
        ) == letters.without_ours(data), to
    assert "status=bounced" not in p.log()


def test_refused_submission_missing_sendmail_and_no_right_to_the_maildrop_are_deferrals():
    mails = letters.load(1)
    with filtered({"soft_bounce": "no"}) as (p, sink):

        def broken(break_it, mend, to):
            p.run("sh", "-c", break_it)
            assert not letters.send(p, [(to, mails[0][1])])
            wait_for(
                lambda: any(d[:2] == ("pipe", to) and d[3] == "deferred" for d in p.deliveries()),
                f"deferred mail to {to}",
            )
            p.run("sh", "-c", mend)

        reload = "; postfix reload"
        p.run(
            "postconf",
            "-M",
            "filter/unix=filter unix - n n - 4 pipe flags=Rq user=filter null_sender="
            " argv=/opt/sluice/bin/mail-filter --send-limit 2 --socket /run/sluice/classify.sock -f"
            " ${sender} -- ${recipient}",
        )
        broken(
            "postconf -e authorized_submit_users=root" + reload,
            "postconf -X authorized_submit_users" + reload,
            "a@example.org",
        )
        broken(
            "mount --bind /dev/null /usr/sbin/sendmail",
            "umount -l /usr/sbin/sendmail",
            "b@example.org",
        )
        broken(
            "mount --bind /dev/null /usr/sbin/postdrop",
            "umount -l /usr/sbin/postdrop",
            "c@example.org",
        )
        broken(
            "chmod 0 /var/spool/postfix/maildrop",
            "chmod 1730 /var/spool/postfix/maildrop",
            "d@example.org",
        )
        broken("mount -t tmpfs -o size=4k none /var/tmp", "umount -l /var/tmp", "e@example.org")
        broken(
            "mount --bind /dev/null $(readlink -f /opt/sluice/bin/mail-filter)",
            "umount -l $(readlink -f /opt/sluice/bin/mail-filter)",
            "f@example.org",
        )
        p.drain()
        arrived(sink, [(f"{c}@example.org", mails[0][1]) for c in "abcdef"], p)


@pytest.mark.parametrize(
    "limit", ["10305536", "10240000"], ids=["larger limit at re-entry", "the same limit"]
)
def test_no_mail_around_the_size_limit_is_lost(limit):
    """What is refused at the door is no loss; what is taken arrives, with our fields where there is
    room for them.
    """
    taken = {}
    with filtered({"soft_bounce": "no", "message_size_limit": limit}) as (p, sink):

        def fits(size):
            to, data = f"s{size}@example.org", b"Subject: size\r\n\r\n" + fill(size - 17)
            refused = letters.send(p, [(to, data)])
            assert refused in ([], [(to, 552)])
            if not refused:
                taken[to] = data
            return not refused

        low, high = 10_200_000, 10_260_000
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        for size in range(low - 299, low + 300, 50):
            fits(size)
        p.drain()
        got = {mail.recipients[0]: mail.data for mail in sink.mails}
        assert (
            len(sink.mails) == len(got)
            and got.keys() == taken.keys()
            and "status=bounced" not in p.log()
        )
        for to, data in taken.items():
            assert letters.without_ours(got[to]) == data
            assert letters.marked_once(got[to]) or limit == "10240000"


def fill(size):
    """Lines of 500 bytes, `size` in all, line ends counted as smtpd does: as two."""
    return b"".join(b"x" * (min(500, size - at) - 2) + b"\r\n" for at in range(0, size, 500))


# --- things die and break on the way ---


def test_nothing_is_lost_bounced_or_changed_when_anything_is_killed():
    figures = soak.soak(300, 30)
    promised = dict.fromkeys(
        ("lost", "bounced", "changed", "badly marked", "to nobody we wrote to", "refused")
        + ("judged by another's",),
        0,
    )
    assert figures == {**figures, **promised, "mails": 300}, figures
    # a kill, and what is under way when Postfix stops
    assert figures["duplicates"] <= 30 + 4 * 3, figures
    assert (
        sum(n for what, n in figures.items() if what.startswith("killed")) == 30
        and figures["unchecked"] < 300
    )
    assert figures["judged by their own"] > 150 and figures["taught meanwhile"], figures
    print(figures)
