"""gguf-convert on folders as Hugging Face keeps them: what transformers saved becomes the GGUF that
llama.cpp's converter would make, and where this build runs the architecture, its logits are those
of transformers. tests/helpers/golden_folders.py made the folders.
"""

import array
import json
import os
import shutil
import subprocess
import sys

import convert_call
import gguf as gguf_package
import numpy as np
import pytest
from conftest import ROOT, START, run
from convert_call import change, convert, rewrite
from gguf.quants import dequantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import gguf
from sluice.faults import Error
from sluice.kernels import ffi
from sluice.kvcache.snapshot import Snapshot
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

FOLDERS = ROOT / "tests" / "golden" / "folders"
NAMES = sorted(p.name for p in FOLDERS.iterdir())
WITH_HEAD = [name for name in NAMES if not (FOLDERS / name / "modules.json").exists()]
POSITIONS = (0, 9, 19, 29, 39)  # of golden_folders.py
# of the largest logit: recurrent families, and phi4-mini, where transformers in f32 is 5.5e-6 from
# transformers in f64
TOLERANCE = 2e-6
TOLERANCES = {"lfm2": 1e-4, "qwen35": 1e-4, "qwen35-eyes": 1e-4, "phi4-mini": 1e-5}
NOT_OF_THE_TEXT = (
    "vision_tower",
    "audio_tower",
    "embed_vision",
    "embed_audio",
    "visual",
    "multi_modal",
)
NEIGHBOURS = ("llama", "smollm3", "granite", "mistral3")  # rows of queries and keys are permuted


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """converted(name): the path of the folder's GGUF, made once."""
    d, made = tmp_path_factory.mktemp("folders"), {}

    def find(name):
        if name not in made:
            made[name] = str(convert(FOLDERS / name, d / f"{name}.gguf"))
        return made[name]

    return find


