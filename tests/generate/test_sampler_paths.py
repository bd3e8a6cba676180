"""The same options give the same tokens by every path: the loop of commands, generate, the Python
API, chat; with any number of threads; with a grammar; continued from a snapshot.
"""

import os

import pytest
from chat_model import write_chat_model
from conftest import ROOT, ids_in, shell
from forked import render_here, run
from test_generate import CHATML, WORDS
from tiny_model import write_model

import sluice
from sluice.chat import template
from sluice.chat.conversation import Conversation
from sluice.chat.message import Message
from sluice.generate import breakers
from sluice.generate.sampler import Sampler
from sluice.gguf import File
from sluice.kvcache.scratch import Scratch
from sluice.model.model import Model
from sluice.tokenizer.vocabulary import Vocab

PROMPT = b"Once upon a time there was a crab and there was a crab and"
CHAINS = {
    "typical": "--typical 0.7 -k 0 -p 1",
    "top-nsigma": "--top-nsigma 1.3 -t 1.5",
    "xtc": "--xtc-probability 0.6 --xtc-threshold 0.05 --min-p 0.01",
    "dry": "--dry-multiplier 2 --dry-base 2 --dry-allowed-length 1 --dry-penalty-last-n -1",
    "dry-breakers": "--dry-multiplier 3 --dry-sequence-breaker e --dry-sequence-breaker ' th'",
    "dynatemp": "--dynatemp-range 0.7 --dynatemp-exp 1.4",
    "mirostat-1": "--mirostat 1 --mirostat-ent 3",
    "mirostat-2": "--mirostat 2 --mirostat-ent 2 --mirostat-lr 0.3 --bias 270=2",
    "frequency": "--frequency-penalty 0.8 --presence-penalty 0.3 --last-n 12",
    "order": "--sampler-order 'temperature;xtc;top-p;penalties' --xtc-probability 1"
    " --repeat-penalty 1.5",
    "letters": "--samplers ktmd --dry-multiplier 1",
    "preset": "--preset creative -t 1.2",
    "words": "--bias-word crab=4 --preset no-repeats",
    "greedy": "-t 0 --dry-multiplier 4 --repeat-penalty 1.1",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    d = tmp_path_factory.mktemp("paths")
    write_model(str(d / "m.gguf"), type="q8_0", n_layer=2, n_vocab=420, n_ctx=400)
    write_chat_model(d / "chat.gguf", ["<|im_start|>", "<|im_end|>"], CHATML, n_ctx=400)
    (d / "prompt").write_bytes(PROMPT)
    (d / "words.gbnf").write_text(WORDS)
    return d


def by_ring(tiny, tmp_path, options, filter="", sample="", n=40, begin="p.snap"):
    """(tokens, text) of the loop of commands."""
    if (tmp_path / "ring").exists():
        os.unlink(tmp_path / "ring")
    done = shell(
        f"""set -e; tokenize <'{tiny}/prompt' >ids; [ -f p.snap ] || prefill -o p.snap <ids
        mkfifo ring; decode {begin} <ring | {filter} sample -S 7 -n {n} {options} {sample} |
          tee ring answer | tokenize -d""",
        tmp_path,
        MODEL=str(tiny / "m.gguf"),
    )
    assert (done.returncode, done.stderr) in ((0, b""), (1, b"")), done.stderr
    return ids_in((tmp_path / "answer").read_bytes()), done.stdout


def tokens_of(tiny, snapshot):
    """All tokens in a snapshot."""
    cache = Model(str(tiny / "m.gguf"), 1).open_snapshot(str(snapshot))
    return cache.tokens[: cache.n_tok].tolist()


def by_generate(tiny, options, *more, n=40, prompt=PROMPT):
    script = f"generate -m '{tiny}/m.gguf' -S 7 -n {n} {options} " + " ".join(map(str, more))
    done = shell(script + f" -f '{tiny}/prompt'" if prompt else script, tiny)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", CHAINS)
def test_ring_generate_and_any_number_of_threads_agree(tiny, tmp_path, name):
    tokens, text = by_ring(tiny, tmp_path, CHAINS[name])
    assert len(tokens) > 5
    for threads in (1, 3):
        assert by_generate(tiny, CHAINS[name], "-j", threads) == text
    if name not in ("greedy", "preset", "words", "letters"):  # and the options do something
        assert by_generate(tiny, "-t 0.81") != text


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["typical", "xtc", "dry-breakers", "mirostat-1", "mirostat-2"])
def test_grammar_masks_alike_by_both_paths(tiny, tmp_path, name):
    (tmp_path / "words.gbnf").write_text(WORDS)
    tokens, text = by_ring(tiny, tmp_path, CHAINS[name], filter="grammar-filter -g words.gbnf |")
    assert by_generate(tiny, CHAINS[name], "-g", "words.gbnf") == text and tokens


