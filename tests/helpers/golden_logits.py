"""Make tests/golden/logits/*.f32 with Hugging Face transformers in f32, or compare with them.

    python3 tests/helpers/golden_logits.py [NAME...]    write the golden files of every case
    python3 tests/helpers/golden_logits.py --check      exit 1 if fresh logits differ from the files
                                                        by more
                                                than TOLERANCE
    python3 tests/helpers/golden_logits.py --real DIR   exit 1 if the trained models in DIR do not
                                                        answer as
                                                is on record there

The models are read back from the GGUF files with the gguf package, and turned into checkpoints by
undoing what llama.cpp's converter does; --real shows that this undoing is right, on files that came
from elsewhere.

Written with the versions in golden-requirements.txt. Other versions of torch, and other processors,
sum in another order: an AVX-512 machine against itself held to SSE4.2 differed by 1.1e-6 of the
largest logit. TOLERANCE leaves room for that, and an engine is allowed ten times as much.
"""

import argparse
import array
import json
import os
import sys
import tempfile

import gguf
import gguf.quants
import golden_cases
import tiny_model
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

TOLERANCE = 1e-5  # of the largest absolute logit of the case
TELLING = 1e-3  # what a mistake in any one setting must change

PRE_NORM = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
SANDWICH = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
BLOCK_NAMES = {
    "llama": PRE_NORM,
    "gemma": PRE_NORM,
    "granite": PRE_NORM,
    "mistral3": PRE_NORM,
    "smollm3": PRE_NORM,
    "qwen2": PRE_NORM,
    "qwen3": PRE_NORM | HEAD_NORMS,
    "phi3": PRE_NORM | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    "olmo2": HEAD_NORMS
    | {
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "gemma2": SANDWICH,
    "gemma3": SANDWICH | HEAD_NORMS,
    "gemma4": SANDWICH
    | HEAD_NORMS
    | {
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "layer_output_scale": "layer_scalar",
    },
}
BLOCK_NAMES["lfm2"] = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "attn_output": "self_attn.out_proj",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
BLOCK_NAMES["qwen35"] = HEAD_NORMS | {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_dt": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
NEIGHBOURS = ("llama", "smollm3", "granite", "mistral3")  # whose attn_q and attn_k are permuted
MATRIX_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read(path):
    """(metadata, tensors): dict key -> value; dict name -> torch f32 [n_out, n_in], dequantised."""
    reader = gguf.GGUFReader(path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {
        t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy())
        for t in reader.tensors
    }
    return metadata, tensors


def halves(rows, n_head):
    """Undo the permutation of llama's attn_q and attn_k: from neighbouring pairs to the
    checkpoint's halves.
    """
    n_row, n_in = rows.shape
    return rows.reshape(n_head, n_row // n_head // 2, 2, n_in).swapaxes(1, 2).reshape(n_row, n_in)


def checkpoint(metadata, tensors):
    """Dict: parameter name in transformers -> tensor."""
    arch, out = metadata["general.architecture"], {}
    outside = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "token_embd_norm": "model.embedding_norm",
        "output": "lm_head",
        "per_layer_token_embd": "model.embed_tokens_per_layer",
        "per_layer_model_proj": "model.per_layer_model_projection",
        "per_layer_proj_norm": "model.per_layer_projection_norm",
    }
    shares = metadata[f"{arch}.block_count"] - metadata.get(f"{arch}.attention.shared_kv_layers", 0)
    n_head = metadata[f"{arch}.attention.head_count"]
    heads = {"attn_q": n_head, "attn_k": metadata.get(f"{arch}.attention.head_count_kv", n_head)}
    for name, t in tensors.items():
        *block, kind, suffix = (name + ".weight" * name.endswith("ssm_a")).split(".")
        if block:
            block, kind = block[:2], ".".join([*block[2:], kind])
        if kind.startswith("rope_"):
            continue
        if arch in NEIGHBOURS and kind in heads:
            t = halves(t, heads[kind])
        if block and int(block[1]) >= shares and kind in ("attn_k", "attn_v", "attn_k_norm"):
            continue  # unused
        if arch.startswith("gemma") and arch != "gemma4" and kind.endswith("norm"):
            t = t - 1  # exact for weights of 0.5 to 2
        if block and kind.startswith("nextn."):
            continue
        if arch == "qwen35":
            t = of_delta_net(kind, t, metadata)
        if kind == "shortconv.conv":
            t = t.unsqueeze(1)
        if block:
            name = f"model.layers.{block[1]}.{(MATRIX_NAMES | BLOCK_NAMES[arch])[kind]}"
            whole = name.endswith(("layer_scalar", "A_log", "dt_bias"))
            out[name if whole else f"{name}.{suffix}"] = t
        else:
            out[f"{outside[kind]}.weight"] = t
    return out


def of_delta_net(kind, t, metadata):
    """A tensor of a qwen35 as in the checkpoint: heads of values that share a key are neighbours
    there, and gains lack 1.
    """
    if kind.endswith("norm") and kind != "ssm_norm":
        return t - 1
    names = "ssm.group_count", "ssm.time_step_rank", "ssm.state_size"
    n_key, n_value, dim = (metadata[f"qwen35.{name}"] for name in names)

    def neighbours(x):  # rows
        shape = n_value // n_key, n_key, x.shape[0] // n_value, *x.shape[1:]
        return x.reshape(shape).swapaxes(0, 1).reshape(x.shape)

    if kind in ("attn_qkv", "ssm_conv1d"):
        at = 2 * n_key * dim
        t = torch.cat([t[:at], neighbours(t[at:])])
        return t.unsqueeze(1) if kind == "ssm_conv1d" else t
    if kind == "ssm_out":
        return neighbours(t.T).T
    if kind in ("attn_gate", "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt"):
        t = neighbours(t)
    return torch.log(-t) if kind == "ssm_a" else t


def rope_settings(get, tensors, scaling):
    """transformers' rope_parameters. `scaling`: rope_scaling as tiny_model has it, since a file
    holds only llama3's results.
    """
    kind = get(
        "rope.scaling.type", "longrope" if "rope_factors_long.weight" in tensors else "default"
    )
    rope = {"rope_type": kind, "rope_theta": get("rope.freq_base", 10000.0)}
    if kind in ("linear", "yarn"):
        rope["factor"] = get("rope.scaling.factor")
    if kind in ("yarn", "longrope"):
        rope["original_max_position_embeddings"] = get("rope.scaling.original_context_length")
    names = {
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
        "yarn_attn_factor": "attention_factor",
        "attn_factor": "attention_factor",
    }
    rope.update(
        (name, get("rope.scaling." + key))
        for key, name in names.items()
        if get("rope.scaling." + key) is not None
    )
    if kind == "longrope":
        rope.update(
            (f"{name}_factor", tensors[f"rope_factors_{name}.weight"].tolist())
            for name in ("long", "short")
        )
    if scaling and scaling["type"] == "llama3":
        rope.update(
            scaling,
            rope_type="llama3",
            original_max_position_embeddings=scaling["original_context_length"],
        )
        del rope["type"], rope["original_context_length"]
    return rope


def settings(metadata, tensors, scaling):
    """A transformers class and its configuration."""
    arch = metadata["general.architecture"]

    def get(key, default=None):
        return metadata.get(f"{arch}.{key}", default)

    n_head, window = get("attention.head_count"), get("attention.sliding_window") or None
    head_dim = get("attention.key_length", get("embedding_length") // n_head)
    rope = rope_settings(get, tensors, scaling)
    common = dict(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=get("embedding_length"),
        num_hidden_layers=get("block_count"),
        intermediate_size=get("feed_forward_length"),
        num_attention_heads=n_head,
        num_key_value_heads=get("attention.head_count_kv", n_head),
        head_dim=head_dim,
        pad_token_id=None,
        eos_token_id=None,
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        attn_implementation="eager",
        rope_parameters=rope,
    )
    if arch == "llama":
        if window:
            return MistralForCausalLM, MistralConfig(**common, sliding_window=window)
        return LlamaForCausalLM, LlamaConfig(**common)
    if arch == "phi3":
        rope["partial_rotary_factor"] = get("rope.dimension_count", head_dim) / head_dim
        return Phi3ForCausalLM, Phi3Config(
            **common,
            sliding_window=window,
            original_max_position_embeddings=get(
                "rope.scaling.original_context_length", get("context_length")
            ),
        )
    if arch == "granite":
        numbers = dict(
            logits_scaling=get("logit_scale"),
            residual_multiplier=get("residual_scale", 1.0),
            embedding_multiplier=get("embedding_scale", 1.0),
            attention_multiplier=get("attention.scale", head_dim**-0.5),
        )
        if get("rope.scaling.finetuned", True):
            return GraniteForCausalLM, GraniteConfig(**common, **numbers)
        return GraniteMoeHybridForCausalLM, GraniteMoeHybridConfig(
            **common,
            **numbers,
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=common["intermediate_size"],
            position_embedding_type=None,
            mamba_n_heads=1,  # of no layer
            layer_types=["attention"] * get("block_count"),
        )
    if arch == "qwen35":
        rope["partial_rotary_factor"] = get("rope.dimension_count") / head_dim
        rope["mrope_section"] = get("rope.dimension_sections")[:3]
        n, period = get("block_count") - get("nextn_predict_layers", 0), 4
        period = get("full_attention_interval", period)
        return Qwen3_5ForCausalLM, Qwen3_5TextConfig(
            **common | {"num_hidden_layers": n},
            linear_conv_kernel_dim=get("ssm.conv_kernel"),
            linear_key_head_dim=get("ssm.state_size"),
            linear_value_head_dim=get("ssm.state_size"),
            linear_num_key_heads=get("ssm.group_count"),
            linear_num_value_heads=get("ssm.time_step_rank"),
            layer_types=[
                "linear_attention" if (i + 1) % period else "full_attention" for i in range(n)
            ],
        )
    if arch == "lfm2":
        heads = get("attention.head_count_kv")
        del common["head_dim"]
        common["norm_eps"] = common.pop("rms_norm_eps")
        return Lfm2ForCausalLM, Lfm2Config(
            **common | {"num_key_value_heads": max(heads)},
            block_auto_adjust_ff_dim=False,
            conv_L_cache=get("shortconv.l_cache"),
            layer_types=["full_attention" if n else "conv" for n in heads],
        )
    if arch == "gemma4":
        return Gemma4ForCausalLM, gemma4_config(get, tensors, common)
    if arch == "mistral3":
        if rope["rope_type"] == "yarn":
            multiplier = get("rope.scaling.yarn_log_multiplier", 0.0)
            rope.update(mscale=1.0 if multiplier else 0.0, mscale_all_dim=multiplier)
        else:
            rope["original_max_position_embeddings"] = get("context_length")
        rope["llama_4_scaling_beta"] = get("attention.temperature_scale", 0.0)
        return Ministral3ForCausalLM, Ministral3Config(**common)
    if arch in ("olmo2", "qwen2", "qwen3", "gemma", "smollm3"):
        kind, config = {
            "olmo2": (Olmo2ForCausalLM, Olmo2Config),
            "qwen2": (Qwen2ForCausalLM, Qwen2Config),
            "qwen3": (Qwen3ForCausalLM, Qwen3Config),
            "gemma": (GemmaForCausalLM, GemmaConfig),
            "smollm3": (SmolLM3ForCausalLM, SmolLM3Config),
        }[arch]
        return kind, config(**common)
    caps = {
        "final_logit_softcapping": get(
            "final_logit_softcapping", 30.0 if arch == "gemma2" else None
        )
    }
    if arch == "gemma2":
        return Gemma2ForCausalLM, Gemma2Config(
            **common,
            query_pre_attn_scalar=head_dim,
            sliding_window=window or 4096,
            attn_logit_softcapping=get("attn_logit_softcapping", 50.0),
            **caps,
        )
    n = get("attention.sliding_window_pattern", 6)
    local = {"rope_type": "default", "rope_theta": get("rope.freq_base_swa", 10000.0)}
    return Gemma3ForCausalLM, Gemma3TextConfig(
        **common | {"rope_parameters": {"full_attention": rope, "sliding_attention": local}},
        query_pre_attn_scalar=head_dim,
        layer_types=[
            "full_attention" if i % n == n - 1 else "sliding_attention"
            for i in range(get("block_count"))
        ],
        sliding_window=window,
        **caps,
    )


def gemma4_config(get, tensors, common):
    """A Gemma4TextConfig: sizes of the file are those of global blocks."""
    local, heads = get("attention.sliding_window_pattern"), get("attention.head_count_kv")
    heads = heads if isinstance(heads, list) else [heads] * len(local)
    n_ff, names = get("feed_forward_length"), ("full_attention", "sliding_attention")
    turning = float((tensors["rope_freqs.weight"] == 1).float().mean())
    per_layer = get("embedding_length_per_layer_input")
    return Gemma4TextConfig(
        **common
        | dict(
            head_dim=get("attention.key_length_swa"),
            intermediate_size=n_ff[0] if isinstance(n_ff, list) else n_ff,
            num_key_value_heads=next(n for n, x in zip(heads, local) if x),
            rope_parameters={
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": get("rope.freq_base_swa", 10000.0),
                },
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": turning,
                    "rope_theta": get("rope.freq_base"),
                },
            },
        ),
        global_head_dim=get("attention.key_length"),
        num_global_key_value_heads=next((n for n, x in zip(heads, local) if not x), None),
        attention_k_eq_v=any(
            not x and f"blk.{i}.attn_v.weight" not in tensors
            for i, x in enumerate(local[: len(local) - get("attention.shared_kv_layers")])
        ),
        sliding_window=get("attention.sliding_window"),
        layer_types=[names[x] for x in local],
        final_logit_softcapping=get("final_logit_softcapping"),
        num_kv_shared_layers=get("attention.shared_kv_layers"),
        use_double_wide_mlp=isinstance(n_ff, list),
        hidden_size_per_layer_input=per_layer,
        vocab_size_per_layer_input=common["vocab_size"],
    )


def model(metadata, tensors, scaling=None):
    """A transformers model in f32 with every parameter taken from the file."""
    parameters = checkpoint(metadata, tensors)
    kind, config = settings(metadata, tensors, scaling)
    if kind is GraniteMoeHybridForCausalLM:  # names, and gate and up in one
        for i in range(config.num_hidden_layers):
            old, new = f"model.layers.{i}.mlp.", f"model.layers.{i}.shared_mlp."
            gate, up = (parameters.pop(f"{old}{x}_proj.weight") for x in ("gate", "up"))
            parameters[f"{new}input_linear.weight"] = torch.cat([gate, up])
            parameters[f"{new}output_linear.weight"] = parameters.pop(f"{old}down_proj.weight")
    config.tie_word_embeddings = "lm_head.weight" not in parameters
    net = kind(config).to(torch.float32).eval()
    own = dict(net.named_parameters())
    own |= {name: b for name, b in net.named_buffers() if name.endswith("layer_scalar")}
    if own.keys() != parameters.keys():
        raise SystemExit(
            f"golden_logits.py: parameters differ: {sorted(own.keys() ^ parameters.keys())}"
        )
    for name, parameter in own.items():
        parameter.data.copy_(parameters[name])  # a wrong shape raises
    return net


@torch.no_grad()
def logits(net, tokens, positions):
    """f32 [n_positions, n_vocab]."""
    return net(torch.tensor([tokens])).logits[0, positions].float()


def difference(a, b):
    return float((a - b).abs().max() / b.abs().max())


def variants(metadata, scaling):
    """What an engine might get wrong: (what, metadata, scaling), each with one setting changed."""
    arch = metadata["general.architecture"]
    changes = {
        "rope.freq_base": 1.5,
        "rope.scaling.factor": 0.5,
        "attention.layer_norm_rms_epsilon": 1000.0,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 1.5,
        "rope.scaling.yarn_beta_fast": 0.3,
        "rope.scaling.yarn_attn_factor": 1.3,
        "rope.scaling.attn_factor": 1.3,
        "rope.scaling.yarn_log_multiplier": 2.0,
        "attention.temperature_scale": 1.5,
        "logit_scale": 1.1,
        "residual_scale": 1.1,
        "embedding_scale": 1.1,
        "attention.scale": 1.1,
    }
    if not metadata.get(f"{arch}.rope.scaling.finetuned", True):
        del changes["rope.freq_base"]
        yield "rope", {**metadata, f"{arch}.rope.scaling.finetuned": True}, scaling
    if arch == "gemma4":
        key = "gemma4.rope.freq_base_swa"
        yield key, {**metadata, key: 15000.0}, scaling
    for key, factor in changes.items():
        if f"{arch}.{key}" in metadata:
            yield key, {**metadata, f"{arch}.{key}": metadata[f"{arch}.{key}"] * factor}, scaling
    window = metadata.get(f"{arch}.attention.sliding_window", 0)
    if 0 < window < metadata[f"{arch}.context_length"]:
        key = f"{arch}.attention.sliding_window"
        yield "attention.sliding_window", {**metadata, key: metadata[key] + 1}, scaling
    key = f"{arch}.rope.scaling.original_context_length"
    if key in metadata and scaling:
        # of longrope the other set of factors: what fits becomes too long, what is too long fits
        longer = (
            scaling["type"] == "longrope" and metadata[key] < metadata[f"{arch}.context_length"]
        )
        yield (
            "original context",
            {**metadata, key: metadata[f"{arch}.context_length"] if longer else metadata[key] // 8},
            scaling,
        )
    if scaling and scaling["type"] == "llama3":
        yield "no rope factors", metadata, None
        yield "another rope factor", metadata, {**scaling, "factor": scaling["factor"] / 2}
        yield (
            "another blend",
            metadata,
            {**scaling, "low_freq_factor": scaling["low_freq_factor"] * 2},
        )
    if arch == "gemma3":
        for key, value in {
            "attention.sliding_window_pattern": 5,
            "rope.freq_base_swa": 15000.0,
        }.items():
            yield key, {**metadata, f"gemma3.{key}": value}, scaling


def fresh(name, case, directory):
    """f32 [n_positions, n_vocab], after checking that the case can tell its settings from
    others.
    """
    path = os.path.join(directory, name + ".gguf")
    tiny_model.write_model(path, **case["config"])
    metadata, tensors = read(path)
    tokens, scaling = golden_cases.prompt(case), case["config"].get("rope_scaling")
    right = logits(model(metadata, tensors, scaling), tokens, case["positions"])
    for what, other_metadata, other_scaling in variants(metadata, scaling):
        change = difference(
            logits(model(other_metadata, tensors, other_scaling), tokens, case["positions"]), right
        )
        if change < TELLING:
            raise SystemExit(
                f"golden_logits.py: {name}: a wrong {what} changes the logits by {change:.1e} only"
            )
    return right


def golden(name, case):
    """f32 [n_positions, n_vocab], as in the file."""
    return torch.tensor([row.tolist() for row in golden_cases.expected(name, case)])


def write_all(names):
    with tempfile.TemporaryDirectory() as directory:
        for name, case in golden_cases.cases().items():
            if names and name not in names:
                continue
            rows = fresh(name, case, directory)
            try:
                change = f"changed by {difference(rows, golden(name, case)):.1e}"
            except (OSError, ValueError):
                change = "new"
            out = array.array("f", rows.flatten().tolist())
            if sys.byteorder == "big":
                out.byteswap()
            with open(os.path.join(golden_cases.DIRECTORY, name + ".f32"), "wb") as file:
                out.tofile(file)
            top = rows.topk(2).values
            print(
                f"{name}: deviation {float(rows.std()):.2f}, largest {float(rows.abs().max()):.2f},"
                f" least lead of the first {float((top[:, 0] - top[:, 1]).min()):.3f}, {change}"
            )


def check_all():
    changes = []
    with tempfile.TemporaryDirectory() as directory:
        for name, case in golden_cases.cases().items():
            changes.append(difference(fresh(name, case, directory), golden(name, case)))
            print(f"{name}: {changes[-1]:.1e}")
    print(f"worst: {max(changes):.1e} of the largest logit, {TOLERANCE:.0e} is allowed")
    return all(change <= TOLERANCE for change in changes)  # not where one is not a number


@torch.no_grad()
def greedy(net, id, n):
    """The `n` tokens that follow `id`."""
    out, cache = [], None
    for _ in range(n):
        step = net(torch.tensor([[id]]), past_key_values=cache, use_cache=True)
        cache, id = step.past_key_values, int(step.logits[0, -1].argmax())
        out.append(id)
    return out


def check_real(directory):
    """Trained models: stories260K's published greedy text, and the logits on record for
    spam-proto.
    """
    found, good = 0, True
    record = os.path.join(directory, "stories260K.greedy.ids")
    if os.path.exists(record):
        with open(record) as file:
            want = [int(word) for word in file.read().split()]
        got = greedy(model(*read(os.path.join(directory, "stories260K.gguf"))), 1, len(want))
        same = sum(a == b for a, b in zip(got, want))
        print(f"stories260K: {same} of {len(want)} greedy ids")
        found, good = found + 1, good and got == want
    record = os.path.join(directory, "spam-proto.expected.jsonl")
    if os.path.exists(record):
        net, worst, n = model(*read(os.path.join(directory, "spam-proto-f32.gguf"))), 0.0, 0
        with open(record) as file:
            for mail in map(json.loads, file):
                row = logits(net, mail["ids"], [len(mail["ids"]) - 1])[0]
                for answer in ("yes", "no"):
                    worst = max(
                        worst, abs(float(row[mail[answer + "_id"]]) - mail[answer + "_logit"])
                    )
                n += 1
        print(f"spam-proto: {n} mails, yes and no within {worst:.1e} of the record")
        found, good = found + 1, good and worst < 1e-3
    if not found:
        raise SystemExit(
            f"golden_logits.py: {directory}: no stories260K.greedy.ids and no"
            " spam-proto.expected.jsonl"
        )
    return good


def main():
    parser = argparse.ArgumentParser(description="Make or compare the golden logits.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--real", metavar="DIR", help="check trained models instead")
    parser.add_argument("names", nargs="*", help="cases to write (default: all)")
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.real:
        return 0 if check_real(a.real) else 1
    if a.check:
        return 0 if check_all() else 1
    write_all(a.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
