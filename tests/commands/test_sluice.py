"""sluice: the list of commands, commands under its name, their manuals, and what it refuses."""

import os
import pty
import shutil
import subprocess
import sys

import pytest
from conftest import BIN, ROOT, START, run
from tiny_model import write_model

from sluice import VERSION, start
from sluice.cli import manual, pages
from sluice.commands import sluice

MAIL = (ROOT / "tests" / "mails" / "ham-mutt.eml").read_bytes()


def test_list_has_each_command_on_a_line():
    for argv in ((), ("help",)):
        done = run("sluice", *argv)
        assert (done.returncode, done.stderr) == (0, b"")
        lines = done.stdout.decode().splitlines()
        assert all(len(line) <= 80 for line in lines)
        names = [line.split()[0] for line in lines if line.startswith("  ")]
        assert names == [*sluice.NAMES, *sluice.OWN]
        assert [line.strip() for line in lines if line.startswith(" ") and line[1] != " "] == [
            *sluice.COMMANDS,
            "Help",
        ]


def test_list_is_of_the_files_there_are():
    files = {p.stem.replace("_", "-") for p in (ROOT / "lib/sluice/commands").glob("*.py")}
    assert files - {"--init--", "sluice"} == set(sluice.NAMES) - set(start.PROGRAMS)
    links = {p.name for p in BIN.iterdir() if p.is_symlink()}
    assert links == set(sluice.NAMES) - set(start.PROGRAMS)


def test_summaries_are_those_of_the_manuals():
    for commands in sluice.COMMANDS.values():
        for name, summary in commands.items():
            if name not in start.PROGRAMS:
                page = manual.of_command(name, sluice.command(name))
                assert manual.summary_of(page) == (name, summary)


@pytest.mark.full
def test_command_runs_as_the_separate_one(tmp_path):
    """The same output, status and files, by all that a pipeline needs."""
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=400)
    model = tmp_path / "m.gguf"
    for argv, data in (
        (("tokenize", "-m", model), b"hello"),
        (("tokenize", "-m", model, "-d"), b"no stream"),
        (("classify", "--long", "--no-cache"), MAIL),
        (("classify", "--json", "-q", "no-such-question"), MAIL),
        (("mail-text", "--normalize"), MAIL),
        (("gguf-dump", model, "general.architecture"), b""),
        (("sample", "-t", "-1"), b""),
        (("mail-filter", "--deliver", "stdout", "--classify", "/bin/false"), MAIL),
        (("mail-filter", "--frob"), MAIL),
    ):
        alone, under = run(*argv, input=data), run("sluice", *argv, input=data)
        assert (under.returncode, under.stdout) == (alone.returncode, alone.stdout), argv
        said = under.stderr.decode().replace("sluice " + argv[0], argv[0])
        assert said == alone.stderr.decode()


def test_messages_name_the_command_as_it_was_called(tmp_path):
    (tmp_path / "lm").symlink_to(BIN / "sluice")
    for program, name in ((BIN / "sluice", "sluice"), (tmp_path / "lm", "lm")):
        done = subprocess.run([program, "sample", "--frob"], capture_output=True, text=True)
        hint = f"(see {name} sample --help)"
        assert done.returncode == 64 and done.stderr.startswith(f"{name} sample: ")
        assert done.stderr.endswith(hint + "\n")
    assert run("sluice", "sample", "-V").stdout.decode() == f"sluice sample (sluice) {VERSION}\n"
    assert run("sluice", "-V").stdout.decode() == f"sluice (sluice) {VERSION}\n"