def stored(name):
    """Dict: name in the folder -> f32 array, read by numpy alone."""
    out = {}
    for path in (FOLDERS / name).glob("*.safetensors"):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        for key, e in json.loads(data[8 : 8 + n]).items():
            if key != "__metadata__":
                part = data[8 + n + e["data_offsets"][0] : 8 + n + e["data_offsets"][1]]
                x = np.frombuffer(part, {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[e["dtype"]])
                x = (
                    (x.astype(np.uint32) << 16).view(np.float32)
                    if e["dtype"] == "BF16"
                    else x.astype(np.float32)
                )
                out[key] = x.reshape(e["shape"])
    return out


def config(name):
    whole = json.loads((FOLDERS / name / "config.json").read_text())
    return {**whole, **whole.get("text_config", {})}


@pytest.mark.parametrize("name", WITH_HEAD)
def test_logits_equal_transformers(converted, name):
    path = converted(name)
    m = Model(path, 1)
    tokens = list(map(int, (FOLDERS / name / "prompt.ids").read_text().split()))
    known = array.array("f", (FOLDERS / name / "logits.f32").read_bytes())
    n = m.hparams.n_vocab
    for i, p in enumerate(POSITIONS):
        cache = Snapshot.create(
            m.geometry("f32"), 64, m.file.id, m.arithmetic, str(os.path.dirname(path))
        )
        m.prefill(cache, tokens[: p + 1])
        want, got = np.array(known[i * n : (i + 1) * n]), np.array(ffi.unpack(cache.logits, n))
        assert np.abs(got - want).max() <= TOLERANCES.get(name, TOLERANCE) * np.abs(want).max()


def of_qwen35(name, x, c):
    """Heads of values that share a key are as many apart as there are keys."""
    n_key, n_value = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = n_key, n_value // n_key, -1
    apart = lambda rows: rows.reshape(*shape, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)
    at = 2 * n_key * c["linear_key_head_dim"]
    if name in ("linear_attn.in_proj_qkv", "linear_attn.conv1d"):
        return np.concatenate([x[:at], apart(x[at:])])
    if name == "linear_attn.out_proj":
        return np.ascontiguousarray(apart(x.T).T)
    if name == "linear_attn.A_log":
        return apart(-np.exp(x.astype(np.float64)).astype(np.float32))
    others = "in_proj_z", "in_proj_a", "in_proj_b", "dt_bias"
    return apart(x) if name.removeprefix("linear_attn.") in others else x


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_those_of_the_folder_under_their_names(converted, name):
    """Names by the gguf package's own table; values bit for bit, but for what the convention
    changes.
    """
    c, theirs = config(name), stored(name)
    found = {t.name: t for t in gguf_package.GGUFReader(converted(name)).tensors}
    arch = gguf.File(converted(name)).metadata["general.architecture"]
    number = next(k for k, v in gguf_package.MODEL_ARCH_NAMES.items() if v == arch)
    table = gguf_package.get_tensor_name_map(number, c["num_hidden_layers"])
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    for key in [key for key in theirs if "shared_mlp.input" in key]:  # of Granite: two matrices
        for part, x in zip(("gate", "up"), np.split(theirs.pop(key), 2)):
            theirs[key.replace("shared_mlp.input_linear", f"mlp.{part}_proj")] = x
    for key, x in theirs.items():
        if key.removeprefix("model.").startswith(NOT_OF_THE_TEXT):
            continue
        theirs_is = key.replace(".dt_bias", ".dt_proj.bias")  # as its converter renames them
        theirs_is = theirs_is.replace("layer_scalar", "layer_scalar.weight")
        theirs_is = theirs_is.replace("language_model.", "").replace(
            "shared_mlp.output", "mlp.down"
        )
        theirs_is = theirs_is.replace("mlp.down_linear", "mlp.down_proj")
        theirs_is = theirs_is if theirs_is.startswith(("model.", "lm_")) else f"model.{theirs_is}"
        t = found.pop(table.get_name(theirs_is, try_suffixes=(".weight", ".bias")))
        got = dequantize(t.data, t.tensor_type).reshape(x.shape)
        if arch in NEIGHBOURS and ("q_proj" in key or "k_proj" in key):
            x = np.concatenate(
                [
                    x[h : h + head_dim]
                    .reshape(2, head_dim // 2, -1)
                    .swapaxes(0, 1)
                    .reshape(head_dim, -1)
                    for h in range(0, len(x), head_dim)
                ]
            )
        if arch == "qwen35":
            of_layer = key.split("layers.")[-1].split(".", 1)[-1]
            x = of_qwen35(of_layer.removesuffix(".weight"), x, c)
        lacks_one = arch.startswith(("gemma", "qwen35")) and arch != "gemma4"
        if lacks_one and "norm" in key and "linear_attn" not in key:
            x = x + np.float32(1)
        assert got.tobytes() == x.tobytes(), key
        assert x.ndim > 1 or t.tensor_type == gguf_package.GGMLQuantizationType.F32
    assert set(found) == {
        "llama-3": {"rope_freqs.weight"},
        "gemma4": {"rope_freqs.weight"},
        "gemma4-eyes": {"rope_freqs.weight"},
        "gemma4-31b": {"rope_freqs.weight"},
        "phi3": {"rope_factors_long.weight", "rope_factors_short.weight"},
        "phi4-mini": {"rope_factors_long.weight", "rope_factors_short.weight"},
    }.get(name, set())


def test_converted_keys_are_known_to_the_gguf_package(converted):
    known = {
        value
        for group in vars(gguf_package.Keys).values()
        if isinstance(group, type)
        for value in vars(group).values()
        if isinstance(value, str)
    }
    for name in NAMES:
        f = gguf.File(converted(name))
        arch = f.metadata["general.architecture"]
        for key in f.metadata:
            assert key in known or key.replace(arch, "{arch}", 1) in known, key


@pytest.mark.parametrize(
    "name,key,value",
    [
        ("llama", "llama.rope.dimension_count", 8),
        ("llama", "llama.attention.head_count_kv", 2),
        ("mistral", "llama.attention.sliding_window", 16),
        ("mistral", "llama.attention.key_length", 16),
        ("llama-3", "llama.rope.freq_base", 5e5),
        ("gemma", "gemma.attention.key_length", 16),
        ("gemma2", "gemma2.attn_logit_softcapping", 50.0),
        ("gemma2", "gemma2.final_logit_softcapping", 30.0),
        ("gemma2", "gemma2.attention.sliding_window", 16),
        ("gemma3", "gemma3.attention.sliding_window_pattern", 2),
        ("gemma3", "gemma3.rope.freq_base_swa", 10000.0),
        ("gemma3", "gemma3.rope.freq_base", 1e6),
        ("phi3", "phi3.rope.scaling.type", "longrope"),
        ("phi3", "phi3.rope.scaling.original_context_length", 24),
        ("phi3", "phi3.rope.dimension_count", 8),
        ("phi4-mini", "phi3.rope.dimension_count", 12),
        ("smollm3", "smollm3.attention.head_count_kv", 2),
        ("granite", "granite.logit_scale", 0.5),
        ("granite", "granite.embedding_scale", 3.0),
        ("mistral3", "mistral3.rope.scaling.yarn_log_multiplier", 1.0),
        ("mistral3", "mistral3.rope.scaling.original_context_length", 8),
        ("gemma4", "gemma4.attention.key_length", 20),
        ("gemma4", "gemma4.attention.value_length_swa", 8),
        ("gemma4", "gemma4.rope.dimension_count", 20),
        ("gemma4", "gemma4.rope.dimension_count_swa", 8),
        ("gemma4", "gemma4.rope.freq_base_swa", 10000.0),
        ("gemma4", "gemma4.attention.head_count_kv", 1),
        ("gemma4", "gemma4.attention.shared_kv_layers", 2),
        ("gemma4", "gemma4.attention.sliding_window", 10),
        ("gemma4", "gemma4.embedding_length_per_layer_input", 12),
        ("gemma4", "gemma4.final_logit_softcapping", 30.0),
        ("gemma4-31b", "gemma4.embedding_length_per_layer_input", 0),
        ("gemma4-31b", "gemma4.feed_forward_length", 48),
        ("llama", "general.file_type", 0),
        ("qwen2", "general.file_type", 1),
        ("qwen3", "general.file_type", 32),
    ],
)
def test_keys_say_what_config_json_says(converted, name, key, value):
    assert gguf.File(converted(name)).metadata[key] == value


@pytest.mark.parametrize(
    "name,key,values",
    [
        ("gemma4", "feed_forward_length", [48, 48, 48, 48, 96, 96]),
        ("gemma4", "attention.sliding_window_pattern", [True, False] * 3),
        ("gemma4-31b", "attention.head_count_kv", [2, 2, 2, 2, 2, 1, 1]),
        ("gemma4-31b", "attention.sliding_window_pattern", [True] * 5 + [False] * 2),
    ],
)
def test_keys_of_layers_that_differ_are_arrays(converted, name, key, values):
    f = gguf.File(converted(name))
    array = f.metadata[f"{f.metadata['general.architecture']}.{key}"].values()
    assert [type(values[0])(x) for x in array] == values


def test_pairs_of_gemma_4_that_do_not_turn_have_a_huge_divisor(converted):
    f = gguf.File(converted("gemma4"))
    t = f.tensors["rope_freqs.weight"]
    divisors = np.frombuffer(f.read(t, 0, t.n_bytes), "<f4")
    assert divisors.tolist() == np.float32([1] * 4 + [1e30] * 6).tolist()  # 20 x 0.4 / 2 turn


def test_factors_of_longrope_and_llama3(converted):
    f = gguf.File(converted("phi3"))
    rope = config("phi3")["rope_parameters"]
    for which in ("long", "short"):
        t = f.tensors[f"rope_factors_{which}.weight"]
        assert (
            np.frombuffer(f.read(t, 0, t.n_bytes), "<f4").tolist()
            == np.float32(rope[f"{which}_factor"]).tolist()
        )
    assert f.metadata["phi3.rope.scaling.attn_factor"] == pytest.approx(
        (1 + np.log(4) / np.log(24)) ** 0.5
    )
    f = gguf.File(converted("llama-3"))
    t = f.tensors["rope_freqs.weight"]
    factor, inverse = (
        np.frombuffer(f.read(t, 0, t.n_bytes), "<f4"),
        5e5 ** (-np.arange(0, 16, 2) / 16),
    )
    wave = 2 * np.pi / inverse
    smooth = np.clip((48 / wave - 1) / 3, 0, 1)
    assert np.allclose(inverse / factor, (1 - smooth) * inverse / 8 + smooth * inverse, rtol=1e-6)
    assert factor[0] == 1 and factor[-1] == 8 and any(1 < x < 8 for x in factor)


@pytest.mark.parametrize(
    "name,rope,keys",
    [
        (
            "qwen2",
            {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
            },
            {
                "scaling.type": "yarn",
                "scaling.factor": 4.0,
                "scaling.original_context_length": 24,
                "freq_base": 1e6,
            },
        ),
        (
            "qwen3",
            {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 2.0,
                "attention_factor": 1.25,
                "beta_fast": 16,
                "beta_slow": 2,
            },
            {
                "scaling.factor": 2.0,
                "scaling.attn_factor": 1.25,
                "scaling.yarn_beta_fast": 16.0,
                "scaling.yarn_beta_slow": 2.0,
                "scaling.original_context_length": 96,
            },
        ),
        (
            "llama",
            {"type": "linear", "rope_theta": 1e4, "factor": 8},
            {"scaling.type": "linear", "scaling.factor": 8.0},
        ),
        (
            "gemma3",
            {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            },
            {"scaling.type": "linear", "scaling.factor": 8.0, "freq_base_swa": 5e3},
        ),
    ],
)
def test_rope_scaling_becomes_its_keys(folder, tmp_path, name, rope, keys):
    path = folder(name)
    change(path / "config.json", rope_parameters=rope)
    f = gguf.File(str(convert(path, tmp_path / "m.gguf")))
    for key, value in keys.items():
        assert f.metadata[f"{f.metadata['general.architecture']}.rope.{key}"] == value


def test_type_is_that_of_every_matrix(tmp_path):
    """What quantises is the gguf package's bit for bit (test_convert.py); here: which tensors,
    after the rearrangement of rows.
    """
    plain = read_all(convert(FOLDERS / "llama", tmp_path / "a"))[1]
    f = gguf.File(str(convert(FOLDERS / "llama", tmp_path / "b", "--type", "Q8_0")))
    for name, t in f.tensors.items():
        x = np.frombuffer(plain[name], "<f4")
        type = (
            gguf_package.GGMLQuantizationType.F32
            if len(t.shape) == 1
            else (
                gguf_package.GGMLQuantizationType.F16
                if t.shape[0] == 48
                else gguf_package.GGMLQuantizationType.Q8_0
            )
        )
        assert (
            t.type == type
            and f.read(t, 0, t.n_bytes)
            == gguf_package.quants.quantize(x.reshape(t.shape[::-1]), type).tobytes()
        )


def test_without_numpy_the_command_says_so(tmp_path):
    code = (
        "import runpy, sys; sys.modules['numpy'] = None; sys.argv = sys.argv[1:];"
        " runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            START,
            ROOT / "bin" / "gguf-convert",
            FOLDERS / "llama",
            "-o",
            tmp_path / "m",
        ],
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (
        69,
        b"gguf-convert: numpy: is not installed; pip install numpy\n",
    )


@pytest.mark.parametrize(
    "name,model,pre",
    [
        ("llama", "llama", "default"),
        ("gemma2", "llama", "default"),
        ("llama-3", "gpt2", "llama-bpe"),
        ("qwen2", "gpt2", "qwen2"),
        ("mistral", "gpt2", "tekken"),
        ("smollm", "gpt2", "smollm"),
        ("deepseek", "gpt2", "deepseek-llm"),
        ("smollm3", "gpt2", "smaug-bpe"),
        ("granite", "gpt2", "smollm"),
        ("mistral3", "gpt2", "tekken"),
        ("phi4-mini", "gpt2", "gpt-4o"),
        ("gemma4", "gemma4", None),
    ],
)
def test_vocabulary_is_that_of_tokenizer_json(converted, name, model, pre):
    f, theirs = (
        gguf.File(converted(name)),
        json.loads((FOLDERS / name / "tokenizer.json").read_text()),
    )
    get = lambda key, kind: f.get("tokenizer.ggml." + key, kind)
    assert (get("model", "string"), f.metadata.get("tokenizer.ggml.pre")) == (model, pre)
    texts, types = (
        [t.decode() for t in get("tokens", "[string]").values()],
        get("token_type", "[i32]").values(),
    )
    assert len(texts) == len(types) == config(name)["vocab_size"]
    tokens = {**theirs["model"]["vocab"], **{e["content"]: e["id"] for e in theirs["added_tokens"]}}
    assert all(texts[i] == t for t, i in tokens.items())
    for e in theirs["added_tokens"]:
        assert types[e["id"]] == (2 if e["content"] == "<unk>" else 3 if e["special"] else 4)
    assert all(
        types[i] == 5 and texts[i] == f"[PAD{i}]"
        for i in set(range(len(texts))) - set(tokens.values())
    )
    if model != "llama":
        assert [m.decode() for m in get("merges", "[string]").values()] == [
            m if isinstance(m, str) else " ".join(m) for m in theirs["model"]["merges"]
        ]
    settings = json.loads((FOLDERS / name / "tokenizer_config.json").read_text())
    for key in ("bos", "eos"):
        assert get(f"{key}_token_id", "u32") == tokens[settings[f"{key}_token"]]
    assert get("add_bos_token", "bool") == (pre in (None, "default", "llama-bpe", "tekken"))
    assert f.metadata.get("tokenizer.chat_template") == settings.get("chat_template")


@pytest.mark.parametrize("name", NAMES)
def test_texts_get_the_ids_of_tokenizers(converted, name):
    words = Vocab(gguf.File(converted(name)))
    for text, tokens in json.loads((FOLDERS / name / "texts.json").read_text()):
        assert words.encode(text.encode(), bos=False, eos=False, special=True) == tokens, text


# What is wrong with a folder ---------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """folder(name): a copy of a golden folder that may be damaged."""

    def copy(name):
        return shutil.copytree(FOLDERS / name, tmp_path / "model")

    return copy


def refused(code, path):
    return convert_call.refused(code, path, path.parent / "out.gguf")


@pytest.mark.parametrize(
    "name,values,code,what",
    [
        ("llama", {"model_type": "mamba"}, 69, "model_type"),
        ("llama", {"model_type": ["llama"]}, 69, "model_type"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, 69, "architectures"),
        ("llama", {"hidden_size": 64}, 65, "shape"),
        ("llama", {"hidden_size": "32"}, 65, "hidden_size"),
        ("llama", {"hidden_size": -1}, 65, "hidden_size"),
        ("llama", {"hidden_size": ...}, 65, "hidden_size"),
        ("llama", {"num_hidden_layers": 3}, 65, "layers.2"),
        ("llama", {"num_hidden_layers": 1}, 69, "layers.1"),
        ("llama", {"num_hidden_layers": 10**9}, 65, "num_hidden_layers"),
        ("llama", {"num_attention_heads": True}, 65, "num_attention_heads"),
        ("llama", {"vocab_size": 401}, 65, "embed_tokens"),
        ("llama", {"num_key_value_heads": 3}, 65, "num_key_value_heads"),
        ("llama", {"attention_bias": True}, 69, "attention_bias"),
        ("llama", {"hidden_act": "relu"}, 69, "hidden_act"),
        ("llama", {"quantization_config": {"bits": 4}}, 69, "quantization_config"),
        ("llama", {"rms_norm_eps": 0}, 65, "rms_norm_eps"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2}},
            69,
            "dynamic",
        ),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, 65, "factor"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2**31}}, 65, "factor"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": float("nan")}},
            65,
            "factor",
        ),
        ("qwen2", {"use_sliding_window": True}, 69, "use_sliding_window"),
        ("gemma2", {"query_pre_attn_scalar": 224}, 69, "query_pre_attn_scalar"),
        ("gemma2", {"final_logit_softcapping": None}, 69, "final_logit_softcapping"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, 69, "attn_logit_softcapping"),
        ("smollm3", {"no_rope_layers": [1, 1, 0, 1, 1]}, 69, "no_rope_layers"),
        (
            "smollm3",
            {"no_rope_layers": None, "no_rope_layer_interval": 2},
            69,
            "no_rope_layer_interval",
        ),
        ("granite", {"logits_scaling": 0}, 65, "logits_scaling"),
        ("granite", {"model_type": "granitemoe"}, 69, "model_type"),
        (
            "mistral3",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale_all_dim": 1}},
            69,
            "mscale",
        ),
        (
            "mistral3",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": -1}},
            65,
            "llama_4_scaling_beta",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": 0.1}},
            69,
            "llama_4_scaling_beta",
        ),
        ("gemma3", {"layer_types": ["full_attention", "sliding_attention"] * 2}, 69, "layer_types"),
        (
            "phi3",
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "long_factor": [1, 2],
                    "short_factor": [1, 1, 1, 1],
                }
            },
            65,
            "long_factor",
        ),
    ],
)
def test_config_that_does_not_fit_is_refused_by_name(folder, name, values, code, what):
    path = folder(name)
    change(path / "config.json", **values)
    assert what in refused(code, path)


