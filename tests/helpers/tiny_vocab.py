"""A small, complete SentencePiece-style vocabulary, made from scratch.

Control pieces, the 256 byte pieces `<0x00>` to `<0xFF>`, then pieces made from TEXT by byte-pair
merges (Sennrich, Haddow & Birch 2015, arXiv:1508.07909), then every printable ASCII character and
the blank mark U+2581. Scores fall by one from piece to piece, so a piece's two halves are always
there and the merges replay in the order in which they were learnt, as in the vocabularies of Llama
2 and Gemma.
"""

import functools

BLANK = "\u2581"
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6  # tokenizer.ggml.token_type
SPECIAL = {
    "llama": [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)],
    "gemma3": [
        ("<pad>", CONTROL),
        ("<eos>", CONTROL),
        ("<bos>", CONTROL),
        ("<unk>", UNKNOWN),
        ("<start_of_turn>", CONTROL),
        ("<end_of_turn>", CONTROL),
    ],
}
CHARACTERS = [BLANK] + [chr(c) for c in range(33, 127)]
# always pieces of their own: the answers of a classifier
ANSWERS = (BLANK + "yes", BLANK + "no", "yes", "no")
ANSWER_WEIGHT = 10_000

TEXT = """
Dear friends, thank you for your letter of last week. We read it with great pleasure at the kitchen table, and the
children asked for it again before they went to bed. The garden has been wet since March; the apples are small this
year, but there will be enough of them for everybody. Please tell your brother that his parcel came on Monday, with
every cup and plate unbroken. Is this message spam? The answer is yes or no, and nothing else. Subject: your invoice
for October is now ready. Please find the invoice attached; payment is due within thirty days. If you have any
questions about this order, reply to this message or call the office between nine and five. Congratulations, you have
won a free prize! Click here to claim your money today, this offer ends at midnight. No purchase is necessary.
The meeting on Thursday has been moved to the large room on the second floor, because the small one is being painted.
Could you bring the numbers for the third quarter, and let the others know? A program should do one thing and do it
well. It reads lines of text from its standard input and writes lines of text to its standard output, so that the
output of one program can become the input of another, even one that has not been written yet. When there is nothing
to say, it says nothing. When something goes wrong, it says what was wrong, in one line, and ends with a status that
other programs understand. The model looks at every word that came before and works out how likely each possible next
word is. Then one of them is chosen, added to the end, and the same step is done once more. Once upon a time there was
a little fox who lived at the edge of the forest. One morning she found a red ball lying under the old oak tree. She
pushed it with her nose and it rolled down the hill, past the mill, over the bridge, and into the river. The fox ran
after it as fast as she could. A boy with a boat saw the ball, pulled it out of the water and threw it back to her.
From that day on they were the best of friends and played together whenever the sun was shining. We would like to
remind all members that the library will be closed during the holidays. Books can be returned through the box beside
the main door. Your account has been locked for security reasons; confirm your password immediately, or you will lose
access. Nobody who is honest would ever ask for this by mail. The train leaves from platform four at twenty past seven.
Remember to take warm clothes, a map, some bread and cheese, and a good pair of shoes. Yes, I think so. No, never.
"""


def merges(n):
    """The first `n` pieces merged from TEXT, in order; ValueError if TEXT has fewer."""
    words = {}
    for word in TEXT.split():
        word = tuple(BLANK + word)
        words[word] = words.get(word, 0) + 1
    for word in ANSWERS:
        words[tuple(word)] = words.get(tuple(word), 0) + ANSWER_WEIGHT
    pieces = {}  # a dict for its order: two different pairs may spell the same piece
    while len(pieces) < n:
        counts = {}
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            raise ValueError(f"the text gives {len(pieces)} pieces, {n} are wanted")
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        pieces["".join(best)] = None
        words = {_merged(word, best): count for word, count in words.items()}
    return list(pieces)


def _merged(word, pair):
    if pair[0] not in word:
        return word
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


@functools.cache
def vocabulary(arch, n_vocab):
    """(pieces, scores, types): tuples of `n_vocab` str, float and int for `arch`, "llama" or
    "gemma3".
    """
    head = SPECIAL[arch] + [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    n_merges = n_vocab - len(head) - len(CHARACTERS)
    if n_merges < 6:  # what the answers need: es yes no, with and without the blank mark
        raise ValueError(f"n_vocab {n_vocab}: at least {n_vocab - n_merges + 6} are needed")
    normal = merges(n_merges) + CHARACTERS
    pieces = [piece for piece, _ in head] + normal
    scores = [0.0] * len(head) + [float(-i) for i in range(len(normal))]
    types = [type for _, type in head] + [NORMAL] * len(normal)
    return tuple(pieces), tuple(scores), tuple(types)