def test_program_gets_the_signals_it_would_have(tmp_path):
    """Python ignores SIGPIPE and SIGXFSZ; a program that it becomes must not."""
    (tmp_path / "sluice").symlink_to(BIN / "sluice")
    probe = tmp_path / "mail-filter"
    probe.write_text('#!/bin/sh\ngrep SigIgn /proc/$$/status; echo "$0 $*"\n')
    probe.chmod(0o755)
    alone = subprocess.run([probe, "a", "b c"], capture_output=True, text=True).stdout
    done = subprocess.run(
        [tmp_path / "sluice", "mail-filter", "a", "b c"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == alone


def test_program_that_is_not_there_is_69(tmp_path):
    """Not beside sluice, nor beside what that is a link to."""
    code = f"import sys; sys.argv = ['{tmp_path}/sluice', 'mail-milter']; import sluice.start as s"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; s._become(sys.argv[0], 'mail-milter')"],
        capture_output=True,
        env={"PYTHONPATH": str(ROOT / "lib")},
    )
    assert (done.returncode, done.stdout) == (69, b"")
    assert done.stderr == b"sluice: mail-milter: is not installed in the directory of sluice\n"


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    "argv, words",
    [
        (("clasify",), ["unknown command", "classify"]),
        (("clasify", "--long"), ["unknown command", "classify"]),
        (("tokenise", "-m", "x"), ["unknown command", "tokenize"]),
        (("dump",), ["unknown command", "gguf-dump"]),
        (("zzz",), ["unknown command"]),
        (("",), ["unknown command"]),
        (("gguf_dump",), ["unknown command", "gguf-dump"]),
        (("--init--",), ["no such option"]),
        (("../commands/sample",), ["unknown command"]),
        (("--frob",), ["no such option"]),
        (("help", "clasify"), ["unknown command", "classify"]),
        (("help", "classify", "chat"), ["needs one argument"]),
        (("completion",), ["bash, zsh or fish"]),
    ],
)
def test_refused_with_64(argv, words):
    done = run("sluice", *argv)
    assert (done.returncode, done.stdout) == (64, b"")
    said = done.stderr.decode()
    assert said.startswith("sluice: ") and said.count("\n") == 1
    assert all(word in said for word in words), said


@pytest.mark.full
def test_no_command_costs_another_ones_start():
    """`sluice COMMAND` imports what COMMAND does, and nothing more."""

    def imported(*argv):
        done = subprocess.run(
            [sys.executable, "-I", "-X", "importtime", START, *argv],
            capture_output=True,
            text=True,
            input=MAIL.decode(),
        )
        return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}

    for words in (("sample", "-V"), ("mail-text", "-V"), ("classify", "--long", "--no-cache")):
        alone = imported(BIN / words[0], *words[1:])
        assert alone and imported(BIN / "sluice", *words) == alone
    assert "click" not in imported(BIN / "sluice", "classify", "--long", "--no-cache")
    everything = imported(BIN / "sluice")
    assert not any(name.startswith("sluice.commands.") for name in everything - {SELF})


SELF = "sluice.commands.sluice"


def test_help_is_the_text_without_a_terminal():
    for name in ("classify", "mail-filter", "sluice"):
        done = run("sluice", "help", name)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == manual.text(pages.page(name))
    text = run("sample", "--help").stdout
    assert run("sluice", "help", "sample").stdout == text == run("sluice", "sample", "-h").stdout


@pytest.mark.parametrize("man", ["there", "failing", "absent"])
def test_help_at_a_terminal_goes_through_man(tmp_path, man):
    """Through `man -l PAGE`; as text if man is absent or fails."""
    if man != "absent":
        fake = tmp_path / "man"
        fake.write_text(
            '#!/bin/sh\n[ "$1" = -l ] && head -n 1 "$2"\n' + f"exit {int(man == 'failing')}\n"
        )
        fake.chmod(0o755)
    for name in ("sh", "head", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [BIN / "sluice", "help", "sample"], stdout=theirs, env={"PATH": str(tmp_path)}
    )
    os.close(theirs)
    out = b""
    try:
        while part := os.read(ours, 4096):
            out += part
    except OSError:  # its end, of a terminal
        pass
    os.close(ours)
    assert process.wait() == 0
    assert (b".TH SAMPLE 1 " in out) == (man != "absent")
    assert (b"SYNOPSIS\r\n" in out) == (man != "there")
