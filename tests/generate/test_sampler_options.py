"""Options of the sampler on the command line: orders, presets, the vocabulary, what is refused."""

import math
import os

import pytest
import sampler_table
from conftest import run, shell
from forked import run as forked_run
from test_sample import dense, logits
from tiny_model import write_model

from sluice import limits
from sluice.commands import sluice
from sluice.faults import Error
from sluice.generate import settings
from sluice.generate.sampler import Sampler
from sluice.generate.settings import SETTINGS, STEPS, order_of

GIVEN = logits(*(dense(pos) for pos in range(3)))


def sample(*argv, given=GIVEN):
    return forked_run("sample", *argv, "-n", 3, input=given)


# One table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sample", "generate", "chat"])
def test_options_are_those_of_the_table(name):
    """Names, defaults and ranges; and --help prints the defaults."""
    params = {param.name: param for param in sluice.command(name).params}
    page = " ".join(run("sluice", "help", name).stdout.decode().split())
    for setting in SETTINGS:
        option = params[setting.argument]
        assert {*option.opts} == {*setting.flags, *setting.aliases}
        assert option.default == setting.default and option.group == "Sampling"
        assert (option.type.min, option.type.max) == setting.limits
        shown = setting.shown or f"{setting.default:g}"
        assert f"{setting.help.removesuffix('.')} [{shown}]" in page
    assert f"[{''.join(settings.LETTERS)}]" in page


def test_sampler_takes_the_defaults_of_the_table():
    """Nothing is written twice: no setting given is the same as each one given its default."""
    plain, all_given = Sampler(9, seed=3), Sampler(9, seed=3, **settings.DEFAULTS)
    assert [getattr(plain._options, name) for name in ("temperature", "top_k", "top_p")] == [
        getattr(all_given._options, name) for name in ("temperature", "top_k", "top_p")
    ]
    assert list(plain._options.step)[: plain._options.n_step] == [
        STEPS.index(step) for step in ("top-k", "top-p", "min-p", "temperature")
    ]


def test_table_in_the_document_is_the_table_of_the_code():
    """If it is not: python3 tests/helpers/sampler_table.py"""
    assert f"\n{sampler_table.table()}\n" in sampler_table.PAGE.read_text()


# Numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.argument)
def test_value_out_of_range_is_a_usage_error(setting):
    low, high = setting.limits
    bad = ["nan", "inf", "-inf", "x", "", str(low - 1), *([str(high + 1)] if high else [])]
    for value in bad:
        done = sample(f"{setting.flags[0]}={value}")
        assert (done.returncode, done.stdout) == (64, b""), value
        assert setting.flags[0].encode() in done.stderr and done.stderr.count(b"\n") == 1
    assert sample(f"{setting.flags[0]}={low}", "--dry-sequence-breaker", "none").returncode == 0


# Orders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, steps",
    [
        ("top-k;temperature", ("top-k", "temperature")),
        ("top_k, typ_p,temp", ("top-k", "typical", "temperature")),
        ("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", None),
        ("edskypmxt", None),
        ("tk", ("temperature", "top-k")),
        ("xtc", ("xtc",)),
        ("DRY", ("dry",)),
        ("none", ()),
        ("edlskypmxt", STEPS),
    ],
)
def test_order_is_names_or_letters(text, steps):
    """Those of llama.cpp, too."""
    default = tuple(step for step in STEPS if step != "least")
    assert order_of(text) == (default if steps is None else steps)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", b"is not one of"),
        ("top-q", b'"top-q" is not one of penalties, dry'),
        ("top-k;;temperature", b"is not one of"),
        ("top-k;top_k", b"top-k is named twice"),
        ("kk", b"top-k is named twice"),
        ("\x1b[2J", b"is not one of"),
    ],
)
def test_bad_order_is_a_usage_error(text, words):
    done = sample("--sampler-order", text)
    assert done.returncode == 64 and words in done.stderr and done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--sampler-order", "kt", "-p", 0.5], b"--top-p: --sampler-order leaves out"),
        (["--sampler-order", "kt", "--least"], b"--least: --sampler-order leaves out"),
        (["--sampler-order", "k", "-t", 0], b"--temperature: --sampler-order leaves out"),
        (["--mirostat", 2, "-k", 5], b"--top-k: --mirostat leaves out the step top-k"),
        (["--mirostat", 1, "--dry-multiplier", 1], b"--dry-multiplier: --mirostat leaves out"),
        (["--mirostat", 1, "--samplers", "t"], b"exclude each other"),
    ],
)
def test_option_without_effect_is_refused(argv, words):
    done = sample(*argv)
    assert done.returncode == 64 and words in done.stderr and done.stdout == b""


def test_option_that_is_off_needs_no_step():
    assert sample("--mirostat", 2, "-k", 0, "-p", 1, "--min-p", 0, "-t", 0.7).returncode == 0


# Sequence breakers -----------------------------------------------------------------------------


def test_breakers_need_a_vocabulary_of_the_same_model(tmp_path, monkeypatch):
    monkeypatch.delenv("MODEL", raising=False)
    done = sample("--dry-multiplier", 1)
    assert done.returncode == 64 and b"give -m FILE or set $MODEL" in done.stderr
    assert sample("--dry-multiplier", 1, "--dry-sequence-breaker", "none").returncode == 0
    assert sample("--dry-sequence-breaker", "x").returncode == 0  # DRY is off
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=420)
    done = sample("--dry-multiplier", 1, "-m", tmp_path / "m.gguf")
    assert done.returncode == 65 and b"logits of another model" in done.stderr
    for bad in ("", "x" * 41, os.fsdecode(b"\xff")):
        done = sample("--dry-sequence-breaker", bad)
        assert done.returncode == 64 and b"--dry-sequence-breaker" in done.stderr
    done = sample(*["--dry-sequence-breaker", "x"] * (limits.MAX_BREAKERS + 1))
    assert done.returncode == 64 and b"more than 64" in done.stderr


