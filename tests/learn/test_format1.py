"""Files that earlier versions wrote: they are used, and the next --learn keeps what they have."""

import json

import pytest
from conftest import ROOT
from learn_files import HAM, SPAM

from sluice import gguf
from sluice.classify.setup import Setup
from sluice.faults import DataError
from sluice.learn import book, format1, layout
from sluice.question import calibration, question
from sluice.question.answers import calibrated
from sluice.texts import inputs

ABOUT_SPAM = question.read(str(ROOT / "configs" / "spam.yaml"))
FITTED = [1.25, 0.75, -0.125]


def name(mail):
    """Of a text, as in format 1."""
    return layout.name_of(inputs.text(mail, True, True)[:2]).hex()


def model():
    return gguf.File(question.model_path(ABOUT_SPAM))


def first_line(head, lines):
    sizes = len(head), layout.checksum(head), len(lines), layout.checksum(lines)
    return layout.MAGIC_1 + b"%06d %08x %08d %08x\n" % sizes + head + lines


def old_file(of=None, examples=((HAM, 1), (SPAM, 0))):
    of = of or model().id[:8].hex()
    asked = calibration.digest(ABOUT_SPAM)
    numbers = lambda w: f"{w[0]!r} {','.join(map(repr, w[1:]))}"
    prior = numbers(calibration.prior(ABOUT_SPAM))
    head = f"{of} {asked} {len(examples)} {prior} {numbers(FITTED)}\n"
    lines = "".join(f"{name(m)} {of} {asked} {label} -0.01 -4.6\n" for m, label in examples)
    return first_line(head.encode(), lines.encode())


@pytest.fixture
def old(taught):
    taught.path.write_bytes(old_file())
    taught.path.chmod(0o600)
    return taught


def test_verdict_is_by_the_fit_in_the_file(old):
    found = old.json()
    assert found["calibration"] == {
        "learnt": 2,
        "scale": 1.25,
        "trust": 0.0,
        "bias": {"yes": 0.75, "no": -0.125},
    }
    v = Setup(no_calibration=True).classifier().ask(HAM)
    p = calibrated(v.log_p, FITTED[0], FITTED[1:])
    assert found["scores"]["yes"] == round(p[0], 6) and "taught" not in found
    assert old.path.read_bytes() == old_file()


@pytest.mark.quick_cases(1)
def test_learning_keeps_its_texts_and_converts_it(old):
    old.learn("no", input=b"Subject: third\n\nsome other text\n")
    assert old.path.read_bytes().startswith(layout.MAGIC)
    found = old.listed()
    assert found["texts"] == 3 and found["with_tokens"] == 1
    assert found["answers"]["yes"]["texts"] == 1 and found["answers"]["no"]["texts"] == 2
    assert old.json(input=SPAM)["taught"] is True and old.json(input=SPAM)["answer"] == "yes"
    old.learn("yes", input=HAM)  # known by its text
    assert old.n() == 3


@pytest.mark.full
def test_text_of_an_old_file_is_forgotten(old):
    assert old.classify("--forget").returncode == 0
    assert old.n() == 1 and "taught" not in old.json()


def test_listing_and_reset_of_an_old_file(old):
    found = old.listed()
    assert found["texts"] == 2 and found["first"] is None and found["with_tokens"] == 0
    assert old.path.read_bytes() == old_file()
    assert old.classify("--reset").stdout == b"forgotten 2\n"
    assert old.path.read_bytes().startswith(layout.MAGIC)


@pytest.mark.full
def test_model_under_its_earlier_id_is_renamed_by_learn(old):
    earlier = model().earlier_id[:8].hex()
    assert earlier == "8af9fe374fbc5cc7" != model().id[:8].hex()
    old.path.write_bytes(old_file(earlier))
    assert old.json()["calibration"]["learnt"] == 2
    old.learn("no", input=SPAM)
    assert set(old.path.read_bytes()[64:72].hex().split()) == {model().id[:8].hex()}
    assert old.n() == 2


@pytest.mark.quick_cases(1)
def test_another_model_is_said_and_kept(old):
    other = "00112233445566ff"
    old.path.write_bytes(old_file(other))
    done = old.classify("--json")
    assert b"its examples belong to another model or question" in done.stderr
    assert json.loads(done.stdout)["calibration"] is None
    old.learn("yes")
    parts = book.read(str(old.path)).parts
    assert {m.hex() for m, _ in parts} == {other, model().id[:8].hex()}
    assert old.listed()["others"] == 2


@pytest.mark.full
def test_damage_is_one_line_for_a_change_and_never_stops_a_verdict(tmp_path):
    data, path = old_file(), tmp_path / "f"

    def bad():
        yield b""
        yield bytes(range(256)) * 4
        yield data.replace(b"#calibration 1", b"#calibration 3")
        yield data + b"\n"
        yield data.replace(data[15:21], b"999999")
        yield data.replace(data[15:21], b"-00001")
        yield from (data[:n] for n in range(len(data)))
        yield from (data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data)))

    from sluice.learn import learned

    for some in bad():
        path.write_bytes(some)
        path.chmod(0o600)
        said = []
        section = learned.Learned(str(path), ABOUT_SPAM, said.append).section(model())
        assert section is None and len(said) == 1 or section.joint.scale == 1.25 and not said
        with pytest.raises(DataError) as e:
            book.read(str(path))
        assert str(e.value).startswith(f"{path}: ") and "\n" not in str(e.value)


def test_lines_with_the_right_sums_are_still_checked():
    data = old_file()
    n_head = int(data[15:21])
    head, body = (
        data[format1.FIRST_BYTES :][:n_head],
        data[format1.FIRST_BYTES + n_head :],
    )
    assert len(format1.examples("f", first_line(head, body))) == 2
    for some in (
        b"x" + body,
        body.replace(b" 1 ", b" 2 ", 1),
        body.replace(b" 1 ", b" -1 ", 1),
        body[:-1].replace(b"-4.6", b"nan"),
        body.replace(b"-4.6", b"1e9"),
        b"\n",
        b"\xff\n",
    ):
        with pytest.raises(DataError, match="line 3: "):
            format1.examples("f", first_line(head, some))
    for some in (
        head.replace(b"1.25", b"inf"),
        head.replace(b",", b" ", 1),
        head.replace(b" 1.25", b" -1.25"),
        b"\n",
    ):
        with pytest.raises(DataError, match="line 2: "):
            format1.sections("f", first_line(some, body))
