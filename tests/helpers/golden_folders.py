"""Make tests/golden/folders: small models as Hugging Face keeps them, saved by transformers itself,
and what it computes with them.

    python3 tests/helpers/golden_folders.py              write every folder again
    python3 tests/helpers/golden_folders.py --check      exit 1 where transformers computes other
                                                         logits or
                                                 tokens than are on record

golden/folders/NAME/
config.json, model*.safetensors (random, seeded), tokenizer.json, tokenizer_config.json, and
    prompt.ids          tokens of a prompt, one a line
    logits.f32          f32 little-endian [len(POSITIONS), n_vocab]: after those of its tokens; of a
                        model without an output head the hidden states, [len(POSITIONS), n_embd]
    vectors.json        of a model without an output head: [text, vector of length 1] for each text,
                        from the hidden state of its last token
    texts.json          texts and their tokens as the `tokenizers` package has them, without BOS

Written with the versions in golden-requirements.txt. Configurations are small, and none of their
numbers is another's.
"""

import argparse
import json
import os
import random
import shutil
import struct
import sys

import tiny_vocab

DIRECTORY = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "folders"
)
TOLERANCE = 1e-5
N_IDS, N_VOCAB = 40, 400
POSITIONS = (0, 9, 19, 29, 39)
TEXTS = [
    "Once upon a time",
    " two  blanks",
    "It's 2026, isn't it? WE'LL see\n\n\n  x = 1234567;\t",
    "naïve café 漢字 \U0001f600",
    "<s> </s> <|end|>",
]
SMALL = dict(
    vocab_size=N_VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=96,
    rms_norm_eps=1e-5,
)
GEMMA = dict(SMALL, head_dim=16, query_pre_attn_scalar=16, num_hidden_layers=3, rms_norm_eps=1e-6)
GEMMA4 = dict(
    SMALL,
    head_dim=8,
    global_head_dim=20,
    num_hidden_layers=6,
    sliding_window=10,
    final_logit_softcapping=30.0,
    rms_norm_eps=1e-6,
    rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.4,
        },
    },
)
EYES = dict(  # of a vision part, which is left out
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=4,
    patch_size=2,
)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 48,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [1.5, 2.5, 4.0, 8.0],
    "original_max_position_embeddings": 24,
}
LONG_PART = {  # 12 of 16 elements of a head turn
    **LONG,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.0, 1.1, 1.2, 1.4, 1.6],
    "long_factor": [1.5, 2.0, 2.5, 4.0, 6.0, 8.0],
}
SHARP = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 12.0,
    "original_max_position_embeddings": 8,
    "beta_fast": 1.0,
    "beta_slow": 0.05,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