def test_prompt_of_sample_is_checked(tmp_path):
    (tmp_path / "cut").write_bytes(b"#ids 1 model=0001020304050607 vocab=5\n1\n2\n")
    (tmp_path / "other").write_bytes(b"#ids 1 model=0001020304050608 vocab=5\n1\n#end text\n")
    (tmp_path / "vocab").write_bytes(b"#ids 1 model=0001020304050607 vocab=6\n1\n#end text\n")
    (tmp_path / "good").write_bytes(b"#ids 1 model=0001020304050607 vocab=5\n2\n#end text\n")
    for name, code, words in (
        ("none", 66, b"none: No such file"),
        ("cut", 65, b"the stream was cut"),
        ("other", 65, b"another model"),
        ("vocab", 65, b"vocabulary of 6"),
    ):
        done = sample("--prompt", tmp_path / name)
        assert done.returncode == code and words in done.stderr, done.stderr
        assert done.stderr.count(b"\n") == 1
    argv = ["-t", 0, "--presence-penalty", 100]
    assert sample(*argv).stdout.split()[4:6] == [b"2", b"2"]  # 2 is the best
    assert sample(*argv, "--prompt", tmp_path / "good").stdout.split()[4:6] == [b"4", b"4"]


# Presets ---------------------------------------------------------------------------------------


def test_preset_gives_defaults_that_options_override(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("temperature: 0\nsampler_order: [top-k, temperature]\n")
    assert sample("--preset", path).stdout == sample("-t", 0).stdout
    warm = sample("--preset", path, "-t", 3, "-S", 1, "-k", 0).stdout
    assert warm == sample("-t", 3, "-S", 1, "--sampler-order", "t").stdout != sample("-t", 0).stdout
    assert sample("-t", 3, "-S", 1, "-k", 0, "--preset", path).stdout == warm  # in any place
    path.write_text("least: true\ntemperature: 0")
    assert sample("--preset", path).stdout == sample("-t", 0, "--least").stdout


@pytest.mark.parametrize("name", settings.PRESETS)
def test_bundled_preset_runs(tmp_path, name):
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=420)
    done = shell(f"generate -m m.gguf -S 1 -n 5 --preset {name} -v Once", tmp_path)
    assert done.returncode == 0 and done.stdout and b"seed=1" in done.stderr


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is not a mapping of settings"),
        ("[top_k]", "is not a mapping of settings"),
        ("top_q: 3", "top_q: unknown key; there are temperature"),
        ("top_k: 3\ntop_k: 4", "appears twice"),
        ("top_k: 2.5", 'top_k: "2.5" is not an integer'),
        ("top_k: true", 'top_k: "True" is not an integer'),
        ("top_p: high", 'top_p: "high" is not a number'),
        ("top_p: .nan", 'top_p: ".nan" is not a number'),
        ("top_p: 1.5", "top_p: 1.5 is not in the range from 0 to 1"),
        ("temperature: 1e999", "temperature: "),
        ("temperature: -1", "temperature: -1 is not in the range from 0"),
        ("least: 1", "least: is neither true nor false"),
        ("sampler_order: top-k", "sampler_order: is not a list of texts"),
        ("sampler_order: [heat]", 'sampler_order: "heat" is not one of'),
        ("dry_sequence_breakers: ['']", "dry_sequence_breakers: a sequence breaker has"),
        ("top_k: &a 3\nlast_n: *a", "aliases and anchors"),
        ('"\\e[2J": 3', "unknown key"),
    ],
)
def test_bad_preset_is_a_data_error_that_names_file_and_key(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    done = sample("--preset", path)
    assert (done.returncode, done.stdout) == (65, b"")
    assert b"bad.yaml: " in done.stderr and words.encode() in done.stderr, done.stderr
    assert done.stderr.count(b"\n") == 1 and b"\x1b" not in done.stderr


def test_preset_that_is_missing_or_large(tmp_path):
    for name in (tmp_path / "none.yaml", "unheard-of"):
        done = sample("--preset", name)
        assert done.returncode == 66 and done.stderr.count(b"\n") == 1
    (tmp_path / "large.yaml").write_bytes(b"#" * (settings.MAX_PRESET_BYTES + 1))
    assert sample("--preset", tmp_path / "large.yaml").returncode == 65
    assert sample("--preset", tmp_path).returncode == 65


def test_preset_reads_every_setting(tmp_path):
    values = {settings.key_of(s): s.limits[0] if s.default is None else s.default for s in SETTINGS}
    text = "".join(f"{key}: {value}\n" for key, value in values.items())
    (tmp_path / "all.yaml").write_text(text + "dry_sequence_breakers: [' a', '.']\n")
    read = settings.read_preset(str(tmp_path / "all.yaml"))
    assert read.pop("dry_breakers") == (" a", ".")
    assert read == {**settings.DEFAULTS, "mirostat_mu": -1e6}
    with pytest.raises(Error):
        settings.read_preset(str(tmp_path))
    assert not any(math.isnan(value) for value in read.values())
