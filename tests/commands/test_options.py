"""Spellings that other programs of this field have, old ones, -f FILE and tokenize --count."""

import importlib

import click
import pytest
from conftest import run, shell
from tiny_model import write_model

from sluice import faults
from sluice.commands import sluice
from sluice.start import PROGRAMS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("options")
    write_model(str(d / "m.gguf"), n_layer=1, n_vocab=400)
    (d / "prompt.txt").write_text("Once upon a time")
    script = """tokenize -m m.gguf -f prompt.txt >ids && prefill -m m.gguf -o p.snap <ids
        decode -m m.gguf p.snap <ids >logits"""
    assert shell(script, d).returncode == 0
    return d


def output(script, folder, code=0):
    done = shell(script, folder)
    assert (done.returncode, done.stderr) == (code, b""), script
    return done.stdout


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "shown, others",
    [
        (
            "generate -m m.gguf -t 0.9 -n 5 -c 64 -S 1 -k 9 -p 0.9 --last-n 8 a",
            [
                "generate -m m.gguf --temp 0.9 --n-predict 5 --ctx-size 64 --seed 1 --top-k 9"
                " --top-p 0.9 --repeat-last-n 8 a",
                "generate -m m.gguf --temperature 0.9 --max-tokens 5 --capacity 64 --seed 1"
                " --top-k 9 --top-p 0.9 --last-n 8 a",
                "generate --model m.gguf --temp=0.9 --max-ids 5 -c 64 -S 1 -k 9 -p 0.9 a",
                "generate --model m.gguf --temp=0.9 --predict 5 -c 64 -S 1 -k 9 -p 0.9 a",
            ],
        ),
        (
            "generate -m m.gguf -t 0 -n 4 --template plain --system b a",
            [
                "generate -m m.gguf -t 0 -n 4 --chat-template plain --system-prompt b a",
                "generate -m m.gguf -t 0 -n 4 --chat-template-file plain --system-prompt b a",
            ],
        ),
        (
            "chat -m m.gguf --template plain -t 0 -n 3 -c 99 <prompt.txt",
            [
                "chat -m m.gguf --template plain --temp 0 --max-tokens 3 --capacity 99 <prompt.txt",
                "chat -m m.gguf --template plain --temp 0 --max-ids 3 --ctx-size 99 <prompt.txt",
                "chat -m m.gguf --template plain --temp 0 -n 3 -c 99 -f prompt.txt",
            ],
        ),
        (
            "sample -t 0 -n 2 <logits",
            ["sample --temp 0 --n-predict 2 <logits", "sample --temp 0 --max-ids 2 <logits"],
        ),
        ("mail-text --normalize <prompt.txt", ["mail-text --fold <prompt.txt"]),
        (
            "prefill -m m.gguf -c 99 --chunk 2 -o s.snap <ids && cksum <s.snap",
            ["prefill -m m.gguf --capacity 99 --batch-size 2 -o s.snap <ids && cksum <s.snap"],
        ),
        (
            "perplexity -m m.gguf -c 4 -n 1 prompt.txt",
            [
                "perplexity -m m.gguf --ctx-size 4 --chunks 1 prompt.txt",
                "perplexity -m m.gguf --context 4 --windows 1 -f prompt.txt",
            ],
        ),
        (
            "printf Once | grammar-filter -g g.gbnf --check; echo $?",
            ["printf Once | grammar-filter --grammar-file g.gbnf --check; echo $?"],
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_other_spellings_do_the_same(folder, shown, others):
    (folder / "g.gbnf").write_text('root ::= "Once"')
    want = output(shown, folder)
    assert want
    for other in others:
        assert output(other, folder) == want, other


def test_old_spellings_are_taken():
    """Those that options had before they were renamed, by every command that had them."""
    for name, old in (
        *((name, "--max-ids") for name in ("generate", "chat", "sample")),
        *((name, "--capacity") for name in ("generate", "chat", "prefill")),
        ("perplexity", "--context"),
        ("mail-text", "--fold"),
        ("sluice-bench", "--against"),
    ):
        command = sluice.command(name)
        assert any(old in option.opts and old in option.aliases for option in command.params[:-1])


def test_no_spelling_means_two_options():
    for name in set(sluice.NAMES) - set(PROGRAMS):
        params = [p for p in sluice.command(name).params if p.param_type_name == "option"]
        spellings = [s for p in params for s in (*p.opts, *p.secondary_opts)]
        assert len(spellings) == len(set(spellings)), name


def test_messages_name_the_shown_spelling(folder):
    done = run("sample", "--temp", "x")
    assert done.returncode == faults.USAGE and b"-t/--temperature: " in done.stderr
    assert b"--temp:" not in done.stderr and b"--temp/" not in done.stderr


# -f -------------------------------------------------------------------------------------


@pytest.mark.full
def test_file_in_place_of_stdin(folder):
    for command in (
        "tokenize -m m.gguf",
        "tokenize -m m.gguf --count",
        "generate -m m.gguf -t 0 -n 4 --echo",
        "classify -m m.gguf -q language-is-english --json --no-cache | sed 's/\"ms\".*//'",
        "perplexity -m m.gguf -c 4",
    ):
        first, *rest = command.split(" | ")
        rest = "".join(" | " + part for part in rest)
        assert output(f"{first} -f prompt.txt{rest}", folder) == output(
            f"{first} <prompt.txt{rest}", folder
        )
        assert output(f"{first} -f - <prompt.txt{rest}", folder) == output(
            f"{first} --file prompt.txt{rest}", folder
        )
    assert output("tokenize -m m.gguf -d -f ids", folder) == b"Once upon a time"


def test_file_among_the_words_of_a_prompt(folder):
    start = "generate -m m.gguf -t 0 -n 1 --echo"
    text = "Once upon a time"
    for words, prompt in (
        ("-f prompt.txt", text),
        ("-f prompt.txt So:", f"So: {text}"),
        ("-f prompt.txt So: - End.", f"So: {text} End."),
        ("-f prompt.txt -s p.snap", text + text),
    ):
        assert output(f"{start} {words}", folder).decode().startswith(prompt), words


@pytest.mark.full
def test_file_that_cannot_be_read(folder):
    for argv, code, words in (
        (("-f", folder / "none"), 66, b"none: No such file"),
        (("-f", folder), 65, b"is a directory"),
    ):
        for command in ("tokenize", "generate", "classify", "perplexity", "chat"):
            done = run(command, "-m", folder / "m.gguf", *argv)
            assert done.returncode == code and words in done.stderr, command
            assert done.stdout == b"" and done.stderr.count(b"\n") == 1
    for command in ("classify", "perplexity"):
        prompt = folder / "prompt.txt"
        done = run(command, "-m", folder / "m.gguf", "-f", prompt, prompt)
        assert done.returncode == 64 and b"FILE and -f exclude each other" in done.stderr


# --count --------------------------------------------------------------------------------


@pytest.mark.full
def test_count_is_the_number_of_tokens(folder):
    for text in ("", "Once upon a time", "a" * 5000, "\\0\\377"):
        for options in ("", " --no-bos --eos", " --no-prefix"):
            say = f"printf '{text}' | tokenize -m m.gguf{options}"
            tokens = output(say, folder).splitlines()
            assert output(f"{say} --count", folder) == b"%d\n" % sum(i.isdigit() for i in tokens)


def test_count_refuses_what_has_no_text(folder):
    done = run("tokenize", "-m", folder / "m.gguf", "-d", "--count")
    assert done.returncode == 64 and b"--count and -d exclude each other" in done.stderr


TAKES = {  # what a further value of an option replaces; of all other texts it is refused
    *("--model", "--cache", "--preset", "--sampler-order", "--tool-choice"),
}


def options_of(name):
    main = importlib.import_module(f"sluice.commands.{name.replace('-', '_')}").main
    return main, [p for p in main.params if isinstance(p, click.Option) and not p.is_flag]


@pytest.mark.parametrize("name", [n for n in sluice.NAMES if n not in PROGRAMS])
def test_no_input_output_or_text_is_ignored_for_a_later_one(name):
    """An option with one value that is given twice is refused; a number or a setting is replaced."""
    main, options = options_of(name)
    for option in options:
        is_text = isinstance(option.type, click.types.StringParamType)
        takes = not is_text or option.multiple or TAKES.intersection(option.opts)
        for first, second in (option.opts[:1] * 2, (option.opts[0], option.opts[-1])):
            words = [first, "1", second, "2"]
            try:
                main.make_context(name, words)
                message = ""
            except (click.UsageError, faults.Error, OSError) as e:
                message = str(e)
            assert ("given twice" in message) == (not takes), (option.opts, message)


def test_option_given_twice_ends_the_command_in_one_line(folder):
    for script, option in (
        ("classify --csv body --csv from <prompt.txt", "--csv"),
        ("classify --learn yes --learn no <prompt.txt", "--learn"),
        ("generate -m m.gguf -f prompt.txt --file=nothing", "-f/--file"),
        ("classify --long --calibration a --calibration b <prompt.txt", "--calibration"),
    ):
        done = shell(script, folder)
        assert (done.returncode, done.stdout) == (64, b"") and done.stderr.count(b"\n") == 1
        assert f": {option}: given twice: it takes one value".encode() in done.stderr, script


def test_second_question_is_not_ignored_by_the_fast_start(folder):
    done = shell("classify --long -q spam -q urgent <prompt.txt", folder)
    assert (done.returncode, done.stdout) == (64, b"") and b"need one question" in done.stderr