CASES = {  # name: (class, settings, dtype, tokenizer, more)
    "llama": ("Llama", SMALL, "float32", "spm", {}),
    "llama-3": (
        "Llama",
        dict(SMALL, rope_parameters=LLAMA3, tie_word_embeddings=True, head_dim=16),
        "bfloat16",
        "llama3",
        {},
    ),
    "smollm": (
        "Llama",
        dict(SMALL, tie_word_embeddings=True, num_key_value_heads=4),
        "bfloat16",
        "smollm",
        {},
    ),
    "mistral": (
        "Mistral",
        dict(SMALL, head_dim=16, sliding_window=16, num_key_value_heads=1),
        "bfloat16",
        "tekken",
        {"shard": "30KB"},
    ),
    "gemma": (
        "Gemma",
        {k: v for k, v in GEMMA.items() if k != "query_pre_attn_scalar"},
        "bfloat16",
        "gemma",
        {},
    ),
    "gemma2": ("Gemma2", dict(GEMMA, sliding_window=16), "bfloat16", "gemma", {}),
    "gemma3": (
        "Gemma3",
        dict(
            GEMMA,
            sliding_window=16,
            num_hidden_layers=4,
            layer_types=["sliding_attention", "full_attention"] * 2,
        ),
        "bfloat16",
        "gemma",
        {},
    ),
    "qwen2": ("Qwen2", SMALL, "float16", "qwen2", {}),
    "qwen3": (
        "Qwen3",
        dict(SMALL, head_dim=16, tie_word_embeddings=True),
        "bfloat16",
        "qwen2",
        {"shard": "30KB"},
    ),
    "phi3": (
        "Phi3",
        dict(SMALL, pad_token_id=0, rope_parameters=LONG, original_max_position_embeddings=24),
        "bfloat16",
        "phi3",
        {},
    ),
    "deepseek": ("Llama", SMALL, "bfloat16", "deepseek", {}),
    "olmo2": ("Olmo2", dict(SMALL, pad_token_id=0), "bfloat16", "llama3", {}),
    "smollm3": (
        "SmolLM3",
        dict(SMALL, num_hidden_layers=5, tie_word_embeddings=True),
        "bfloat16",
        "cl100k",
        {},
    ),
    "granite": (
        "Granite",
        dict(
            SMALL,
            logits_scaling=0.5,
            residual_multiplier=0.6,
            embedding_multiplier=3.0,
            attention_multiplier=0.3,
            tie_word_embeddings=True,
        ),
        "bfloat16",
        "smollm",
        {},
    ),
    "mistral3": (
        "Ministral3",
        dict(SMALL, head_dim=16, rope_parameters=SHARP),
        "bfloat16",
        "tekken",
        {},
    ),
    "lfm2": (
        "Lfm2",
        dict(
            {k: v for k, v in SMALL.items() if k != "rms_norm_eps"},
            norm_eps=1e-5,
            num_hidden_layers=4,
            intermediate_size=72,
            block_multiple_of=20,
            layer_types=["conv", "full_attention", "conv", "conv"],
        ),
        "bfloat16",
        "llama3",
        {},
    ),
    "qwen35": (
        "Qwen3_5",
        dict(
            SMALL,
            num_hidden_layers=5,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            linear_key_head_dim=12,
            linear_value_head_dim=12,
            layer_types=["full_attention" if i % 3 == 2 else "linear_attention" for i in range(5)],
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        ),
        "bfloat16",
        "qwen35",
        {},
    ),
    "phi4-mini": (
        "Phi3",
        dict(
            SMALL,
            hidden_size=64,
            pad_token_id=0,
            rope_parameters=LONG_PART,
            original_max_position_embeddings=24,
            tie_word_embeddings=True,
            sliding_window=96,
        ),
        "bfloat16",
        "o200k",
        {},
    ),
    "gemma4": (
        "Gemma4",
        dict(
            GEMMA4,
            num_key_value_heads=1,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=2,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=12,
            vocab_size_per_layer_input=N_VOCAB,
        ),
        "bfloat16",
        "gemma4",
        {},
    ),
    "gemma4-31b": (  # values of global layers are their keys; no rows for each layer
        "Gemma4",
        dict(
            GEMMA4,
            num_hidden_layers=7,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            hidden_size_per_layer_input=0,
            use_bidirectional_attention="vision",
        ),
        "bfloat16",
        "gemma4",
        {"published": True},
    ),
    "qwen3-embedding": (  # saved without an output head, as sentence-transformers does
        "Qwen3",
        dict(SMALL, head_dim=16),
        "bfloat16",
        "embedding",
        {"bare": True},
    ),
    "granite-hybrid": (
        "GraniteMoeHybrid",
        dict(
            SMALL,
            shared_intermediate_size=40,
            num_local_experts=0,
            num_experts_per_tok=0,
            mamba_n_heads=8,
            mamba_d_head=8,
            layer_types=["full_attention"] * 2,
            logits_scaling=0.5,
            residual_multiplier=0.6,
            embedding_multiplier=3.0,
            attention_multiplier=0.3,
        ),
        "bfloat16",
        "smollm",
        {},
    ),
    "granite-hybrid-rope": (
        "GraniteMoeHybrid",
        dict(
            SMALL,
            shared_intermediate_size=40,
            num_local_experts=0,
            num_experts_per_tok=0,
            mamba_n_heads=8,
            mamba_d_head=8,
            layer_types=["full_attention"] * 2,
            position_embedding_type="rope",
            tie_word_embeddings=True,
        ),
        "bfloat16",
        "smollm",
        {},
    ),
    "gemma4-eyes": (
        "Gemma4",
        dict(
            GEMMA4,
            vocab_size_per_layer_input=N_VOCAB,
            hidden_size_per_layer_input=20,
            pad_token_id=0,
        ),
        "bfloat16",
        "gemma4",
        {
            "parts": {
                "vision_config": dict(EYES, pooling_kernel_size=2, position_embedding_size=8),
                "audio_config": dict(
                    hidden_size=8,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    subsampling_conv_channels=[4, 2],
                    output_proj_dims=8,
                ),
            }
        },
    ),
    "mistral3-eyes": (
        "Mistral3",
        dict(SMALL, head_dim=16, rope_parameters=SHARP, model_type="ministral3"),
        "bfloat16",
        "tekken",
        {"parts": {"vision_config": dict(EYES, model_type="pixtral", image_size=8)}},
    ),
    "qwen35-eyes": (
        "Qwen3_5",
        dict(
            SMALL,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            layer_types=["linear_attention", "full_attention"],
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        ),
        "bfloat16",
        "qwen35",
        {
            "parts": {
                "vision_config": dict(
                    depth=1,
                    hidden_size=8,
                    intermediate_size=8,
                    num_heads=2,
                    out_hidden_size=32,
                    patch_size=2,
                    num_position_embeddings=16,
                )
            }
        },
    ),
}


