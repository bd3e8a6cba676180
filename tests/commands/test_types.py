"""Types: mypy passes on lib/sluice, and public functions of the rooms in ANNOTATED have
annotations.

mypy checks the bodies of functions that have them, and of no others.
"""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

PACKAGE = ROOT / "lib" / "sluice"
# in which every public function is annotated; this list grows
ANNOTATED = [
    "__init__.py",
    "api",
    "bench",
    "chat",
    "classify",
    "cli",
    "commands",
    "convert",
    "decide",
    "embed",
    "evaluate",
    "faults.py",
    "generate",
    "gguf",
    "grammar",
    "jsonl.py",
    "kernels.py",
    "kvcache",
    "limits.py",
    "mail",
    "messages.py",
    "model",
    "perplexity",
    "quantize",
    "rerank",
    "serve",
    "start.py",
    "stream.py",
    "system",
    "tokenizer",
    "yamlfile.py",
]


@pytest.mark.full
def test_mypy_passes():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_api_is_typed_for_its_users(tmp_path):
    """py.typed is there, and the lazy names have their types."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(
        "import sluice\n"
        'reveal_type(sluice.load("m").logits([1]))\n'
        'reveal_type([piece for piece in sluice.load("m").generate("x")])\n'
        'reveal_type(next(sluice.Question().classify_many(["x"])).score)\n'
        'sluice.load("m").generate("x", temperature="hot")\n'
        'reveal_type(next(sluice.load("m").embed_many(["x"], pooling="mean")))\n'
        'reveal_type([score for place, score in sluice.load("m").rerank("x", ["x"])])\n'
        'm = sluice.load("m")\n'
        "reveal_type(m.generate(m.chat_prompt([], tools=[])).calls[0].arguments)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "c", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(ROOT / "lib"), "MYPYPATH": str(ROOT / "lib"), "PATH": "/usr/bin"},
    )
    said = [line.split(": ", 2)[2] for line in done.stdout.splitlines() if "program.py" in line]
    assert said[0].startswith('Revealed type is "memoryview[')
    assert "list[str]" in said[1] and "float" in said[2]
    assert '"temperature"' in said[3] and "[arg-type]" in said[3]
    assert "memoryview[float" in said[4] and "list[float]" in said[5] and "dict[str, Any" in said[6]
    assert (PACKAGE / "py.typed").exists()


def public_functions(path):
    """(qualified name, node) of the functions of a file that are public: neither they nor what
    holds them begins with an underscore, but for __init__ and the like. None within a function.
    """
    todo = [("", ast.parse(path.read_text()))]
    while todo:
        prefix, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", "")
            if name.startswith("_") and not name.endswith("__"):
                continue
            if isinstance(child, ast.ClassDef):
                todo.append((f"{prefix}{name}.", child))
            elif isinstance(child, ast.FunctionDef):
                yield prefix + name, child


def unannotated(function):
    """Names of what has no annotation: arguments (not self), and the result as "return"."""
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    missing = [x.arg for x in named if x.annotation is None and x.arg not in ("self", "cls")]
    return missing + ([] if function.returns else ["return"])


@pytest.mark.quick_cases(9)
@pytest.mark.parametrize("name", ANNOTATED)
def test_public_functions_are_annotated(name):
    path = PACKAGE / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert files
    missing = [
        f"{file.relative_to(PACKAGE)}: {function}: {', '.join(names)}"
        for file in files
        for function, node in public_functions(file)
        if (names := unannotated(node))
    ]
    assert missing == []
