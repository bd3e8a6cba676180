"""The examples in the section "Python" of lib/README.md run, and print what the page says."""

import re
import subprocess
import sys

import pytest
from chat_model import write_chat_model
from conftest import ROOT

SECTION = (ROOT / "lib" / "README.md").read_text().partition("\n## Python\n")[2]
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", SECTION, re.M | re.S)
MODEL = "smollm2-135m.gguf"


def output(code, directory):
    (directory / "tests").symlink_to(ROOT / "tests")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "lib"), "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_there_are_seven():
    assert len(EXAMPLES) == len(re.findall("^```python$", SECTION, re.M)) == 7


@pytest.mark.parametrize("n", range(7))
def test_example_prints_what_the_page_says(n, tmp_path, request):
    code, text = EXAMPLES[n]
    if MODEL in code:
        (tmp_path / MODEL).symlink_to(request.getfixturevalue("smollm2"))
    assert output(code, tmp_path) == text


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n", [n for n, (code, _) in enumerate(EXAMPLES) if MODEL in code])
def test_example_runs_on_another_model(n, tmp_path):
    """A random one: it prints something else, but as many lines at least."""
    template = (ROOT / "configs" / "chatml.jinja").read_text()
    write_chat_model(tmp_path / MODEL, ["<|im_start|>", "<|im_end|>"], template, n_ctx=4096)
    code, text = EXAMPLES[n]
    code = code.replace("json.loads(answer)", '{"colours": answer}')  # it may not come to the end
    assert output(code, tmp_path).count("\n") >= text.count("\n")