def class_of(case):
    name, more = case[0], case[4]
    kinds = {"bare": "Model", "parts": "ForConditionalGeneration"}
    return name + next((kind for key, kind in kinds.items() if key in more), "ForCausalLM")


def model(case, seed):
    """A transformers model in f32 whose weights are exact in the case's dtype, with logits that
    differ from one id to the next.
    """
    import torch
    import transformers

    name, settings, dtype, _, more = case
    infix = "Text" if name in ("Gemma3", "Gemma4", "Qwen3_5") and "parts" not in more else ""
    settings = {"pad_token_id": None, **settings}
    if "parts" in more:
        tied = settings.get("tie_word_embeddings", name == "Gemma4")
        settings = {"text_config": settings, "tie_word_embeddings": tied, **more["parts"]}
    config = getattr(transformers, f"{name}{infix}Config")(**settings, attn_implementation="eager")
    torch.manual_seed(seed)
    net = getattr(transformers, class_of(case))(config).to(torch.float32).eval()
    for key, p in net.named_parameters():
        p.data = torch.randn_like(p) * (0.1 if "norm" in key or key.endswith("bias") else 0.25)
        lacks_one = name.startswith(("Gemma", "Qwen3_5")) and "linear_attn" not in key
        lacks_one = lacks_one and name != "Gemma4"
        if "norm" in key and not lacks_one:
            p.data += 1
        if name == "Gemma4" and "q_norm" in key:  # scores have no scale of their own
            p.data *= 0.3
        p.data = p.data.to(getattr(torch, dtype)).to(torch.float32)
    for key, p in net.named_buffers():
        if key.endswith("layer_scalar"):
            p.data = (1 + 0.2 * torch.randn_like(p)).to(getattr(torch, dtype)).to(torch.float32)
    net.tie_weights()
    return net


def logits(net, tokens):
    import torch

    with torch.no_grad():
        out = net(torch.tensor([tokens]))
        rows = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.logits
        return rows[0, list(POSITIONS)].float()


def prompt(seed):
    draw = random.Random(seed).random
    return [1] + [3 + int(draw() * (N_VOCAB - 3)) for _ in range(N_IDS - 1)]


