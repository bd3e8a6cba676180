"""gguf-convert on folders whose family has rules of its own: Gemma 4, embedding models of
sentence-transformers, dense Granite 4, and models with parts outside the text.
"""

import json
import shutil

import convert_call
import numpy as np
import pytest
from conftest import ROOT, run
from convert_call import change, convert, rewrite

from sluice import gguf
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

FOLDERS = ROOT / "tests" / "golden" / "folders"


@pytest.fixture
def folder(tmp_path):
    """folder(name): a copy of a golden folder that may be changed."""
    return lambda name: shutil.copytree(FOLDERS / name, tmp_path / "model")


def refused(code, path):
    """The message, without the quotation marks around what the folder has."""
    return convert_call.refused(code, path, path.parent / "out.gguf").replace('"', "")


def tensors(path):
    f = gguf.File(str(path))
    return {name: f.read(t, 0, t.n_bytes) for name, t in f.tensors.items()}


# Gemma 4 -------------------------------------------------------------------------------


def test_both_forms_of_the_heads_of_gemma_4_mean_the_same(folder, tmp_path):
    """per_layer_config, as transformers writes it; global_head_dim, as published folders have."""
    path = folder("gemma4")
    convert(path, tmp_path / "a.gguf")
    change(path / "config.json", per_layer_config=..., global_head_dim=20)
    convert(path, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_defaults_of_gemma_4_are_those_of_transformers(folder, tmp_path):
    path = folder("gemma4-31b")
    values = json.loads((path / "config.json").read_text())
    convert(path, tmp_path / "a.gguf")
    assert values["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"] * 2
    change(path / "config.json", layer_types=..., num_kv_shared_layers=..., enable_moe_block=...)
    convert(path, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_tokens_that_are_never_sampled_are_kept(folder, tmp_path):
    path = folder("gemma4")
    change(path / "generation_config.json", suppress_tokens=[7, 3])
    convert(path, tmp_path / "a.gguf")
    assert Vocab(gguf.File(str(tmp_path / "a.gguf"))).suppressed == {3, 7}
    for value in (5, ["a"], [-1], [1 << 40], [True], {"a": 1}):
        change(path / "generation_config.json", suppress_tokens=value)
        assert "generation_config.json: suppress_tokens: not a list" in refused(65, path)


def add_tensor(header, name, shape):
    """Put a BF16 tensor at the end; return its bytes."""
    end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
    n = 2 * int(np.prod(shape))
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + n]}
    return bytes(n)


def test_unused_keys_and_values_of_sharing_layers_are_kept_and_change_nothing(folder, tmp_path):
    """Published folders have them, and so do the files of llama.cpp's converter."""
    path = folder("gemma4")
    convert(path, tmp_path / "a.gguf")
    file, more = path / "model.safetensors", []
    whole = file.read_bytes()
    data = whole[8 + int.from_bytes(whole[:8], "little") :]

    def add(header):
        layer = "model.layers.5.self_attn."
        more.append(add_tensor(header, layer + "k_proj.weight", [20, 32]))
        more.append(add_tensor(header, layer + "v_proj.weight", [20, 32]))
        more.append(add_tensor(header, layer + "k_norm.weight", [20]))

    rewrite(file, add, data + bytes(2 * (20 * 32 * 2 + 20)))
    convert(path, tmp_path / "b.gguf")
    a, b = tensors(tmp_path / "a.gguf"), tensors(tmp_path / "b.gguf")
    assert {f"blk.5.attn_{x}.weight" for x in ("k", "v", "k_norm")} == b.keys() - a.keys()
    assert all(a[name] == b[name] for name in a) and Model(str(tmp_path / "b.gguf"), 1)


def test_marks_of_an_answer_are_pieces_that_appear_and_bos_is_always_added(folder, tmp_path):
    path = folder("gemma4")
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [
        {"id": 398, "content": "<|channel>", "special": True},
        {"id": 399, "content": "<|image|>", "special": True},
    ]
    change(path / "tokenizer.json", added_tokens=tokenizer["added_tokens"], post_processor=None)
    f = gguf.File(str(convert(path, tmp_path / "m.gguf")))
    types = f.metadata["tokenizer.ggml.token_type"].values()
    assert (types[398], types[399]) == (4, 3)
    assert f.metadata["tokenizer.ggml.add_bos_token"] is True


