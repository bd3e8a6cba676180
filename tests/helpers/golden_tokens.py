"""Tokens of 200 KB of mixed text on the real models (real_models.py): tests/golden/ids.json.

    python3 golden_tokens.py            make the file again, with sentencepiece (Gemma) and Hugging
                                     Face tokenizers (SmolLM2)
    python3 golden_tokens.py llama      compare them with llama.cpp's (llama-cpp-python), and print
                                     where they differ

The references read pieces, scores, types and merges of the GGUF file; SentencePiece's model has its
user-defined pieces with U+2581 where the file has spaces. llama.cpp gives the same tokens but in two
places, both in Gemma's text, where the references stand for what the model was trained with:

- `</s>`, there HTML, becomes a control token of its own accord, and so 3 or 4 tokens of text;
- runs of U+2581 are not the pieces that runs of blanks are.

transformers 5.24 (AutoTokenizer with gguf_file) is no reference for these files: it cuts SmolLM2's
words as GPT-2 does, whatever tokenizer.ggml.pre says, and has no user defined pieces in Gemma,
whose runs of more than 31 blanks it merges otherwise.
"""

import hashlib
import json
import struct
import sys
from pathlib import Path

import real_models

PATH = Path(__file__).parents[1] / "golden/ids.json"
N_BYTES = 200_000
CODE = [
    '''
def digest(path, size=1 << 20):
    """Return the SHA-256 of a file, block by block."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(size)
            if not block:
                break
            found.update(block)
    return found.hexdigest()  # 64 digits
''',
    """
static int *row_of(struct table *t, int i)
{
\tif (i < 0 || i >= t->n_row)
\t\treturn NULL;\t/* out of range */
\tfor (int k = 0; k < 8; k++) {
\t\t\tt->sum[k] += (t->row[i][k] << 3) & 0xFFu;
\t\t\t\tcheck(k != '\\0' && "a\\tb");
\t}
\treturn t->row[i];
}
""",
    """
{
  "name": "mixed", "values": [1, 2.5e-3, null, true],
          "deep": {"er": {"est": [[[[  "x"  ]]]]}},
}
""",
    """
<table>
  <tr><td>old price <s>12.99</s></td><td><b>9.49</b></td></tr>
</table><p>H<sub>2</sub>O, <s>gone</s> &amp; <em>kept</em><br/><a href="https://example.org/?q=a%20b&x=1#top">link</a></p>
<ul>\t<li>one</li>\t<li><code>x += 1</code></li></ul></body></html>
""",
    """
all: $(OBJECTS)
\t@echo "  LD  $@"
\t$(CC) -o $@ $^ $(LIBS)      # link
.PHONY: all
""",
    """
SELECT u.id, COUNT(*)   AS n
  FROM users u LEFT JOIN   mails m ON m.to = u.id
 WHERE u.name LIKE 'O''Brien%' AND m.at >= '2024-02-29T23:59:60Z'
 GROUP BY 1 HAVING n > 1000000;
""",
]
LINES = [
    (
        "It's what we'd hoped for; they'll say she's late, I'm sure you've heard. DON'T."
        " O’Reilly—“quoted”…"
    ),
    "Größe, naïve café, Übermut, Œuvre, Ångström, Łódź, İstanbul, ſtraße, ﬁne, ﬀ, Ǆ ǅ ǆ",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Ёж, щётка, подъезд.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί. ὁ λόγος, ᾧ",
    "الثعلب البني السريع يقفز فوق الكلب الكسول. قُرْآن ٠١٢٣٤٥٦٧٨٩",
    "השועל החום המהיר קופץ מעל הכלב העצלן. שָׁלוֹם",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। क्षत्रिय ०१२३",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓",
    "敏捷的棕色狐狸跳过了懒狗。漢字、仮名、「括弧」",
    "素早い茶色の狐はのろまな犬を飛び越える。ﾊﾝｶｸ カタカナ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. ᄒᆞᆫ글",
    "Քերականություն, ქართული ენა, አማርኛ, বাংলা ভাষা, தமிழ் மொழி, తెలుగు, ខ្មែរ, မြန်မာ, བོད་ཡིག",
    (
        "e\u0301\u0302\u0303 a\u030a o\u0308\u0304 Z\u0351\u036b\u0343\u036a n\u0303 x\u20d7"
        " \u0301alone"
    ),
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇯🇵 ❤️ ☺ 🧑🏻‍🚀 1️⃣ 🤦🏾‍♂️ 😀😀😀",
    "∀x∈ℝ: ⌈x⌉ ≠ ∛27 ± ½·10⁻³ → ∑ᵢ aᵢ² ≤ ∞ ㎏ Ⅷ ① 𝔘𝕟𝕚𝖈𝔬𝔡𝔢",
    (
        "0 1 12 123 1234 12345 1,234,567.89 3.14159 1e-9 0x1F600 007 192.168.0.1 2026-11-26 +49"
        " (0)30 ٣٫١٤"
    ),
    (
        "<|im_start|>user <|im_end|> <|endoftext|> <start_of_turn>model <end_of_turn>"
        " <bos><eos><pad><unk> [INST] [/INST] <<SYS>> <mask>"
    ),
    (
        "<unused5> <0x41> <0x0A> <start_of_image> [multimodal] <s> </s> <repo_name> <|think|> ▁the"
        " ▁▁ Ġthe ĊĊ"
    ),
    "\u200bzero\u200cwidth\u200djoin\ufeff\u2060\u00ad soft",
    "tab\there\t\tand\t\t\tthere \t mixed\t  \t",
    "no\u00a0break\u2003em\u3000wide\u2028line\u2029paragraph\u0085next\x0bvt\x0cff\x1fus\x7fdel\0nul",
    "=====-----_____*****#####!!!!!?????.....,,,,,;;;;;:::::\"\"\"\"\"'''''((((()))))[[[]]]{{{}}}<<<>>>",
    "a" * 70 + " " + "ab" * 40 + " " + "1" * 45,
]