def spm_merges(pieces, scores, types):
    """Every pair of pieces that makes a third, in the order in which SentencePiece would join
    them.
    """
    tokens = {p: i for i, p in enumerate(pieces)}
    made = sorted(
        (i for i, t in enumerate(types) if t == 1 and len(pieces[i]) > 1), key=lambda i: -scores[i]
    )
    return [
        (p[:at], p[at:])
        for p in (pieces[i] for i in made)
        for at in range(1, len(p))
        if p[:at] in tokens and p[at:] in tokens
    ]


def spm(kind):
    gemma = kind in ("gemma", "gemma4")
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    pieces, scores, types = tiny_vocab.vocabulary("gemma3" if gemma else "llama", N_VOCAB)
    merges = spm_merges(pieces, scores, types)
    if kind == "gemma4":  # one way to make each token, which no scores mean
        merges = list({a + b: (a, b) for a, b in merges}.values())
    t = Tokenizer(
        models.BPE(
            {p: i for i, p in enumerate(pieces)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    replace = normalizers.Replace(" ", "\u2581")
    t.normalizer = (
        replace if gemma else normalizers.Sequence([normalizers.Prepend("\u2581"), replace])
    )
    if gemma:
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    t.add_special_tokens(
        [
            AddedToken(p, normalized=False, rstrip=kind == "phi3" and p == "</s>")
            for p, type in zip(pieces, types)
            if type in (2, 3)
        ]
    )
    bos = "<bos>" if gemma else "<s>"
    t.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos}:1 $B:1",
        special_tokens=[(bos, t.token_to_id(bos))],
    )
    return t, {"bos_token": bos, "eos_token": "<eos>" if gemma else "</s>", "unk_token": "<unk>"}


def byte_level(kind):
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    sys.path.insert(0, os.path.join(os.path.dirname(DIRECTORY), "..", "..", "lib"))
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated", False)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    pattern = json.load(
        open(os.path.join(os.path.dirname(DIRECTORY), "patterns.json"), encoding="utf-8")
    )
    steps = {
        "embedding": [split(pattern["qwen2"]), last],
        "llama3": [split(pattern["llama3"]), last],
        "qwen2": [split(pattern["qwen2"]), last],
        "qwen35": [split(pattern["qwen35"]), last],
        "cl100k": [split(pattern["llama3"]), last],
        "tekken": [split(pattern["tekken"]), last],
        "o200k": [pre_tokenizers.Split(Regex(pattern["o200k"]), "removed", True), last],
        "smollm": [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "deepseek": [*map(split, pattern["deepseek"]), digits, last],
    }[kind]
    t = Tokenizer(models.BPE(ignore_merges=kind in ("llama3", "tekken")))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    if kind in ("qwen2", "qwen35", "embedding"):
        t.normalizer = normalizers.NFC()
    control = ["<|begin|>", "<|end|>", "<|turn|>"]
    t.train_from_iterator(
        [tiny_vocab.TEXT],
        trainers.BpeTrainer(
            vocab_size=N_VOCAB - 8,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    t.add_special_tokens(control)
    if kind in ("llama3", "tekken"):
        bos = "<|begin|>"
        t.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{bos} $A",
                    pair=f"{bos} $A {bos}:1 $B:1",
                    special_tokens=[(bos, t.token_to_id(bos))],
                ),
            ]
        )
    if kind == "embedding":  # texts end with another token than turns
        t.post_processor = processors.TemplateProcessing(
            single="$A <|end|>",
            pair="$A $B:1 <|end|>",
            special_tokens=[("<|end|>", t.token_to_id("<|end|>"))],
        )
    t.add_tokens(["<think>"])
    return t, {
        "bos_token": "<|begin|>",
        "eos_token": "<|turn|>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


def tokenizer(kind):
    """phi3: as in Phi-3, `</s>` takes the white space behind it along."""
    return spm(kind) if kind in ("spm", "phi3", "gemma", "gemma4") else byte_level(kind)


def write_modules(folder, n_embd):
    """The files that sentence-transformers adds: their names and keys are its version 5.1's."""
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(
            (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
        )
    ]
    flags = "cls_token", "mean_tokens", "max_tokens", "lasttoken"
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {
            "word_embedding_dimension": n_embd,
            **{f"pooling_mode_{flag}": flag == "lasttoken" for flag in flags},
            "include_prompt": True,
        },
        "config_sentence_transformers.json": {
            "prompts": {"query": "Instruct: find it\nQuery:", "document": ""},
            "similarity_fn_name": "cosine",
        },
    }
    os.mkdir(os.path.join(folder, "1_Pooling"))
    for name, value in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1)