PROPORTIONAL = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.4}
LAYERS = ["sliding_attention", "full_attention"] * 3
WIDE = {"head_dim": 20}


@pytest.mark.parametrize(
    "values,code,what",
    [
        ({"enable_moe_block": True}, 69, "enable_moe_block: a mixture of experts"),
        ({"num_experts": 128}, 69, "mixture of experts"),
        ({"use_bidirectional_attention": "all"}, 69, "use_bidirectional_attention = all"),
        ({"use_bidirectional_attention": 7}, 65, "use_bidirectional_attention: is 7"),
        ({"layer_types": LAYERS[:5]}, 65, "layer_types"),
        ({"layer_types": LAYERS[::-1]}, 69, "layer_types: the last layer is local"),
        ({"layer_types": ["full_attention", {}] * 3}, 65, "layer_types"),
        ({"layer_types": "full_attention"}, 65, "layer_types"),
        ({"num_kv_shared_layers": 6}, 65, "num_kv_shared_layers: 6 of 6 layers"),
        ({"num_kv_shared_layers": -1}, 65, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 5}, 69, "num_kv_shared_layers: layer 1 has none to share with"),
        ({"num_kv_shared_layers": 0}, 65, "layers.4.self_attn.k_proj.weight is missing"),
        ({"per_layer_config": []}, 65, "per_layer_config"),
        ({"per_layer_config": {"1": 5}}, 69, "per_layer_config: layer 1"),
        ({"per_layer_config": {"1": {"head_dim": "20"}}}, 65, "per_layer_config: layer 1"),
        ({"per_layer_config": {"1": {"head_dim": 10**30}}}, 65, "per_layer_config: layer 1"),
        ({"per_layer_config": {"1": {"num_key_value_heads": 0}}}, 65, "per_layer_config: layer 1"),
        ({"per_layer_config": {"1": {"sliding_window": 3}}}, 69, "per_layer_config: layer 1"),
        ({"per_layer_config": {"1": WIDE, "3": WIDE}}, 69, "head_dim differs"),
        ({"per_layer_config": {str(i): WIDE | {"num_key_value_heads": 3} for i in (1, 3, 5)}},
         65, "num_key_value_heads"),
        ({"per_layer_config": {str(i): {"head_dim": 21} for i in (1, 3, 5)}}, 65, "head_dim"),
        ({"per_layer_config": ..., "global_head_dim": 10**9}, 65, "global_head_dim"),
        ({"per_layer_config": ...}, 65, "shape"),
        ({"head_dim": 7}, 65, "head_dim: 7 of layer 0"),
        ({"vocab_size_per_layer_input": 262144}, 69, "vocab_size_per_layer_input"),
        ({"hidden_size_per_layer_input": 13}, 65, "embed_tokens_per_layer.weight: shape"),
        ({"hidden_size_per_layer_input": 0}, 69, "embed_tokens_per_layer"),
        ({"hidden_size_per_layer_input": 2**40}, 65, "hidden_size_per_layer_input"),
        ({"sliding_window": 0}, 65, "sliding_window"),
        ({"final_logit_softcapping": -1}, 65, "final_logit_softcapping"),
        ({"attention_k_eq_v": True}, 69, "v_proj"),
        ({"attention_k_eq_v": "yes"}, 65, "attention_k_eq_v"),
        ({"attention_bias": True}, 69, "attention_bias"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2}}}, 69, "yarn"),
        ({"rope_parameters": {"full_attention": PROPORTIONAL | {"partial_rotary_factor": 1.5}}},
         69, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": PROPORTIONAL | {"partial_rotary_factor": "x"}}},
         65, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": PROPORTIONAL,
                              "sliding_attention": {"partial_rotary_factor": 0.5}}},
         69, "partial_rotary_factor of local layers"),
        ({"rope_parameters": {"full_attention": PROPORTIONAL, "sliding_attention": {
            "rope_theta": "x"}}}, 65, "rope_theta"),
        ({"rope_parameters": {"full_attention": PROPORTIONAL, "sliding_attention": 1}},
         65, "sliding_attention: 1"),
        ({"model_type": "gemma4_unified"}, 69, "model_type gemma4_unified"),
        ({"architectures": ["Gemma4ForSequenceClassification"]}, 69, "architectures"),
        ({"intermediate_size": 2**20}, 65, "intermediate_size"),
    ],
)  # fmt: skip
def test_gemma_4_that_does_not_fit_is_refused_by_name(folder, values, code, what):
    path = folder("gemma4")
    change(path / "config.json", **values)
    assert what in refused(code, path)


