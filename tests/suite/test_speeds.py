"""The two speeds of the tests: what the quick part covers, how skips are summed up, CI's clock."""

import subprocess
import types

import quick
import report
from conftest import DATA, ROOT, find_data
from hypothesis import given
from hypothesis import strategies as st

FUNCTIONS = (ROOT / ".ci/run").read_text().partition("left_out=()")[2].partition("\nsudo=")[0]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9)), min_size=1))
def test_quick_cases_have_each_value_of_each_parameter(rows):
    rows = [set(enumerate(row)) for row in rows]
    chosen = quick.each_value(rows)
    assert set().union(*(rows[i] for i in chosen)) == set().union(*rows)
    assert chosen == sorted(set(chosen)) == quick.each_value(rows)


def test_quick_cases_of_a_product_are_as_few_as_the_longest_list():
    rows = [{("type", i), ("set", j)} for i in range(15) for j in range(3)]
    assert len(quick.each_value(rows)) == 15


def test_skips_are_counted_by_reason():
    tuples = [
        types.SimpleNamespace(longrepr=("f.py", n, f"Skipped: {why}"))
        for n, why in enumerate(["no a: apt install a", "no b:\n make b", "no a: apt install a"])
    ]
    assert list(report.skips(tuples).items()) == [("no a: apt install a", 2), ("no b: make b", 1)]


def test_data_of_this_folder_is_small_described_and_found_first():
    files = [p for p in DATA.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 10 << 20
    assert find_data("models/stories260K.gguf") == DATA / "models" / "stories260K.gguf"
    assert find_data("models/there-is-no-such.gguf") is None
    text = (DATA / "README.md").read_text()
    for folder in {p.relative_to(DATA).parts[0] for p in files if p.parent != DATA}:
        assert f"`{folder}/" in text, folder


def ci(budget, script, tmp_path):
    """Run `script` with the functions of .ci/run: (status, what the closing block would name)."""
    end = '\nprintf "%s\\n" "${#failed[@]} failed" ${left_out[@]+"${left_out[@]}"}\n'
    done = subprocess.run(
        ["bash", "-c", f"set -eu\nBUDGET={budget}\nleft_out=(){FUNCTIONS}\n{script}{end}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition(" failed\n")[0].splitlines()[-1], done.stdout.rpartition(
        " failed\n"
    )[2]


def test_ci_fails_for_what_ran_and_names_what_did_not(tmp_path):
    assert ci(60, "check a true\npiece b 0 true", tmp_path) == ("0", "")
    assert ci(60, "check a false\npiece b 0 false\npiece c 0 true", tmp_path) == ("2", "")
    assert ci(60, "piece a 2 false", tmp_path) == ("0", "a: the time is too short\n")
    assert ci(1, "piece a 0 sleep 30", tmp_path) == ("0", "a: the time is too short\n")
    said = "make a: b is not to be had here in the time that is left\n"
    assert ci(600, "venv_piece a b 0", tmp_path) == ("0", said)  # there is no Makefile