def test_python_api_agrees(tiny, tmp_path):
    for options, arguments in (
        (CHAINS["dry"], dict(dry_multiplier=2, dry_base=2, dry_allowed_length=1, dry_last_n=-1)),
        (
            CHAINS["dry-breakers"],
            dict(dry_multiplier=3, dry_breakers=["e", " th"]),
        ),
        (CHAINS["mirostat-1"], dict(mirostat=1, mirostat_entropy=3)),
        (CHAINS["order"], dict(order="t;x;p;e".replace(";", ""), xtc_probability=1)),
    ):
        if "order" in arguments:
            arguments["repeat_penalty"] = 1.5
        with sluice.load(tiny / "m.gguf") as model:
            text = "".join(model.generate(PROMPT, seed=7, max_tokens=40, **arguments))
        assert text.encode() == by_generate(tiny, options)


# The prompt, and snapshots ------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        "--dry-multiplier 9 --dry-allowed-length 1 --dry-penalty-last-n -1 --bias-word crab=8"
        " --bias-word and=8 --bias-word there=8 --bias-word was=8 -k 8",
        "--repeat-penalty 3 --last-n 30",
    ],
)
def test_prompt_counts_where_it_is_asked_for(tiny, tmp_path, options):
    with_prompt = by_ring(tiny, tmp_path, options, sample="--prompt ids")[1]
    assert by_generate(tiny, options, "--penalize-prompt") == with_prompt
    assert with_prompt != by_ring(tiny, tmp_path, options)[1]


@pytest.mark.parametrize(
    "options",
    [
        "--dry-multiplier 3 --dry-penalty-last-n -1",
        "--frequency-penalty 0.7 --last-n 25",
        "--xtc-probability 0.5 --typical 0.8",
    ],
)
def test_text_continued_from_its_snapshot_goes_on_as_if_it_had_not_been_cut(
    tiny, tmp_path, options
):
    """If the penalties see the prompt: then all they remember is in the snapshot."""
    options += " --penalize-prompt"
    whole, half, joined = (tmp_path / name for name in ("whole", "half", "joined"))
    by_generate(tiny, options, "-o", whole, n=40)
    by_generate(tiny, options, "-o", half, "-c 300", n=17)
    by_generate(tiny, options, "-s", half, "-o", joined, "-c 300", n=23, prompt=None)
    assert tokens_of(tiny, joined) == tokens_of(tiny, whole) != tokens_of(tiny, half)


def test_mirostat_goes_on_from_the_limit_that_v_prints(tiny, tmp_path):
    """-v prints mu so that all its bits come back."""
    options = "--mirostat 2 --mirostat-ent 2.5"
    model, (whole, half, joined) = tiny / "m.gguf", (tmp_path / name for name in ("w", "h", "j"))

    def run_it(*more):
        done = run("generate", "-m", model, "-S", 7, "-v", *options.split(), *more)
        assert done.returncode == 0, done.stderr
        fields = dict(f.partition(b"=")[::2] for f in done.stderr.split() if b"=" in f)
        return fields[b"mu"].decode()

    last = run_it("-n", 40, "-o", whole, PROMPT.decode())
    mu = run_it("-n", 17, "-o", half, "-c", 300, PROMPT.decode())
    end = run_it("-n", 23, "-s", half, "-o", joined, "-c", 300, "--mirostat-mu", mu)
    assert tokens_of(tiny, joined) == tokens_of(tiny, whole) and end == last != mu
    assert run_it("-n", 23, "-s", half, "-c", 300) != end


# chat -----------------------------------------------------------------------------------------


@pytest.fixture
def talk(monkeypatch, tiny):
    """talk(messages, penalize_prompt): a Conversation; its model has 420 tokens."""
    render_here(monkeypatch)
    m = Model(tiny / "chat.gguf", 1)
    words = Vocab(m.file)
    t = template.of(m.file, words)

    def make(messages, penalize_prompt=False):
        cache = Scratch(m.geometry("f16"), 400, logits=True)
        return Conversation(
            m, words, t, cache, messages, max_tokens=14, penalize_prompt=penalize_prompt
        )

    return make