NORM, EMBD = "model.norm.weight", "model.embed_tokens.weight"


@pytest.mark.parametrize(
    "edit,code,what",
    [
        (lambda h: h[NORM].update(dtype="F64"), 65, "needs"),
        (lambda h: h[NORM].update(dtype="Q4"), 69, "dtype"),
        (lambda h: h[NORM].update(dtype=7), 69, "dtype"),
        (lambda h: h[NORM].update(dtype="I32"), 69, "dtype I32"),
        (lambda h: h[NORM].update(shape=[2, 16]), 65, "shape"),
        (lambda h: h[NORM].update(shape=[-32]), 65, "shape"),
        (lambda h: h[NORM].update(shape=32), 65, "shape"),
        (lambda h: h[NORM].update(shape=[1.5]), 65, "shape"),
        (lambda h: h[NORM].update(data_offsets=[0, 128]), 65, "begins at byte 0"),
        (lambda h: h[NORM].update(data_offsets=[128, 0]), 65, "bytes"),
        (lambda h: h[NORM].update(data_offsets=[10**12, 10**12 + 128]), 65, "begins at byte"),
        (lambda h: h.pop(NORM) and None, 65, "its header means"),
        (lambda h: h.update({"x": h.pop(NORM)}), 65, NORM),
        (lambda h: h[NORM].pop("shape") and None, 65, "not an object of"),
        (lambda h: b"[]", 65, "object"),
        (lambda h: b"{", 65, "not JSON"),
        (lambda h: b"[" * 100_000, 65, "nested too deeply"),
        (lambda h: b'{"a": 1, "a": 2}', 65, "twice"),
        (lambda h: b'{"\\ud800": 1}', 65, "surrogate"),
        (lambda h: b"\xff\xfe", 65, "not JSON"),
        (lambda h: b'{"a": ' + b"9" * 5000 + b"}", 65, "not JSON"),
    ],
)
def test_headers_that_lie_are_refused(folder, edit, code, what):
    path = folder("llama")
    rewrite(path / "model.safetensors", edit)
    assert what in refused(code, path)