def test_gemma_4_needs_its_tokenizer_json(folder):
    path = folder("gemma4")
    (path / "tokenizer.json").rename(path / "tokenizer.model")
    assert "has no tokenizer.json" in refused(65, path)


def test_a_factor_of_gemma_4_divides_the_frequencies_that_turn(folder, tmp_path):
    path = folder("gemma4")
    change(path / "config.json", rope_parameters={"full_attention": PROPORTIONAL | {"factor": 8}})
    f = gguf.File(str(convert(path, tmp_path / "m.gguf")))
    t = f.tensors["rope_freqs.weight"]
    divisors = np.frombuffer(f.read(t, 0, t.n_bytes), "<f4")
    assert divisors.tolist() == np.float32([8] * 4 + [1e30] * 6).tolist()


# Models with parts outside the text ------------------------------------------------------


@pytest.mark.parametrize(
    "name,parts",
    [
        ("gemma4-eyes", "audio_tower, embed_audio, embed_vision, vision_tower"),
        ("mistral3-eyes", "multi_modal_projector, vision_tower"),
        ("qwen35-eyes", "visual"),
    ],
)
def test_parts_outside_the_text_are_left_out_and_one_line_says_so(tmp_path, name, parts):
    path, out = FOLDERS / name, tmp_path / "m.gguf"
    done = run("gguf-convert", path, "-o", out)
    assert done.returncode == 0 and out.exists()
    assert done.stderr.decode() == (
        f"gguf-convert: {path}: left out, not of the text model: {parts}\n"
    )
    assert all(name.startswith(("blk.", "token_", "output", "per_", "rope_"))
               for name in gguf.File(str(out)).tensors)  # fmt: skip


@pytest.mark.parametrize(
    "name,values,code,what",
    [
        ("mistral3-eyes", {"model_type": "mistral4"}, 69, "text_config: model_type mistral4"),
        ("gemma4-eyes", {"model_type": ["x"]}, 69, "text_config: model_type"),
        ("mistral3-eyes", {"sliding_window": 7}, 69, "sliding_window 7"),
        ("mistral3-eyes", {"rms_norm_eps": 3}, 65, "rms_norm_eps: 3 is not below 1"),
        ("gemma4-eyes", {"hidden_size": None}, 65, "hidden_size: is missing"),
        ("mistral3-eyes", {"rope_parameters": ...}, 69, "rope_parameters: missing"),
        ("qwen35-eyes", {"model_type": "qwen3_5_moe_text"}, 69, "qwen3_5_moe_text"),
    ],
)
def test_text_configs_that_do_not_fit_are_refused_by_name(folder, name, values, code, what):
    path = folder(name)
    inner = json.loads((path / "config.json").read_text())["text_config"]
    inner = {k: v for k, v in {**inner, **values}.items() if v is not ...}
    change(path / "config.json", text_config=inner)
    assert what in refused(code, path)


def test_text_part_of_mistral_small_is_a_mistral(folder, tmp_path):
    path = folder("mistral3-eyes")
    inner = json.loads((path / "config.json").read_text())["text_config"]
    change(path / "config.json", text_config={**inner, "model_type": "mistral"})
    assert convert(path, tmp_path / "m.gguf").exists()


# Embedding models ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """(path of the GGUF of qwen3-embedding, stderr of the command)."""
    out = tmp_path_factory.mktemp("embedding") / "m.gguf"
    done = run("gguf-convert", FOLDERS / "qwen3-embedding", "-o", out)
    assert done.returncode == 0, done.stderr
    return out, done.stderr.decode()


def test_vectors_of_a_converted_folder_are_those_of_transformers(embedding):
    known = json.loads((FOLDERS / "qwen3-embedding" / "vectors.json").read_text())
    lines = "".join(json.dumps({"text": text}) + "\n" for text, _ in known)
    done = run("embed", "-m", embedding[0], "--jsonl", input=lines.encode())
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["embedding"] for line in done.stdout.splitlines()]
    assert len(found) == len(known) > 3
    for got, (_, want) in zip(found, known):
        assert np.abs(np.subtract(got, want)).max() < 1e-5