STEPS = dict(dry_multiplier=4, dry_allowed_length=1, dry_last_n=-1, repeat=1.4, last_n=40)
QUESTIONS = ("Is it?", "Is it not?", "Then what is it?")


def answers(conversation, sampler, questions):
    out = []
    for question in questions:
        conversation.messages.append(Message("user", question))
        out.append(b"".join(conversation.answer(sampler)))
    return out


@pytest.mark.parametrize("steps", [STEPS, dict(mirostat=2, mirostat_entropy=2)], ids=str)
def test_memory_goes_on_over_the_turns_of_a_chat(talk, steps):
    """A sampler restored from its state answers the next turn as the one that had all turns."""
    whole = Sampler(420, seed=5, **steps)
    want = answers(talk([]), whole, QUESTIONS)
    first, messages = Sampler(420, seed=5, **steps), []
    got = answers(talk(messages), first, QUESTIONS[:2])
    then = Sampler(420, seed=5, **steps)
    then.restore(first.state())
    assert got + answers(talk(messages), then, QUESTIONS[2:]) == want
    alone = answers(talk(messages[:4]), Sampler(420, seed=5, **steps), QUESTIONS[2:])
    assert alone != want[2:]  # without its memory the answer is another


def test_memory_of_a_chat_is_its_context_if_the_prompt_counts(talk):
    """So a talk that is saved and loaded needs nothing else."""
    messages, whole = [], Sampler(420, seed=5, **STEPS)
    want = answers(talk(messages, True), whole, QUESTIONS)
    again = messages[:4]
    assert answers(talk(again, True), Sampler(420, seed=5, **STEPS), QUESTIONS[2:]) == want[2:]


def test_chat_and_generate_agree_in_the_first_answer(tiny):
    for name in ("dry", "mirostat-1", "xtc"):
        argv = ["-m", tiny / "chat.gguf", "-S", 7, "-n", 14, *CHAINS[name].split()]
        talked = run("chat", *argv, input=b"Is it?")
        alone = run("generate", *argv, "--chat", "Is it?")
        assert talked.returncode == 0 and talked.stdout == alone.stdout + b"\n"


# Sequence breakers ----------------------------------------------------------------------------


def slow_sequences(vocab, texts):
    found = set()
    for data in (text.encode() for text in texts):
        for token in range(vocab.n_vocab):
            word = vocab.bytes_of(token)
            if data in word:
                found.add((token,))
                continue
            for n in range(1, len(data)):
                if word.endswith(data[:n]):
                    found |= {(token, *tail) for tail in tails(vocab, data[n:])}
    return sorted(found)


def tails(vocab, data):
    """Behind a part of a character its other bytes come as one token, or each as one."""
    for n in range(len(data) + 1):
        try:
            text = data[n:].decode()
        except UnicodeDecodeError:
            continue
        rest = vocab.encode(text.encode(), bos=False, eos=False, prefix=False) if text else []
        one = [vocab.tokens_writing(data[:n])] if n else []
        each = [vocab.tokens_writing(data[i : i + 1]) for i in range(n)]
        for first in {tuple(t[0] for t in way) for way in (one, each) if all(way)}:
            yield (*first, *rest)
        return


@pytest.mark.parametrize("texts", [["\n", ":", '"', "*"], ["##"], ["—", " the"], ["abab", "ba"]])
def test_sequence_breakers_are_every_way_to_write_them(tiny, smollm2, texts):
    for path in (tiny / "m.gguf", smollm2):
        vocab = Vocab(File(str(path)))
        found = breakers.sequences(vocab, texts)
        assert found == slow_sequences(vocab, texts) and found
        for sequence in found[:: max(1, len(found) // 50)]:
            assert any(text.encode() in b"".join(map(vocab.bytes_of, sequence)) for text in texts)


def test_bundled_presets_are_complete():
    from sluice.generate import settings

    names = sorted(path.stem for path in (ROOT / "configs" / "samplers").iterdir())
    assert names == sorted(settings.PRESETS)
    for name in names:
        assert settings.read_preset(name)
    assert settings.read_preset("balanced") == {
        name: settings.DEFAULTS[name] for name in ("temperature", "top_k", "top_p", "min_p")
    }
