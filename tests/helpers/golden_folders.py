"""Make tests/golden/folders: small models as Hugging Face keeps them, saved by transformers itself,
and what it computes with them.

    python3 tests/helpers/golden_folders.py              write every folder again
    python3 tests/helpers/golden_folders.py --check      exit 1 where transformers computes other
                                                         logits or
                                                 tokens than are on record

golden/folders/NAME/
config.json, model*.safetensors (random, seeded), tokenizer.json, tokenizer_config.json, and
    prompt.ids          tokens of a prompt, one a line
    logits.f32          f32 little-endian [len(POSITIONS), n_vocab]: after those of its tokens
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
}


def model(case, seed):
    """A transformers model in f32 whose weights are exact in the case's dtype, with logits that
    differ from one id to the next.
    """
    import torch
    import transformers

    name, settings, dtype, _, _ = case
    infix = "Text" if name in ("Gemma3", "Qwen3_5") else ""
    config = getattr(transformers, f"{name}{infix}Config")(
        **{"pad_token_id": None, **settings}, attn_implementation="eager"
    )
    torch.manual_seed(seed)
    net = getattr(transformers, f"{name}ForCausalLM")(config).to(torch.float32).eval()
    for key, p in net.named_parameters():
        p.data = torch.randn_like(p) * (0.1 if "norm" in key or key.endswith("bias") else 0.25)
        lacks_one = name.startswith(("Gemma", "Qwen3_5")) and "linear_attn" not in key
        if "norm" in key and not lacks_one:
            p.data += 1
        p.data = p.data.to(getattr(torch, dtype)).to(torch.float32)
    net.tie_weights()
    return net


def logits(net, tokens):
    import torch

    with torch.no_grad():
        return net(torch.tensor([tokens])).logits[0, list(POSITIONS)].float()


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
    gemma = kind == "gemma"
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
    t = Tokenizer(
        models.BPE(
            {p: i for i, p in enumerate(pieces)},
            spm_merges(pieces, scores, types),
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
    if kind in ("qwen2", "qwen35"):
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
    t.add_tokens(["<think>"])
    return t, {
        "bos_token": "<|begin|>",
        "eos_token": "<|turn|>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


def tokenizer(kind):
    """phi3: as in Phi-3, `</s>` takes the white space behind it along."""
    return spm(kind) if kind in ("spm", "phi3", "gemma") else byte_level(kind)


def write(name, seed):
    case, folder = CASES[name], os.path.join(DIRECTORY, name)
    shutil.rmtree(folder, ignore_errors=True)
    net, tokens = model(case, seed), prompt(seed)
    rows = logits(net, tokens)
    import torch

    t, settings = tokenizer(case[3])
    for short in ("bos", "eos"):
        for config in (net.config, net.generation_config):
            setattr(config, f"{short}_token_id", t.token_to_id(settings[f"{short}_token"]))
    net.to(getattr(torch, case[2])).save_pretrained(
        folder, max_shard_size=case[4].get("shard", "1GB")
    )
    t.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=1, sort_keys=True)
    with open(os.path.join(folder, "texts.json"), "w", encoding="utf-8") as f:
        json.dump([[text, t.encode(text, add_special_tokens=False).ids] for text in TEXTS], f)
    with open(os.path.join(folder, "prompt.ids"), "w") as f:
        f.writelines(f"{i}\n" for i in tokens)
    with open(os.path.join(folder, "logits.f32"), "wb") as f:
        f.write(struct.pack(f"<{rows.numel()}f", *rows.flatten().tolist()))
    for entry in os.listdir(folder):
        os.chmod(os.path.join(folder, entry), 0o644)
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
        getattr(transformers, f"{CASES[name][0]}ForCausalLM")
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
