"""The section "Adding an architecture" is true: its file, put beside the others, is all it takes.

The reference below is written from the section's one sentence, with numpy in f64.
"""

import json
import re
import subprocess
import sys

import convert_call
import numpy as np
import pytest
import tiny_model
from conftest import ROOT, run
from gguf_writer import write_gguf

from sluice import gguf
from sluice.convert import to_gguf
from sluice.faults import Error
from sluice.kernels import ffi
from sluice.kvcache.scratch import Scratch
from sluice.model import architectures
from sluice.model.architecture import Architecture, check
from sluice.model.model import Model

CONFIG = dict(n_vocab=400, n_embd=64, n_layer=3, n_ff=96, n_head=4, n_head_kv=2, head_dim=16)
IDS = [1] + [(7919 * i + 13) % 400 for i in range(40)]


def guide():
    """The Python file that the section shows, from whichever README has the section."""
    for path in (ROOT / "lib/sluice/model/README.md", ROOT / "lib/README.md"):
        text = path.read_text() if path.exists() else ""
        if "## Adding an architecture" in text:
            section = text.split("## Adding an architecture")[1].split("\n## ")[0]
            (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
            return code
    raise AssertionError("no README has a section on adding an architecture")


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The record of the section, found in its file in a folder of the package."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more/forward_first.py").write_text(guide())
    monkeypatch.setattr(
        architectures, "__path__", [*architectures.__path__, str(tmp_path / "more")]
    )
    yield architectures.find("forward_first")
    sys.modules.pop(f"{architectures.__name__}.forward_first", None)


def write(path, architecture):
    """A GGUF of Llama's tensors that names `architecture`; dict: name -> f64 [n_out, n_in]."""
    c = tiny_model.complete({"arch": "llama", **CONFIG})
    metadata = {
        key.replace("llama.", f"{architecture}."): value
        for key, value in tiny_model.metadata(c).items()
    }
    metadata["general.architecture"] = "string", architecture
    shapes, values, tensors = tiny_model.shapes(c), {}, []
    for name, shape in shapes.items():
        values[name] = tiny_model.weights(c, name, shape)
        tensors.append((name, *tiny_model.encode(values[name], "f32", shape[0])))
    write_gguf(str(path), metadata, [(name, k, shapes[name], data) for name, k, data in tensors])
    return {name: np.array(v, np.float64).reshape(shapes[name][::-1]) for name, v in values.items()}