def vectors(net, t):
    """[text, vector of length 1] of texts, from a model in f32 without an output head."""
    import torch

    out = []
    for text in TEXTS[:4]:
        with torch.no_grad():
            x = net(torch.tensor([t.encode(text).ids])).last_hidden_state[0, -1]
        out.append([text, (x / x.norm()).tolist()])
    return out


def as_published(path):
    """Give a config.json of Gemma 4 the keys of published folders: transformers reads both."""
    with open(path, encoding="utf-8") as f:
        values = json.load(f)
    own = next(iter(values.pop("per_layer_config").values()))
    values["global_head_dim"] = own["head_dim"]
    values["num_global_key_value_heads"] = own["num_key_value_heads"]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(values, f, indent=2, sort_keys=True)


def write(name, seed):
    case, folder = CASES[name], os.path.join(DIRECTORY, name)
    shutil.rmtree(folder, ignore_errors=True)
    net, tokens = model(case, seed), prompt(seed)
    rows = logits(net, tokens)
    import torch

    t, settings = tokenizer(case[3])
    for short in ("bos", "eos"):
        for config in filter(None, (net.config, getattr(net, "generation_config", None))):
            setattr(config, f"{short}_token_id", t.token_to_id(settings[f"{short}_token"]))
    known = vectors(net, t) if case[4].get("bare") else None
    net.to(getattr(torch, case[2])).save_pretrained(
        folder, max_shard_size=case[4].get("shard", "1GB")
    )
    if case[4].get("published"):
        as_published(os.path.join(folder, "config.json"))
    t.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=1, sort_keys=True)
    if case[4].get("bare"):
        write_modules(folder, net.config.hidden_size)
        with open(os.path.join(folder, "vectors.json"), "w", encoding="utf-8") as f:
            json.dump(known, f)
    with open(os.path.join(folder, "texts.json"), "w", encoding="utf-8") as f:
        json.dump([[text, t.encode(text, add_special_tokens=False).ids] for text in TEXTS], f)
    with open(os.path.join(folder, "prompt.ids"), "w") as f:
        f.writelines(f"{i}\n" for i in tokens)
    with open(os.path.join(folder, "logits.f32"), "wb") as f:
        f.write(struct.pack(f"<{rows.numel()}f", *rows.flatten().tolist()))
    for entry in os.listdir(folder):
        path = os.path.join(folder, entry)
        os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)
    print(f"{name}: deviation {float(rows.std()):.2f}")


def check(name):
    """By how much transformers, given the folder, computes other logits than are on record there,
    of the largest; tokens must be the same.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer

    folder = os.path.join(DIRECTORY, name)
    net = (
        getattr(transformers, class_of(CASES[name]))
        .from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        .eval()
    )
    with open(os.path.join(folder, "prompt.ids")) as f:
        rows = logits(net, list(map(int, f)))
    with open(os.path.join(folder, "logits.f32"), "rb") as f:
        known = torch.frombuffer(bytearray(f.read()), dtype=torch.float32).reshape(rows.shape)
    t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as f:
        same = all(
            t.encode(text, add_special_tokens=False).ids == tokens for text, tokens in json.load(f)
        )
    return float((rows - known).abs().max() / known.abs().max()) if same else float("inf")


def main():
    parser = argparse.ArgumentParser(description="Make or check the folders.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("names", nargs="*", default=list(CASES))
    a = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    worst = 0.0
    for name in a.names:
        if a.check:
            change = check(name)
            print(f"{name}: {change:.1e}")
            worst = change if not change <= worst else worst
        else:
            write(name, 1 + list(CASES).index(name))
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
