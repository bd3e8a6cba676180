"""--arithmetic as the commands have it: recorded, never mixed, refused by name where the processor
lacks it, the same bits for any threads.
"""

import json
import os

import pytest
from conftest import run
from tiny_model import write_model

from sluice.kernels import lib
from sluice.model.model import known_sets

FAST = next(
    (
        name
        for name in ("amx", "reference")
        if lib.isa_select(name.encode()) == 0 and lib.fast_supported()
    ),
    None,
)
lib.isa_select(b"")
ENV = {**os.environ, "SLUICE_ISA": FAST}  # the reference is slow, and the same bits


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with a model m.gguf, tokens, and their snapshots exact.snap and fast.snap."""
    d = tmp_path_factory.mktemp("arithmetic")
    write_model(str(d / "m.gguf"), type="f16", n_layer=2, n_vocab=400)
    (d / "ids").write_bytes(
        run("tokenize", "-m", d / "m.gguf", input=b"yes and no, one after the other").stdout
    )
    for arithmetic in ("exact", "fast"):
        done = run(
            "prefill",
            "-m",
            d / "m.gguf",
            "--arithmetic",
            arithmetic,
            "-o",
            d / f"{arithmetic}.snap",
            input=(d / "ids").read_bytes(),
            env=ENV,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    return d


def more(made):
    """A stream of one more id."""
    lines = (made / "ids").read_bytes().splitlines(True)
    return lines[0] + b"300\n" + lines[-1]


@pytest.mark.quick_cases(1)
def test_snapshot_has_its_arithmetic_and_exact_is_the_default(made, tmp_path):
    assert (
        b"fast-2" in run("gguf-dump", made / "fast.snap").stdout
        and b"exact-2" in run("gguf-dump", made / "exact.snap").stdout
    )
    assert (
        run(
            "prefill",
            "-m",
            made / "m.gguf",
            "-o",
            tmp_path / "s",
            input=(made / "ids").read_bytes(),
        ).returncode
        == 0
    )
    assert (
        (tmp_path / "s").read_bytes()
        == (made / "exact.snap").read_bytes()
        != (made / "fast.snap").read_bytes()
    )


@pytest.mark.parametrize("theirs, ours", [("fast", "exact"), ("exact", "fast")])
def test_another_arithmetic_is_refused_and_nothing_written(made, tmp_path, theirs, ours):
    base = made / f"{theirs}.snap"
    for argv in (
        ("prefill", "-s", base, "-o", tmp_path / "s"),
        ("decode", base, "-o", tmp_path / "s"),
    ):
        done = run(
            argv[0],
            "-m",
            made / "m.gguf",
            "--arithmetic",
            ours,
            *argv[1:],
            input=more(made),
            env=ENV,
        )
        assert (done.returncode, done.stdout) == (65, b"")
        assert (
            done.stderr
            == f"{argv[0]}: {base}: made with arithmetic {theirs}-2, but this is {ours}-2 (see"
            " --arithmetic)\n".encode()
        )
    assert not list(tmp_path.iterdir())


def test_fast_bits_do_not_depend_on_threads_chunks_or_the_way(made, tmp_path):
    found, tokens = set(), (made / "ids").read_bytes()
    for threads in (1, 2, 3):
        for chunk in (1, 7, 512):
            done = run(
                "prefill",
                "-m",
                made / "m.gguf",
                "--arithmetic",
                "fast",
                "-j",
                threads,
                "--chunk",
                chunk,
                "-o",
                tmp_path / "s",
                input=tokens,
                env=ENV,
            )
            assert (done.returncode, done.stderr) == (0, b"")
            found.add((tmp_path / "s").read_bytes())
    assert found == {(made / "fast.snap").read_bytes()}
    for name, argv in (
        ("a", ("prefill", "-s", made / "fast.snap")),
        ("b", ("decode", made / "fast.snap")),
    ):
        assert (
            run(
                argv[0],
                "-m",
                made / "m.gguf",
                "--arithmetic",
                "fast",
                "-o",
                tmp_path / name,
                *argv[1:],
                input=more(made),
                env=ENV,
            ).returncode
            == 0
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_prefix_cache_separates_arithmetics(made, tmp_path):
    def reused(arithmetic):
        argv = (
            "prefill",
            "-m",
            made / "m.gguf",
            "--arithmetic",
            arithmetic,
            "--cache",
            tmp_path / "c",
            "-v",
            "-o",
            tmp_path / "s",
        )
        line = run(*argv, input=(made / "ids").read_bytes(), env=ENV).stderr
        assert (tmp_path / "s").read_bytes() == (made / f"{arithmetic}.snap").read_bytes()
        return b"reused=0 " not in line

    assert [reused(a) for a in ("exact", "fast", "exact", "fast")] == [False, False, True, True]


def test_processor_without_bf16_tiles_is_named(made, tmp_path):
    other = next(
        (
            name
            for name in known_sets()
            if name not in ("amx", "reference") and lib.isa_select(name.encode()) == 0
        ),
        None,
    )
    lib.isa_select(b"")
    if other is None:
        pytest.skip("this processor has no set but amx and the reference")
    done = run(
        "prefill",
        "-m",
        made / "m.gguf",
        "--arithmetic",
        "fast",
        "-o",
        tmp_path / "s",
        input=(made / "ids").read_bytes(),
        env={**ENV, "SLUICE_ISA": other},
    )
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (69, b"", 1)
    assert (
        f"--arithmetic fast: {other} has no products in bf16".encode() in done.stderr
        and b"SLUICE_ISA=reference" in done.stderr
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_classify_and_bench_know_it(made):
    done = run(
        "classify",
        "-m",
        made / "m.gguf",
        "-q",
        "urgent",
        "--json",
        "--no-cache",
        "--arithmetic",
        "fast",
        input=b"at once",
        env=ENV,
    )
    assert json.loads(done.stdout)["arithmetic"] == "fast-2"
    done = run(
        "sluice-bench",
        "-m",
        made / "m.gguf",
        "--arithmetic",
        "fast",
        "-p",
        4,
        "-n",
        1,
        "-r",
        1,
        "-o",
        "json",
        env=ENV,
    )
    assert [(r["backend"], r["limit"]) for r in json.loads(done.stdout)] == [
        (f"sluice {FAST} fast", "tile_bf16" if FAST == "amx" else None),
        (f"sluice {FAST} fast", "read"),
    ]
    done = run(
        "sluice-bench",
        "--matmul",
        "3,40,70",
        "--type",
        "F16",
        "--arithmetic",
        "fast",
        "-r",
        1,
        "-o",
        "json",
        env=ENV,
    )
    assert [r["backend"] for r in json.loads(done.stdout)] == [f"sluice {FAST} fast"]