@pytest.mark.parametrize(
    "data,what",
    [
        (b"", "too short"),
        (b"\xff" * 8, "header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "header"),
        ((2).to_bytes(8, "little") + b"{}x", "11 bytes"),
        ((2).to_bytes(8, "little") + b"{}", "embed_tokens.weight is missing"),
    ],
)
def test_files_that_are_no_safetensors_are_refused(folder, data, what):
    path = folder("llama")
    (path / "model.safetensors").write_bytes(data)
    assert what in refused(65, path)


def test_refusal_is_one_line_and_a_status(folder):
    """The command itself, with a name that a message must not repeat as it is."""
    path = folder("llama")
    rewrite(path / "model.safetensors", lambda h: h.update({"a\x1b[2J\nb": h.pop(NORM)}))
    done = run("gguf-convert", path, "-o", path.parent / "out.gguf")
    assert (
        done.returncode == 65
        and done.stdout == b""
        and done.stderr.count(b"\n") == 1
        and b"\x1b" not in done.stderr
    )
    assert done.stderr.startswith(b"gguf-convert: ") and not (path.parent / "out.gguf").exists()


def test_cut_weights_and_numbers_that_are_none_are_refused(folder):
    path = folder("llama")
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-2])
    assert "cut" in refused(65, path)
    (path / "model.safetensors").write_bytes(whole[:-4] + b"\0\0\xc0\x7f")
    assert "tensor output_norm.weight: row 0: a weight is infinite or NaN" in refused(65, path)