def test_an_embedding_folder_names_its_pooling_and_the_end_of_texts(embedding):
    """EOS is the token that texts end with; that of the configuration ends a turn."""
    f = gguf.File(str(embedding[0]))
    tokens = f.metadata["tokenizer.ggml.tokens"].values()
    named = lambda key: tokens[f.metadata[f"tokenizer.ggml.{key}_token_id"]]
    assert f.metadata["qwen3.pooling_type"] == 3
    assert f.metadata["tokenizer.ggml.add_eos_token"] is True
    assert (named("eos"), named("eot")) == (b"<|end|>", b"<|turn|>")
    assert "output.weight" not in f.tensors


def test_what_an_embedding_folder_has_beyond_a_gguf_is_said(embedding):
    path = FOLDERS / "qwen3-embedding"
    assert embedding[1].splitlines() == [
        f"gguf-convert: {path}: has no output head: the GGUF is for embed, not for generate",
        f'gguf-convert: {path}: prompts not in the GGUF, see embed -q: "query"',
    ]


@pytest.mark.parametrize(
    "values,number",
    [
        ({"pooling_mode": "lasttoken"}, 3),
        ({"pooling_mode": ["mean"]}, 1),
        ({"pooling_mode_mean_tokens": True}, 1),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, 2),
    ],
)
def test_every_form_of_a_pooling_becomes_its_number(folder, tmp_path, values, number):
    path = folder("qwen3-embedding")
    (path / "1_Pooling" / "config.json").write_text(json.dumps(values))
    f = gguf.File(str(convert(path, tmp_path / "m.gguf")))
    assert f.metadata["qwen3.pooling_type"] == number


@pytest.mark.parametrize("name,kind", [("llama", "LlamaModel"), ("mistral", "MistralModel"),
                                       ("qwen2", "Qwen2Model"), ("gemma3", "Gemma3TextModel")])  # fmt: skip
def test_classes_without_a_head_are_taken(folder, tmp_path, name, kind):
    path = folder(name)
    change(path / "config.json", architectures=[kind])
    assert tensors(convert(path, tmp_path / "a.gguf")) == tensors(
        convert(FOLDERS / name, tmp_path / "b.gguf")
    )


def test_a_missing_head_of_a_model_that_generates_is_refused(folder):
    path = folder("llama")
    rewrite(path / "model.safetensors", lambda h: h.update({"x": h.pop("lm_head.weight")}))
    assert "lm_head.weight is missing" in refused(65, path)


KIND = "sentence_transformers.models."
MODEL = {"path": "", "type": KIND + "Transformer"}
POOLING = {"path": "1_Pooling", "type": KIND + "Pooling"}


@pytest.mark.parametrize(
    "modules,code,what",
    [
        ([MODEL, POOLING, {"path": "2_Dense", "type": KIND + "Dense"}], 69, "2_Dense: Dense"),
        ([MODEL, POOLING, POOLING], 69, "1_Pooling: Pooling"),
        ([POOLING], 69, "first module"),
        ([], 69, "first module"),
        ([{"path": "0_WordEmbeddings", "type": KIND + "WordEmbeddings"}], 69, "first module"),
        ([{**MODEL, "path": "sub"}], 69, "first module"),
        ([MODEL, {**POOLING, "path": "../x"}], 65, "module ../x"),
        ([MODEL, {**POOLING, "path": "/etc"}], 65, "module /etc"),
        ([MODEL, {**POOLING, "path": ""}], 65, "module"),
        ([MODEL, {**POOLING, "path": "a\0b"}], 65, "module"),
        ([MODEL, {**POOLING, "path": "absent"}], 66, "absent"),
        ([MODEL, 5], 65, "module 1: lacks type or path"),
        ([MODEL, {"type": 7, "path": ""}], 65, "module 1: lacks type or path"),
        ({"a": 1}, 65, "is not a list"),
        ([[[MODEL]]], 65, "module 0"),
    ],
)  # fmt: skip
def test_modules_that_do_not_fit_are_refused_by_name(folder, modules, code, what):
    path = folder("qwen3-embedding")
    (path / "modules.json").write_text(json.dumps(modules))
    assert what in refused(code, path)