def reference(w, tokens):
    """f64 [n_vocab]: logits after the last of `tokens`."""
    n_head, n_kv, dim = CONFIG["n_head"], CONFIG["n_head_kv"], CONFIG["head_dim"]

    def norm(x, gain):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(1e-5))) * gain

    def turned(x, n):
        x = x.reshape(len(tokens), n, dim // 2, 2)
        angle = np.arange(len(tokens))[:, None] * 10000.0 ** (-2 * np.arange(dim // 2) / dim)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., 0], x[..., 1]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(len(tokens), n, dim)

    x = w["token_embd.weight"][tokens]
    for i in range(CONFIG["n_layer"]):
        of = lambda name, i=i: w[f"blk.{i}.{name}.weight"]
        h = norm(x, of("ffn_norm"))
        gate = h @ of("ffn_gate").T
        x = x + gate / (1 + np.exp(-gate)) * (h @ of("ffn_up").T) @ of("ffn_down").T
        h = norm(x, of("attn_norm"))
        q, k = turned(h @ of("attn_q").T, n_head), turned(h @ of("attn_k").T, n_kv)
        v = (h @ of("attn_v").T).reshape(len(tokens), n_kv, dim)
        k, v = (np.repeat(each, n_head // n_kv, axis=1) for each in (k, v))
        s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
        s = np.where(np.tri(len(tokens), dtype=bool), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)
        x = x + o.reshape(len(tokens), -1) @ of("attn_output").T
    return norm(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


def logits(path, chunk=512):
    m = Model(str(path), 1)
    cache = Scratch(m.geometry("f32"), len(IDS), logits=True)
    m.prefill(cache, IDS, chunk)
    return np.array(ffi.unpack(cache.logits, m.hparams.n_vocab))


def test_added_architecture_computes_its_documented_difference(added, tmp_path):
    w = write(tmp_path / "m.gguf", "forward_first")
    got, want = logits(tmp_path / "m.gguf"), reference(w, IDS)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    assert (logits(tmp_path / "m.gguf", 7) == got).all()
    write(tmp_path / "llama.gguf", "llama")  # the same weights, another order of a block's parts
    assert np.abs(logits(tmp_path / "llama.gguf") - want).max() > 0.1 * np.abs(want).max()


def test_added_architecture_converts_a_checkpoint(added, tmp_path):
    """As Llama's, of which it has the tensors, rows of queries and keys in another order too."""
    source, out = tmp_path / "model", tmp_path / "out.gguf"
    source.mkdir()
    for path in (ROOT / "tests/golden/folders/llama").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text())
    config.update(model_type="forward_first", architectures=["ForwardFirstForCausalLM"])
    (source / "config.json").write_text(json.dumps(config))
    to_gguf.folder(str(source), str(out), None, False)
    convert_call.convert(ROOT / "tests/golden/folders/llama", tmp_path / "llama.gguf")
    ours, llamas = gguf.File(str(out)), gguf.File(str(tmp_path / "llama.gguf"))
    assert ours.metadata["general.architecture"] == "forward_first"
    assert ours.metadata["forward_first.embedding_length"] == 32
    assert ours.tensors.keys() == llamas.tensors.keys()
    for name, t in ours.tensors.items():
        assert ours.read(t, 0, t.n_bytes) == llamas.read(llamas.tensors[name], 0, t.n_bytes)
    assert Model(str(out), 1).hparams.n_layer == 2


def test_unknown_architecture_is_refused_with_the_names_of_the_files(added, tmp_path):
    write(tmp_path / "m.gguf", "mamba")
    with pytest.raises(Error) as e:
        Model(str(tmp_path / "m.gguf"), 1)
    assert e.value.code == 69
    assert str(e.value).endswith(
        "this build runs forward_first, gemma, gemma2, gemma3, gemma4, granite, lfm2, llama,"
        " mistral3, olmo2, phi3, qwen2, qwen3, qwen35, smollm3"
    )


@pytest.mark.parametrize("name", ["__init__", "_x", "../architecture", "llama.py", "os", ""])
def test_architecture_name_cannot_import_other_modules(tmp_path, name):
    assert architectures.find(name) is None


@pytest.mark.parametrize(
    "change, what",
    [
        (dict(tensors={"attn_norm": ("n_emb",)}), "tensors: attn_norm"),
        (dict(tensors={"attn_q.bias": ("n_q",)}), "attn_q.bias does not fit attn_q"),
        (dict(fused={"attn_qkv": ("attn_q", "x")}), "fused: attn_qkv"),
        (dict(pooling="max"), "pooling: max"),
    ],
)
def test_contradictory_architecture_record_is_refused(change, what):
    with pytest.raises(ValueError, match=what):
        check(architectures.find("llama")._replace(**change))


def test_architecture_record_has_known_fields_and_is_immutable():
    record = architectures.find("llama")
    with pytest.raises(TypeError, match="no field tensor$"):
        record._replace(tensor={})
    with pytest.raises(TypeError, match="lacks the field"):
        Architecture(name="x")
    with pytest.raises(AttributeError, match="does not change"):
        record.name = "x"
    assert record._replace(name="x").rules is record.rules and record.name == "llama"


def test_architecture_record_with_a_missing_checkpoint_tensor_is_refused():
    record = architectures.find("llama")
    names = {k: v for k, v in record.hugging_face.names.items() if k != "ffn_up"}
    with pytest.raises(ValueError, match="names and tensors are not the same"):
        check(record._replace(hugging_face=record.hugging_face._replace(names=names)))
    biases = {"attn_q.bias": ("n_q",)}
    with pytest.raises(ValueError, match="permutes neither biases"):
        check(
            record._replace(
                tensors={**record.tensors, **biases},
                hugging_face=record.hugging_face._replace(
                    names={**record.hugging_face.names, "attn_q.bias": "self_attn.q_proj.bias"}
                ),
            )
        )


def test_architecture_records_have_their_name_and_unique_model_types():
    records = architectures.load_all()
    assert [record.name for record in records] == architectures.names()
    types = [t for record in records for t in record.hugging_face.models]
    assert len(types) == len(set(types))


def test_engine_loads_only_the_record_of_its_model(tmp_path):
    """And nothing of the converter."""
    write(tmp_path / "m.gguf", "llama")
    code = (
        "import sys; from sluice.model.model import Model;"
        f" Model({str(tmp_path / 'm.gguf')!r}, 1);"
        " print(sorted(n for n in sys.modules if n.startswith('sluice.model.architectures.')));"
        " print(any(n.startswith(('sluice.convert', 'numpy')) for n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['sluice.model.architectures.llama']\nFalse\n"


@pytest.mark.parametrize(
    "path",
    ["model/hparams.py", "model/weights.py", "model/model.py", "model/forward.py"]
    + ["convert/hf/config.py", "convert/hf/names.py", "convert/hf/rope.py"],
)
def test_record_readers_test_no_family_by_name(path):
    text = (ROOT / "lib/sluice" / path).read_text()
    families = [*architectures.names(), "mistral", "Gemma", "Qwen"]
    assert not re.search("[\"'](" + "|".join(families) + ")[\"']", text)
    assert not re.search(r"\barch (==|!=|in|not in)|arch\.startswith", text)


def test_diff_that_the_page_shows_is_that_of_smollm3():
    page = (ROOT / "lib/sluice/model/README.md").read_text()
    block = page.split("```diff\n")[1].split("```")[0]
    lines = [line.removeprefix("+") for line in block.splitlines()]
    file = (ROOT / "lib/sluice/model/architectures/smollm3.py").read_text().splitlines()
    assert len(lines) > 15 and set(lines) <= set(file)
    assert f"new: {len(file)} lines" in page


def test_command_refuses_an_unknown_architecture_by_name(tmp_path):
    write(tmp_path / "m.gguf", "mamba")
    done = run("prefill", "-m", tmp_path / "m.gguf", "-o", tmp_path / "s")
    assert done.returncode == 69 and b"olmo2, phi3" in done.stderr