@pytest.mark.parametrize(
    "target,code,what",
    [
        ("../out/model-00001-of-00004.safetensors", 65, "weight_map"),
        ("/etc/passwd", 65, "weight_map"),
        ("x/../model.safetensors", 65, "weight_map"),
        ("", 65, "weight_map"),
        ("..", 65, "weight_map"),
        ("model.bin", 65, "weight_map"),
        ("a\0b.safetensors", 65, "weight_map"),
        ("absent.safetensors", 66, "absent"),
        (5, 65, "weight_map"),
    ],
)
def test_index_leads_nowhere_else(folder, target, code, what):
    path = folder("mistral")
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["weight_map"][NORM] = target
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert what in refused(code, path)


def test_index_and_shards_must_agree(folder):
    path = folder("mistral")
    index = path / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    names = sorted(set(whole["weight_map"].values()))
    for key, value in (
        (NORM, next(n for n in names if n != whole["weight_map"][NORM])),
        ("model.more.weight", names[0]),
    ):
        index.write_text(json.dumps({"weight_map": {**whole["weight_map"], key: value}}))
        assert "index" in refused(65, path)
    index.write_text(json.dumps({"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(600)}}))
    assert "600 files" in refused(65, path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth"])
def test_pickled_weights_are_refused_by_name_and_never_run(folder, name):
    """A pickle that makes a file where it is loaded."""
    path = folder("llama")
    (path / "model.safetensors").unlink()
    (path / name).write_bytes(b"cos\nsystem\n(S'touch " + bytes(path / "ran") + b"'\ntR.")
    assert name in refused(69, path)
    assert not (path / "ran").exists()


@pytest.mark.parametrize(
    "edit,code,what",
    [
        (lambda t: t.update(pre_tokenizer={"type": "Whitespace"}), 69, "Whitespace"),
        (lambda t: t["pre_tokenizer"]["pretokenizers"].reverse(), 69, "pre_tokenizer"),
        (
            lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="x+"),
            69,
            "pre_tokenizer",
        ),
        (lambda t: t.update(normalizer={"type": "Lowercase"}), 69, "Lowercase"),
        (lambda t: t["model"].update(type="Unigram"), 69, "Unigram"),
        (lambda t: t["model"].update(ignore_merges=True), 69, "ignore_merges"),
        (lambda t: t["model"]["vocab"].update(more=400), 65, "token ID 400"),
        (lambda t: t["model"]["vocab"].update(more=5), 65, "same ID"),
        (lambda t: t["model"]["vocab"].update(more=-1), 65, "vocab"),
        (lambda t: t["model"].update(merges=[["x"]]), 65, "merges"),
        (lambda t: t["model"]["merges"].append(["qq", "zz"]), 65, "merges"),
        (lambda t: t.update(added_tokens=[{"id": 1}]), 65, "added_tokens"),
        (lambda t: t.pop("model") and None, 65, "model"),
        (lambda t: t.update(pre_tokenizer=5), 69, "pre_tokenizer"),
    ],
)
def test_tokenizers_of_another_kind_are_refused_by_name(folder, edit, code, what):
    path = folder("qwen2")
    whole = json.loads((path / "tokenizer.json").read_text())
    edit(whole)
    (path / "tokenizer.json").write_text(json.dumps(whole))
    assert what in refused(code, path)


def test_absurd_and_missing_files_are_refused(folder):
    path = folder("llama")
    whole = (path / "tokenizer.json").read_bytes()
    with open(path / "tokenizer.json", "ab") as f:
        f.truncate(65 << 20)
    assert "more than 64 MiB" in refused(65, path)
    (path / "tokenizer.json").unlink()
    assert "tokenizer.model" in refused(65, path)
    (path / "tokenizer.json").write_bytes(whole)
    (path / "tokenizer.model").mkdir()
    assert "tokenizer.model: is a directory" in refused(65, path)
    (path / "tokenizer.model").rmdir()
    os.mkfifo(path / "tokenizer.model")
    assert "not a regular file" in refused(65, path)
    (path / "tokenizer.model").unlink()
    (path / "config.json").unlink()
    assert "no config.json" in refused(65, path)
    assert "No such file" in refused(66, path / "absent")


def test_tokenizer_model_is_preferred_and_rows_without_pieces_get_names(folder, datafile, tmp_path):
    """A SentencePiece model of sentencepiece's own trainer, smaller than the model's rows, with a
    token added.
    """
    import sentencepiece
    import tiny_vocab

    path = folder("llama")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny_vocab.TEXT.split("\n")),
        model_prefix=str(tmp_path / "m"),
        vocab_size=380,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    shutil.move(tmp_path / "m.model", path / "tokenizer.model")
    (path / "added_tokens.json").write_text('{"<|x|>": 380}')
    change(
        path / "tokenizer_config.json",
        added_tokens_decoder={
            "381": {"content": "<|y|>", "special": False},
            "2": {"content": "</s>", "special": True},
        },
    )
    words = Vocab(gguf.File(str(convert(path, tmp_path / "m.gguf"))))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    assert (
        words.n_vocab == 400 and words.control_token("<|x|>") == 380 and words.bytes_of(399) == b""
    )
    types = words._file.get("tokenizer.ggml.token_type", "[i32]").values()
    assert [types[i] for i in (0, 1, 2, 3, 379, 380, 381, 399)] == [2, 3, 3, 6, 1, 3, 4, 5]
    for text in ("Once upon a time", "naïve 漢字", "the kitchen table."):
        assert words.encode(text.encode(), bos=False) == theirs.encode(text)


@pytest.mark.parametrize("processors", [0.5, "x", {"type": "Sequence"}, None])
def test_post_processors_that_are_no_list_say_nothing(folder, tmp_path, processors):
    path = folder("llama-3")
    change(path / "tokenizer.json", post_processor={"type": "Sequence", "processors": processors})
    assert convert(path, tmp_path / "m.gguf").exists()


def test_tokenizer_json_names_may_be_long_and_of_any_characters(folder, tmp_path):
    path = folder("llama")
    whole = json.loads((path / "tokenizer.json").read_text())
    change(path / "tokenizer.json", model={**whole["model"], "unk_token": {"a": 1}})
    assert convert(path, tmp_path / "m.gguf").exists()
    shutil.rmtree(path)
    (tmp_path / "m.gguf").unlink()
    path = folder("llama-3")
    change(path / "tokenizer.json", normalizer={"type": "x" * 100_000})
    assert len(refused(69, path)) < 400


def test_text_part_of_a_model_with_eyes_is_taken(folder, tmp_path):
    """Gemma 3 of 4B and more: config.json has a text_config, names begin with language_model, and
    others are not of the text.
    """
    path = folder("gemma3")
    whole = json.loads((path / "config.json").read_text())
    change(
        path / "config.json",
        model_type="gemma3",
        architectures=["Gemma3ForConditionalGeneration"],
        text_config=whole,
        **{k: ... for k in whole if "_size" in k},
    )
    (file,) = path.glob("*.safetensors")

    def rename(header):
        for key in list(header):
            if key != "__metadata__":
                header[f"language_model.{key}"] = header.pop(key)
        end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
        header["vision_tower.x"] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}

    whole = file.read_bytes()
    rewrite(file, rename, whole[8 + int.from_bytes(whole[:8], "little") :] + bytes(4))
    a, b = (
        gguf.File(str(convert(path, tmp_path / "a.gguf"))),
        gguf.File(str(convert(FOLDERS / "gemma3", tmp_path / "b.gguf"))),
    )
    assert all(
        a.read(t, 0, t.n_bytes) == b.read(b.tensors[n], 0, t.n_bytes) for n, t in a.tensors.items()
    ) and len(a.tensors) == len(b.tensors)


def test_older_forms_of_config_mean_the_same(folder, tmp_path):
    """rope_theta and rope_scaling beside each other, type for rope_type, rope_local_base_freq,
    sliding_window_pattern.
    """
    path = folder("llama-3")
    rope = config("llama-3")["rope_parameters"]
    theta = rope.pop("rope_theta")
    change(
        path / "config.json",
        rope_parameters=...,
        rope_theta=theta,
        rope_scaling={**rope, "type": rope.pop("rope_type")},
    )
    convert(path, tmp_path / "a"), convert(FOLDERS / "llama-3", tmp_path / "b")
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")
    shutil.rmtree(path)
    path = folder("gemma3")
    change(
        path / "config.json",
        rope_parameters=...,
        layer_types=...,
        rope_theta=1e6,
        rope_local_base_freq=10000.0,
        sliding_window_pattern=2,
    )
    convert(path, tmp_path / "a"), convert(FOLDERS / "gemma3", tmp_path / "b")
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


def read_all(path):
    f = gguf.File(path)
    return {
        k: getattr(v, "raw", v) if not hasattr(v, "raw") else bytes(v.raw)
        for k, v in f.metadata.items()
        if k != "general.name"
    }, {n: f.read(t, 0, t.n_bytes) for n, t in f.tensors.items()}


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 500),
    st.sampled_from([2**31, -(2**63), 10**30, 1e308, float("inf"), float("nan"), 0.5]),
    st.text(max_size=6),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.just([[[{}]]]),
    st.just({"type": "Sequence"}),
)


