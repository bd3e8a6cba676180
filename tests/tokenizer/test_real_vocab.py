"""The vocabularies of real models: tokens of 200 KB of mixed text, the article's cases, white space,
HTML; the time to open one.
"""

import hashlib
import json
import time

import golden_tokens
import pytest
from conftest import run
from test_bpe import GEMMA_3
from test_vocab import decode

from sluice import gguf
from sluice.tokenizer.vocabulary import Vocab

pytestmark = pytest.mark.full

GOLDEN = json.loads(golden_tokens.PATH.read_text())


@pytest.fixture(scope="module")
def vocab_of():
    """vocab_of(path): the Vocab of a model, read once."""
    made = {}
    return lambda path: (
        made.setdefault(path, None)
        or made.__setitem__(path, Vocab(gguf.File(str(path))))
        or made[path]
    )


@pytest.fixture(scope="module")
def mixed():
    data = golden_tokens.text()
    for golden in GOLDEN.values():
        assert (len(data), hashlib.sha256(data).hexdigest()) == (golden["n_bytes"], golden["text"])
    return data


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_of_mixed_text_are_those_of_the_trained_tokenizer(request, vocab_of, mixed, name):
    vocab = vocab_of(request.getfixturevalue(name))
    tokens = vocab.encode(mixed, bos=False)
    assert (len(tokens), golden_tokens.digest(tokens)) == (
        GOLDEN[name]["n_ids"],
        GOLDEN[name]["ids"],
    )
    assert not any(vocab.is_control(i) for i in tokens)


@pytest.mark.parametrize("name", GOLDEN)
def test_mixed_text_comes_back(request, mixed, name):
    """But for U+2581, which is a blank in Gemma; through the command, with --special, too."""
    path, written = (
        request.getfixturevalue(name),
        mixed.replace("\u2581".encode(), b" ") if name == "gemma3" else mixed,
    )
    for flags in ([], ["--special"]):
        there = run("tokenize", "-m", path, *flags, "--no-bos", input=mixed)
        back = run("tokenize", "-m", path, *flags, "-d", input=there.stdout)
        assert (back.returncode, back.stderr) == (0, b"") and back.stdout == written


def test_published_cases_hold_for_the_real_gemma(gemma3, vocab_of):
    vocab = vocab_of(gemma3)
    assert len(GEMMA_3) == 7
    for text, tokens in GEMMA_3.items():
        assert vocab.encode(text.encode(), bos=False) == tokens, text
        assert vocab.encode(text.encode(), bos=False, special=True) == tokens
        assert decode(vocab, tokens) == text.encode()


# of llama.cpp and sentencepiece alike, but for </s>, which llama.cpp calls a control token
GEMMA_TEXTS = {
    "a  b and    c": [236746, 138, 236763, 532, 140, 236755],
    "<s>strike</s>": [203, 110095, 212],
    "</s>": [212],
    "[multimodal]<start_of_image>": [5, 255999],
    "\n\n\n": [109],
    "\t\t\t": [255970],
    " ": [236743],
    " " * 31: [167],
    "<table>\n\t<tr>": [168, 107, 255968, 173],
}


def test_user_defined_pieces_of_the_real_gemma_come_out_of_text(gemma3, vocab_of):
    vocab = vocab_of(gemma3)
    for text, tokens in GEMMA_TEXTS.items():
        assert (
            vocab.encode(text.encode(), bos=False)
            == vocab.encode(text.encode(), bos=False, special=True)
            == tokens
        ), text
        assert decode(vocab, tokens) == text.encode()
    types, texts = (
        vocab._file.metadata["tokenizer.ggml." + key].values() for key in ("token_type", "tokens")
    )
    for i, (kind, text) in enumerate(zip(types, texts)):
        if kind == 4:
            assert vocab.encode(text, bos=False) == [i] and not vocab.is_control(i)
        elif kind == 3 and i % 97 == 0:
            assert i not in vocab.encode(text, bos=False) and vocab.encode(
                text, bos=False, special=True
            ) == [i]
    assert 212 not in vocab.eog and {1, 106} <= vocab.eog


def test_tokenize_command_equals_gemma_on_its_line(gemma3):
    there = run("tokenize", "-m", gemma3, input=b"a  b and    c")
    assert there.stdout.split(b"\n")[1:-2] == [
        b"%d" % i for i in (2, 236746, 138, 236763, 532, 140, 236755)
    ]
    assert run("tokenize", "-m", gemma3, "-d", input=there.stdout).stdout == b"a  b and    c"


def test_chat_message_cannot_forge_control_tokens_but_may_contain_html(gemma3, vocab_of):
    vocab = vocab_of(gemma3)
    tokens = vocab.encode(b"<start_of_image><s>x</s>  ", bos=False, marks=False)
    assert 255999 not in tokens and tokens[-3:] == [236781, 212, 138] and 203 in tokens


def test_large_vocabulary_opens_fast(gemma3):
    """262,144 tokens: 8 ms of processor time were measured; many times that would be a fault of
    kind, not of this machine.
    """
    file, best = gguf.File(str(gemma3)), 9.0
    for _ in range(5):
        start = time.process_time()
        Vocab(file)
        best = min(best, time.process_time() - start)
    assert best < 0.1
