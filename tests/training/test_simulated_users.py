"""The script of learning curves: spam_training.simulated_users."""

import io
import tarfile

import pytest
from click.testing import CliRunner

from spam_training import corpora, simulated_users

WORDS = {"spam": "prize lottery winner claim", "ham": "meeting minutes agenda report"}
NAMES = {"spamassassin": "x", "enron": "enron1.", "ling": "x"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Corpora of 24 messages each."""
    d = tmp_path_factory.mktemp("corpora")
    for corpus, file in corpora.ARCHIVES.items():
        with tarfile.open(d / file, "w:xz") as tar:
            for i in range(24):
                label = ("spam", "ham")[i % 2]
                data = f"Subject: {WORDS[label]} {i}\n\n{corpus} {WORDS[label]} {i * i}\n".encode()
                member = tarfile.TarInfo(f"{corpus}/{label}/{NAMES[corpus]}{i:02}.txt")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return d


def table(folder, *argv):
    done = CliRunner().invoke(simulated_users.main, [str(folder), "--everything", *argv])
    assert done.exit_code == 0, done.output
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]


@pytest.mark.quick_cases(1)
def test_each_user_has_a_row_for_each_number_of_messages(folder):
    head, _, *rows = table(folder, "-u", "spamassassin", "-u", "enron1", "-n", "4,12")
    assert head == ["user", "messages, spam", "messages learned", "model", "learned", "bogofilter"]
    assert [row[:3] for row in rows] == [
        [user, "24, 12", n] for user in ("spamassassin", "enron1") for n in ("4", "12")
    ]
    accuracy, auc = map(float, rows[1][4].split(" / "))
    assert 0.9 <= accuracy <= 1 and 0.9 <= auc <= 1


def test_a_sample_is_the_same_in_every_run(folder):
    some = list(corpora.messages(folder, ("sms", "written")))
    one, two = (simulated_users.sample(some, 10) for _ in range(2))
    assert one == two and len(one) == 10
    assert [m for m in some if m in one] == one
    assert simulated_users.sample(some, 999) == some


def test_a_user_with_too_few_messages_is_refused(folder):
    argv = [str(folder), "--everything", "-u", "enron1", "-n", "24"]
    done = CliRunner().invoke(simulated_users.main, argv)
    assert done.exit_code != 0 and "too few" in str(done.exception)
