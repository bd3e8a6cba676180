"""Completion scripts: each shell reads its own, and completes commands, options, values, files."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from conftest import BIN, run

FILES = ("a.gguf", "with blank.gguf", "b.txt", "q.yaml", "d/e.gguf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory of files, and beside it, in ../scripts, the three scripts."""
    d = tmp_path_factory.mktemp("completion") / "files"
    (d / "d").mkdir(parents=True)
    (d / "../scripts").mkdir()
    for name in FILES:
        (d / name).touch()
    for shell in ("bash", "zsh", "fish"):
        done = run("sluice", "completion", shell)
        assert (done.returncode, done.stderr) == (0, b"")
        (d / "../scripts" / shell).write_bytes(done.stdout)
    return d


def needed(shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not on this machine: its completion is not tested")


def by_bash(folder, *words):
    """What bash completes the last of `words` to."""
    code = """source ../scripts/bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _sluice
        ((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}" """
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "words, answers",
    [
        (("sluice", "cl"), ["classify"]),
        (("sluice", "co"), ["completion"]),
        (("sluice", "help", "gguf-d"), ["gguf-dump"]),
        (("sluice", "completion", ""), ["bash", "fish", "zsh"]),
        (("classify", "--mo"), ["--mode", "--model"]),
        (("sluice", "classify", "--mo"), ["--mode", "--model"]),
        (("/usr/bin/classify", "--learn"), ["--learn", "--learned-by", "--learned-in"]),
        (("classify", "-m", ""), ["a.gguf", "d", "with blank.gguf"]),
        (("classify", "-m", "d/"), ["d/e.gguf"]),
        (("generate", "--model", "=", "a"), ["a.gguf"]),
        (("generate", "--model", "="), ["a.gguf", "d", "with blank.gguf"]),
        (("sluice", "classify", "--arithmetic", ""), ["exact", "fast"]),
        (("classify", "-q", "s"), ["sentiment", "spam"]),
        (("classify", "-q", "q"), ["q.yaml"]),
        (("classify", "--cache", ""), ["d"]),
        (("classify", ""), sorted(["a.gguf", "b.txt", "d", "q.yaml", "with blank.gguf"])),
        (("gguf-quantize", "Q4_K"), ["Q4_K", "Q4_K_M", "Q4_K_S"]),
        (("mail-filter", "--sp"), ["--spool", "--spool-limit"]),
        (("sample", ""), []),
        (("sample", "--seed", ""), []),
        (("sluice", "no-such-command", ""), []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_bash(folder, words, answers):
    needed("bash")
    assert sorted(by_bash(folder, *words)) == answers


def test_bash_completes_every_option_of_every_command(folder):
    """As --help lists them."""
    needed("bash")
    for tool in sorted(p.name for p in BIN.iterdir()):
        if tool == "sluice":
            continue
        page = run("sluice", "help", tool).stdout.decode()
        rows = re.split("\nOPTIONS\n|\n  Also accepted|\nEXIT STATUS\n", page)[1].splitlines()
        heads = [row[2:] for row in rows if row.startswith("  -")]
        flags = {
            word.rstrip(",;")
            for head in heads
            for word in head.split("   ")[0].split()
            if word.startswith("-")
        }
        assert len(flags) >= 4 and flags == set(by_bash(folder, tool, "-")), tool


def test_fish(folder):
    needed("fish")

    def complete(line):
        done = subprocess.run(
            ["fish", "--no-config", "-c", "source ../scripts/fish; complete -C $argv", line],
            cwd=folder,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return dict(row.partition("\t")[::2] for row in done.stdout.splitlines())

    assert set(complete("sluice cl")) == {"classify"}
    assert set(complete("sluice completion ")) == {"bash", "zsh", "fish"}
    assert set(complete("sluice help gguf-d")) == {"gguf-dump"}
    for start in ("classify", "sluice classify"):
        found = complete(f"{start} --mo")
        assert set(found) == {"--mode", "--model"} and found["--model"] == "GGUF model"
        assert set(complete(f"{start} --arithmetic ")) == {"exact", "fast"}
    assert {"a.gguf", "with blank.gguf", "d/"} <= set(complete("generate -m "))
    assert "spam" in complete("classify -q ")
    assert "--spool" in complete("mail-filter --sp")


def test_zsh_at_a_terminal(folder):
    """Words typed, then a tab: the line that zsh shows has the rest."""
    needed("zsh")
    start = "autoload -Uz compinit && compinit -u -D && source ../scripts/zsh; echo RE''ADY\n"
    pid, fd = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execve(
            shutil.which("zsh"),
            ["zsh", "-f", "-i"],
            {"PATH": "/usr/bin:/bin", "TERM": "dumb", "HOME": str(folder), "COLUMNS": "200"},
        )
    try:
        os.write(fd, start.encode())
        out = read_until(fd, "READY")
        assert "READY" in out, out
        for typed, shown in (
            ("sluice clas", "sluice classify"),
            ("sluice classify --huge", "classify --huge-pages"),
            ("classify --huge", "classify --huge-pages"),
            ("classify --arithmetic e", "--arithmetic exact"),
            ("generate -m a", "generate -m a.gguf"),
            ("generate --model d/", "d/e.gguf"),
            ("sluice completion f", "completion fish"),
            ("sluice help gguf-d", "help gguf-dump"),
            ("mail-filter --worker", "--worker-only"),
            ("classify -q sen", "-q sentiment"),
            ("classify -q q", "-q q.yaml"),
        ):
            os.write(fd, b"\x15" + typed.encode() + b"\t")  # ^U: an empty line first
            assert shown in read_until(fd, shown), typed
    finally:
        os.close(fd)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def read_until(fd, text, seconds=60):
    """What a terminal gets until it has `text`, or the time is over."""
    out, end = "", time.monotonic() + seconds
    while text not in out and time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            out += os.read(fd, 4096).decode(errors="replace").replace("\r", "")
    return out


def test_scripts_run_no_command(folder):
    """A script is text alone: completion starts no process of sluice."""
    needed("bash")
    code = (
        'set -e; source ../scripts/bash; COMP_WORDS=(classify --) COMP_CWORD=1; _sluice; echo "$0"'
    )
    done = subprocess.run(
        [shutil.which("bash"), "--norc", "-c", code],
        cwd=folder,
        capture_output=True,
        env={"PATH": "/nowhere"},
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_unknown_shell_is_named_with_those_there_are():
    done = run("sluice", "completion", "bas")
    assert done.returncode == 64 and done.stdout == b""
    assert b'sluice: "bas": unknown shell; try bash' in done.stderr
    assert run("sluice", "completion").returncode == 64