def places(value, path=()):
    """Paths of every value inside, a few of long lists and objects."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    for key, inner in items[:30] + items[-3:]:
        yield (*path, key)
        yield from places(inner, (*path, key))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_value_anywhere_is_a_fault_or_a_model(tmp_path_factory, data):
    """One or two values of a folder's JSON files replaced by others, or taken away: nothing else
    than an Error or a whole file comes of it.
    """
    d = tmp_path_factory.getbasetemp() / "hostile"
    shutil.rmtree(d, ignore_errors=True)
    path = shutil.copytree(FOLDERS / data.draw(st.sampled_from(NAMES)), d / "m")
    change(
        path / "tokenizer_config.json",
        added_tokens_decoder={"390": {"content": "x", "special": True}},
    )
    for _ in range(data.draw(st.integers(1, 2))):
        file = path / data.draw(
            st.sampled_from(
                sorted(
                    p.name
                    for p in path.iterdir()
                    if p.suffix in (".json", ".safetensors") and p.name != "texts.json"
                )
            )
        )
        whole, n = file.read_bytes(), 0
        if file.suffix == ".safetensors":
            n = int.from_bytes(whole[:8], "little")
            tree, rest = json.loads(whole[8 : 8 + n]), whole[8 + n :]
        else:
            tree = json.loads(whole)
        *way, last = data.draw(st.sampled_from(list(places(tree)) or [("x",)]))
        at = tree
        for key in way:
            at = at[key]
        if data.draw(st.booleans()) or isinstance(at, list):
            at[last] = data.draw(HOSTILE)
        else:
            at.pop(last, None)
        text = json.dumps(tree).encode()
        file.write_bytes(
            len(text).to_bytes(8, "little") + text + rest if file.suffix == ".safetensors" else text
        )
    try:
        convert(path, d / "out.gguf")
    except Error as e:
        assert e.code in (65, 69) and "\n" not in str(e) and not (d / "out.gguf").exists()
    except FileNotFoundError:
        assert not (d / "out.gguf").exists()
    else:
        gguf.File(str(d / "out.gguf"))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_for_a_sentencepiece_model_are_a_fault_or_one(tmp_path_factory, datafile, data):
    from sluice.convert.hf import sentencepiece

    whole = bytearray(
        datafile("tokenizers/mistral.tokenizer.model.v1").read_bytes()[-3000:]
        if data.draw(st.booleans())
        else SMALL_SPM
    )
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "hostile.model"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        sentencepiece.Model(str(path)).metadata()
    except Error as e:
        assert e.code in (65, 69) and "\n" not in str(e)


SMALL_SPM = (
    b"".join(
        b"\n" + bytes([len(p)]) + p
        for p in (b"\n\x05<unk>\x18\x02", b"\n\x03<s>\x18\x03", b"\n\x01a\x15\0\0\x80\xbf")
    )
    + b"\x12\x06\x18\x02\xc0\x02\0\x50"
    + b"\x1a\x02\x18\x00"
)