@pytest.mark.parametrize(
    "values,code,what",
    [
        ({"pooling_mode": "max"}, 69, "pooling_mode max"),
        ({"pooling_mode": ["mean", "cls"]}, 69, "pooling_mode mean, cls"),
        ({"pooling_mode": 3}, 65, "pooling_mode: is 3"),
        ({"pooling_mode": "\x1b[2J" * 99}, 69, "pooling_mode"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, 69, "cls, mean"),
        ({"pooling_mode_weightedmean_tokens": True}, 69, "weightedmean"),
        ({"pooling_mode_mean_tokens": 1}, 65, "pooling_mode_mean_tokens: is 1"),
        ({}, 69, "pooling_mode"),
        ({"pooling_mode": "mean", "include_prompt": False}, 69, "include_prompt"),
        ({"pooling_mode": "mean", "embedding_dimension": 64}, 65, "embedding_dimension: 64"),
        ({"pooling_mode": "mean", "word_embedding_dimension": [32]}, 65, "embedding_dimension"),
    ],
)
def test_poolings_that_a_gguf_cannot_name_are_refused(folder, values, code, what):
    path = folder("qwen3-embedding")
    (path / "1_Pooling" / "config.json").write_text(json.dumps(values))
    message = refused(code, path)
    assert what in message and "1_Pooling/config.json" in message and len(message) < 400


@pytest.mark.parametrize("prompts", [["x"], 5, {"query": 7}])
def test_prompts_that_are_none_are_refused(folder, prompts):
    path = folder("qwen3-embedding")
    change(path / "config_sentence_transformers.json", prompts=prompts)
    assert "prompts: is not an object of texts" in refused(65, path)


def test_attention_to_later_tokens_is_refused_by_name(folder):
    """EmbeddingGemma, and models whose own code says so."""
    path = folder("gemma3")
    change(
        path / "config.json", architectures=["Gemma3TextModel"], use_bidirectional_attention=True
    )
    assert "use_bidirectional_attention = true" in refused(69, path)
    change(path / "config.json", use_bidirectional_attention=False, is_causal=False)
    assert "is_causal = false" in refused(69, path)


# Granite 4 -------------------------------------------------------------------------------


def test_dense_granite_4_without_rope_says_so(tmp_path):
    for name, rope in (("granite-hybrid", False), ("granite-hybrid-rope", True)):
        f = gguf.File(str(convert(FOLDERS / name, tmp_path / f"{name}.gguf")))
        assert f.metadata["general.architecture"] == "granite"
        assert f.metadata.get("granite.rope.scaling.finetuned", True) is rope
        assert f.metadata["granite.feed_forward_length"] == 40


def test_older_names_of_layers_of_attention_are_known(folder, tmp_path):
    path = folder("granite-hybrid")
    change(path / "config.json", layer_types=..., layers_block_type=["attention"] * 2)
    assert convert(path, tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    "values,code,what",
    [
        ({"num_local_experts": 62}, 69, "num_local_experts 62: a mixture of experts"),
        ({"num_local_experts": ...}, 69, "num_local_experts 8"),
        ({"num_local_experts": "0"}, 65, "num_local_experts"),
        ({"layer_types": ["attention", "mamba"]}, 69, "layer_types: layer 1 is mamba"),
        ({"layer_types": ...}, 69, "layer_types: layer 0 is mamba"),
        ({"layer_types": ["attention"]}, 65, "layer_types: 1 of 2 layers"),
        ({"layer_types": ["attention", {}]}, 69, "layer_types: layer 1"),
        ({"position_embedding_type": "alibi"}, 69, "position_embedding_type alibi"),
        ({"shared_intermediate_size": 41}, 65, "mlp.gate_proj.weight: shape"),
        ({"shared_intermediate_size": 2**40}, 65, "shared_intermediate_size"),
    ],
)
def test_granite_4_that_is_not_dense_is_refused_by_name(folder, values, code, what):
    path = folder("granite-hybrid")
    change(path / "config.json", **values)
    assert what in refused(code, path)


@pytest.mark.parametrize("shape", [[2560], [1, 2560], [64, 20, 2]])
def test_matrices_that_are_no_two_are_refused(folder, shape):
    path = folder("granite-hybrid")
    name = "model.layers.0.shared_mlp.input_linear.weight"
    rewrite(path / "model.safetensors", lambda h: h[name].update(shape=shape))
    assert f"tensor {name}: shape {shape}: not 2 equal parts" in refused(65, path)
