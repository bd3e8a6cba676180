"""Mails that fooled readers of mail: each has the text that its reader sees, and the verdict that
this text has.
"""

import pytest
from conftest import run

from sluice.mail import message

SPAM = (
    "Dear beneficiary,\n\nYour compensation payment of USD 2,500,000.00 was approved by our bank."
    " To release the fund send your full name, bank account number and a copy of your passport to"
    " the remittance officer today. Act now, this offer expires in 24 hours.\n\nMr. Paul Adams,"
    " Director of Foreign Remittance"
)
IN_ONE_LINE = " ".join(SPAM.split())
MEDS = (
    "CHEAP MEDS 80 percent OFF. ORDER VIAGRA NOW WITHOUT PRESCRIPTION. Discreet shipping, lowest"
    " prices, click here to order today"
)
PAUL, PAYMENT = "Paul Adams <paul.adams@example.com>", "Payment notification"
# (file, From, Subject, links, files, body, whether classify must say yes, None for any answer)
CASES = [
    ("control-spam", PAUL, PAYMENT, [], [], SPAM, True),
    ("f01-related-sibling", PAUL, PAYMENT, [], ["text/plain"], SPAM, True),
    (
        "f02-image-html-decoy-plain",
        PAUL,
        "Your reward is waiting",
        ["claim-prize.example"],
        [],
        "",
        None,
    ),
    *[
        (f"f03-hidden-{how}", PAUL, PAYMENT, [], [], SPAM, True)
        for how in ("class", "clip", "hsl", "offscreen", "sheet-white")
    ],
    ("f04-charset-cp-1251", PAUL, PAYMENT, [], [], "Привет", None),
    ("f04-charset-iso8859-2", PAUL, PAYMENT, [], [], "Dzień dobry, źle", None),
    ("f04-charset-windows-949", PAUL, PAYMENT, [], [], "계정이 정지", None),
    (
        "f05-raw-koi8-subject",
        "a@example.com",
        "Ваш заказ отправлен",
        [],
        [],
        "Ваш заказ отправлен",
        None,
    ),
    (
        "f06-base",
        PAUL,
        PAYMENT,
        ["login-bank.example"],
        [],
        "Your account is locked.\n\nUnlock",
        None,
    ),
    ("f07-qp-padding", PAUL, PAYMENT, [], [], "Your compensation is ready.", None),
    ("f08-alt", PAUL, "Special for you", ["shop.example"], [], MEDS, True),
    ("f08-control", PAUL, "Special for you", ["shop.example"], [], MEDS, True),
    ("f09-invite", PAUL, PAYMENT, [], [], f"You have won 5000 USD\n{SPAM}", True),
    ("f11-smime-opaque", PAUL, PAYMENT, [], [], SPAM, True),
    (
        "f12-utf8-one-stray-byte",
        "a@example.com",
        "x",
        [],
        [],
        "Überweisung – jetzt bestätigen\n\n\ufffd",
        None,
    ),
    (
        "f13-sjis-said-iso2022jp",
        "a@example.com",
        "x",
        [],
        [],
        "お支払い方法に問題がありましたので、ご確認ください。アカウントは停止されました。",
        None,
    ),
    ("f14-delsp", PAUL, PAYMENT, [], [], "Your payment of the compensation is ready.", None),
    ("f16-crcrlf", PAUL, PAYMENT, [], [], "Hello", None),
    ("f17-rtl-override", PAUL, PAYMENT, [], [], IN_ONE_LINE, True),
    ("f18-quoted-type", PAUL, PAYMENT, [], [], SPAM, True),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_case_has_the_text_that_its_reader_sees(datafile, case):
    name, sender, subject, links, files, body, _ = case
    found = message.read((datafile("cases/mail") / f"{name}.eml").read_bytes())
    assert (found.sender, found.subject) == (sender, subject)
    assert (found.links, found.files, found.body) == (links, files, body)
    assert found.reasons == ([] if body else ["empty"])


def test_every_case_is_here(datafile):
    names = {path.stem for path in datafile("cases/mail").glob("*.eml")}
    assert names == {case[0] for case in CASES}


@pytest.mark.parametrize(
    "name", [case[0] for case in CASES if case[-1]], ids=[case[0] for case in CASES if case[-1]]
)
def test_case_is_judged_by_what_its_reader_sees(datafile, name):
    path = datafile("cases/mail") / f"{name}.eml"
    done = run("classify", "--no-calibration", "--no-cache", path)
    assert (done.returncode, done.stdout.split()[0]) == (0, b"yes"), done