def numbers(seed):
    """Numbers below 2^31, the same on every machine and with every Python."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield state >> 33


def pieces(seed=31):
    """Yield pieces of text forever: lines, code, runs of spaces, tabs and line ends of 1 to 40,
    characters of the planes 0 to 3 (StarCoder's vocabulary, which SmolLM2 has, lacks bytes that
    begin the others, and some control characters).
    """
    random = numbers(seed)
    below = lambda n: next(random) % n
    while True:
        kind = below(16)
        if kind < 5:
            yield LINES[below(len(LINES))] + ("\n", "\r\n", " ", "")[below(4)]
        elif kind < 9:
            text = CODE[below(len(CODE))]
            margin = " " * below(13) if below(2) else "\t" * below(4)
            yield text.replace("\n", ("\n", "\r\n")[below(5) == 0] + margin)
        elif kind < 12:
            yield (" ", " ", "\t", "\n", "\r\n", "\u00a0", "\n ", "\t ")[below(8)] * (1 + below(40))
        elif kind < 14:
            words = LINES[below(len(LINES))].split(" ")
            yield (" ", "  ", "\n", "")[below(4)].join(
                words[below(len(words))] for _ in range(1 + below(8))
            )
        else:
            low, high = (
                (0x20, 0x80),
                (0x80, 0x800),
                (0x800, 0xD800),
                (0xE000, 0x10000),
                (0x10000, 0x20000),
                (0x20000, 0x40000),
            )[below(6)]
            yield "".join(chr(low + below(high - low)) for _ in range(1 + below(6)))


def text():
    """The 200,000 bytes and up to a piece more, as UTF-8."""
    out, n = [], 0
    for piece in pieces():
        out.append(piece.encode())
        n += len(out[-1])
        if n >= N_BYTES:
            return b"".join(out)


def digest(tokens):
    """SHA-256 of tokens as 32-bit numbers, the lowest byte first."""
    return hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens)).hexdigest()


def sentencepiece_ids(path, data):
    import sentencepiece
    from spm_model import USER_DEFINED, Model

    from sluice import gguf

    get = lambda key: gguf_metadata["tokenizer.ggml." + key].values()
    gguf_metadata = gguf.File(str(path)).metadata
    spell = lambda t, kind: t.replace(b" ", "\u2581".encode()) if kind == USER_DEFINED else t
    kept = [
        (spell(t, kind), s, kind)
        for t, s, kind in zip(get("tokens"), get("scores"), get("token_type"))
    ]
    kept[3] = (kept[3][0], kept[3][1], 2)  # <unk>: the file has it as a control token
    model = Model(kept, add_dummy_prefix=False)
    return sentencepiece.SentencePieceProcessor(model_proto=model.proto()).encode(data)


def hugging_face_ids(path, data):
    import hf_tokenizer

    from sluice import gguf

    file = gguf.File(str(path))
    return hf_tokenizer.Reference(file, lambda i: False).encode(data.decode())


def llama_ids(path, data):
    import llama_cpp

    return llama_cpp.Llama(str(path), vocab_only=True, verbose=False).tokenize(
        data, add_bos=False, special=False
    )


REFERENCES = {
    "gemma3": (real_models.GEMMA3, sentencepiece_ids, "sentencepiece"),
    "smollm2": (real_models.SMOLLM2, hugging_face_ids, "tokenizers"),
}


def main(against=None):
    data, found = text(), {}
    for name, (model, ids_of, source) in REFERENCES.items():
        tokens = (llama_ids if against else ids_of)(model.path, data)
        found[name] = {
            "source": source,
            "n_bytes": len(data),
            "text": hashlib.sha256(data).hexdigest(),
            "n_ids": len(tokens),
            "ids": digest(tokens),
        }
    if not against:
        PATH.write_text(json.dumps(found, indent=1) + "\n")
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["llama"]:
        want = json.loads(PATH.read_text())
        for name, got in main("llama").items():
            print(
                name,
                (
                    "same"
                    if got["ids"] == want[name]["ids"]
                    else f"differs: {got['n_ids']} ids, {want[name]['n_ids']}"
                ),
            )
    else:
        print(json.dumps(main(), indent=1))
