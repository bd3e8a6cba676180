"""Hugging Face tokenizers from the vocabularies of GGUF files, for comparison.

The pre-tokenisers are those of the models' published tokenizer.json files; text is not normalised
(Qwen2's are, to NFC; llama.cpp and this project do not). Tokens of type user defined that are not
control tokens become added tokens.
"""

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

NORMAL, USER_DEFINED, BYTE = 1, 4, 6
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + TAIL
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL
)
U, W = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{U}*{W}+|[^\r\n\p{{L}}\p{{N}}]?{U}+{W}*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL
)
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{U}*{W}+{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{U}+{W}*{CONTRACTION}|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL
)
# another name of a rule in llama.cpp -> the name by which `words` knows it
ALIASES = {
    **dict.fromkeys(
        "phi-2 olmo mpt jais trillion exaone4 gigachat a.x-4.0 mellum".split(), "gpt-2"
    ),
    **dict.fromkeys("modern-bert granite-docling jina-es jina-de".split(), "gpt-2"),
    **dict.fromkeys("jina-v2-es jina-v2-de".split(), "gpt-2"),
    **dict.fromkeys("llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0".split(), "llama-bpe"),
    **dict.fromkeys("lfm2 jina-v5-nano smaug-bpe dbrx glm4 chatglm-bpe".split(), "llama-bpe"),
    **dict.fromkeys("deepseek-r1-qwen stablelm2 megrez hunyuan solar-open".split(), "qwen2"),
    **dict.fromkeys("grok-2 kormo f2llmv2".split(), "qwen2"),
    **dict.fromkeys("llama4 kanana2 talkie minimax-m2".split(), "gpt-4o"),
    **dict.fromkeys("smollm refact codeshell command-r exaone".split(), "starcoder"),
    **dict.fromkeys("minerva-7b mellum2".split(), "starcoder"),
}
# a word that is a token is not merged
WHOLE_WORDS = {
    *"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano".split(),
    "tekken",
}
DEEPSEEK = [
    r"[\r\n]",
    (
        "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
        "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ\u1fd0-\u1fd3\u1fd6-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ"
        "ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
        "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
    ),
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-\ud7ff]+",
]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits():
    return pre_tokenizers.Digits(individual_digits=True)


def words(pre):
    """The list of pre-tokenisers, before the byte-level alphabet, of a name of
    tokenizer.ggml.pre.
    """
    qwen2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
    return {
        "llama-bpe": [split(LLAMA3)],
        "qwen2": [split(qwen2)],
        "qwen35": [split(QWEN35)],
        "tekken": [split(TEKKEN)],
        "gpt-4o": [split(O200K)],
        "starcoder": [digits()],
        "gpt-2": [],
        "deepseek-llm": [split(p) for p in DEEPSEEK] + [digits()],
    }[ALIASES.get(pre, pre)]


def pre_tokenizer(pre):
    """All of it: words, then the byte-level alphabet."""
    regex = ALIASES.get(pre, pre) in ("gpt-2", "starcoder")
    return pre_tokenizers.Sequence([*words(pre), byte_level(regex)])


class Reference:
    """The tokenizer of the vocabulary of a sluice.gguf.File with model gpt2 or gemma4.

    is_control(id): what text never becomes; other tokens of type user defined are added tokens.
    special: control tokens are added tokens, too; takes: they take along the white space beside
    them.
    """

    def __init__(self, file, is_control, special=False, takes=False):
        get = lambda key: file.metadata["tokenizer.ggml." + key].values()
        texts, types = [t.decode() for t in get("tokens")], get("token_type")
        merges = [tuple(line.decode().split(" ")) for line in get("merges")]
        vocab = {t: i for i, (t, kind) in enumerate(zip(texts, types)) if kind in (NORMAL, BYTE)}
        if file.metadata["tokenizer.ggml.model"] == "gemma4":
            self._tokenizer = tokenizers.Tokenizer(
                models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True)
            )
            self._tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        else:
            pre = file.metadata["tokenizer.ggml.pre"]
            self._tokenizer = tokenizers.Tokenizer(
                models.BPE(vocab, merges, ignore_merges=pre in WHOLE_WORDS)
            )
            self._tokenizer.pre_tokenizer = pre_tokenizer(pre)
        added = [i for i, kind in enumerate(types) if kind == USER_DEFINED and not is_control(i)]
        # written U+2581: these tokens are found in what becomes of the text
        blanks = self._tokenizer.normalizer is not None
        self._tokenizer.add_tokens(
            [tokenizers.AddedToken(texts[i], normalized=blanks) for i in added]
        )
        if special:
            control = [i for i in range(len(types)) if is_control(i)]
            make = lambda i: tokenizers.AddedToken(
                texts[i], normalized=False, special=True, lstrip=takes, rstrip=takes
            )
            self._tokenizer.add_special_tokens([make(i) for i in control])
            added += control
        # its own numbers for them
        self._tokens = {self._tokenizer.token_to_id(texts[i]): i for i in added}

    def encode(self, text):
        """The tokens of a str."""
        return [
            self._tokens.get(i, i)
            for i in self._tokenizer.encode(text, add_special_tokens=False).ids
        ]
