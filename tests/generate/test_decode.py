"""prefill and decode, seen from outside: what they write, when they stop, what they leave."""

import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import sys

import pytest
from conftest import BIN, ROOT, SCRIPTS, ids_in, run, shell
from tiny_model import write_model

from sluice.gguf import File
from sluice.stream import FULL, HEADER, RECORD

N_VOCAB = 400


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("decode")
    write_model(str(d / "m.gguf"), type="q8_0", n_layer=1, n_vocab=N_VOCAB, n_ctx=64)
    (d / "ids").write_bytes(run("tokenize", "-m", d / "m.gguf", input=b"Some words").stdout)
    assert shell("prefill -m m.gguf -o p.snap <ids", d).returncode == 0
    return d


def head_of(files):
    return (files / "ids").read_bytes().splitlines(True)[0]


def records(out):
    """(kind, flags, pos, prev) of each record of a logits stream, to its end."""
    found, at = [], HEADER.size
    while at < len(out):
        kind, flags, _, n_bytes, pos, prev = RECORD.unpack_from(out, at)
        found.append((chr(kind), flags, pos, prev))
        at += RECORD.size + n_bytes
    assert at == len(out)
    return found


def test_decode_writes_its_first_record_before_reading(files):
    p = subprocess.Popen(
        [BIN / "decode", "-m", files / "m.gguf", files / "p.snap"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    want, got = HEADER.size + RECORD.size + 4 * N_VOCAB, b""
    while len(got) < want:
        assert select.select([p.stdout], [], [], 20)[0], "nothing came before an id was written"
        part = os.read(p.stdout.fileno(), want - len(got))
        assert part, "decode ended"
        got += part
    rest, _ = p.communicate(head_of(files) + b"#end stop\n", timeout=60)
    assert records(got + rest)[-1][0] == "E" and p.returncode == 0


@pytest.mark.parametrize("out", ["nowhere/x.snap", "directory", "m.gguf/x.snap", "/dev/full"])
def test_impossible_output_is_refused_before_the_work(files, out):
    (files / "directory").mkdir(exist_ok=True)
    before = sorted(os.listdir(files))
    for command in (["prefill", "-o", out], ["decode", "-o", out, "p.snap"]):
        # what it would say 65 of, had it looked
        done = run(*command, "-m", "m.gguf", cwd=files, input=b"garbage")
        assert (done.returncode, done.stdout) == (73, b"") and done.stderr.count(b"\n") == 1
        assert f": {out}: ".encode() in done.stderr
    assert sorted(os.listdir(files)) == before


def test_decode_positions_and_prev(files):
    n = len(ids_in((files / "ids").read_bytes()))
    out = run(
        "decode",
        "-m",
        files / "m.gguf",
        files / "p.snap",
        input=head_of(files) + b"7\n9\n#end stop\n",
    ).stdout
    # nobody asks what follows 9
    assert records(out) == [("L", 0, n, -1), ("L", 0, n + 1, 7), ("E", 0, n + 2, 9)]


def test_end_record_is_the_same_however_the_ids_arrive(files):
    n, tokens = len(ids_in((files / "ids").read_bytes())), head_of(files) + b"7\n9\n"
    p = subprocess.Popen(
        [BIN / "decode", "-m", files / "m.gguf", files / "p.snap"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    os.write(p.stdin.fileno(), tokens)
    out = p.stdout.read(HEADER.size + 3 * (RECORD.size + 4 * N_VOCAB))
    out += p.communicate(b"#end stop\n", timeout=60)[0]
    at_once = run(
        "decode", "-m", files / "m.gguf", files / "p.snap", input=tokens + b"#end stop\n"
    ).stdout
    assert records(out)[-1] == records(at_once)[-1] == ("E", 0, n + 2, 9)


def test_decode_stops_at_an_end_of_text_id(files):
    done = run(
        "decode",
        "-m",
        files / "m.gguf",
        files / "p.snap",
        input=head_of(files) + b"7\n2\n8\n#end stop\n",
    )
    assert [r[0] for r in records(done.stdout)] == ["L", "L", "E"] and done.returncode == 0


def test_decode_says_when_the_cache_is_full(files):
    n = len(ids_in((files / "ids").read_bytes()))
    done = run(
        "decode",
        "-m",
        files / "m.gguf",
        files / "p.snap",
        input=head_of(files) + b"7\n" * 100 + b"#end length\n",
    )
    found = records(done.stdout)
    assert done.returncode == 0 and len(found) == 64 - n + 2
    assert found[-1] == ("E", FULL, 65, 7)  # it tells the id for which there was no room
    chosen = run("sample", "-t", 0, input=done.stdout).stdout
    assert chosen.endswith(b"#end full\n")


def test_end_of_text_in_a_full_cache_is_a_stop(files):
    n = len(ids_in((files / "ids").read_bytes()))
    tokens = head_of(files) + b"7\n" * (64 - n) + b"2\n#end stop\n"
    done = run("decode", "-m", files / "m.gguf", files / "p.snap", input=tokens)
    assert records(done.stdout)[-1][:2] == ("E", 0) and run(
        "sample", input=done.stdout
    ).stdout.endswith(b"#end stop\n")


@pytest.mark.full
def test_decode_ends_though_its_writer_never_does(files, tmp_path):
    (tmp_path / "begin").write_bytes(head_of(files) + b"7\n2\n")
    done = shell(
        f"{{ cat begin; exec yes 7; }} | decode '{files}/p.snap' >out",
        tmp_path,
        timeout=60,
        MODEL=str(files / "m.gguf"),
    )
    assert done.returncode == 0 and [r[0] for r in records((tmp_path / "out").read_bytes())] == [
        "L",
        "L",
        "E",
    ]


def test_decode_saves_the_extended_cache(files, tmp_path):
    tokens = (files / "ids").read_bytes().splitlines(True)
    (tmp_path / "all").write_bytes(b"".join(tokens[:-1]) + b"7\n9\n2\n#end text\n")
    (tmp_path / "more").write_bytes(tokens[0] + b"7\n9\n2\n#end stop\n")
    env = {"MODEL": str(files / "m.gguf")}
    for rows in ("", "--rows 5,6"):
        done = shell(
            f"prefill -o a.snap <all && decode {rows} -o b.snap '{files}/p.snap' <more >/dev/null"
            " && cmp a.snap b.snap",
            tmp_path,
            **env,
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("rows", ["", ",", "5,-1", "+5", "1e3", "12345678", "\u00b2", "\u0663"])
def test_rows_that_are_no_ids_are_a_usage_error(files, rows):
    done = run("decode", "-m", files / "m.gguf", "--rows", rows, files / "p.snap")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (
        64,
        b"",
        1,
    ) and b"--rows" in done.stderr


def test_snapshot_is_private(files):
    assert stat.S_IMODE(os.stat(files / "p.snap").st_mode) == 0o600


def test_prefill_prints_nothing_with_o_and_the_name_with_cache(files, tmp_path):
    env = {"MODEL": str(files / "m.gguf")}
    assert shell(f"prefill -o p.snap <'{files}/ids'", tmp_path, **env).stdout == b""
    name = shell(f"prefill --cache c <'{files}/ids'", tmp_path, **env).stdout
    assert name.startswith(b"c/") and name.endswith(b".kv\n")
    assert shell(f"cmp p.snap {name.decode()}", tmp_path).returncode == 0
    both = shell(
        f"prefill -v --cache c -o q.snap <'{files}/ids' && cmp p.snap q.snap", tmp_path, **env
    )
    n = len(ids_in((files / "ids").read_bytes()))
    assert both.returncode == 0 and f"reused={n} ".encode() in both.stderr


def test_prefill_refuses_more_ids_than_the_context(files, tmp_path):
    tokens = head_of(files) + b"7\n" * 65 + b"#end text\n"
    done = run("prefill", "-m", files / "m.gguf", "-o", tmp_path / "x", input=tokens)
    assert done.returncode == 65 and b"context" in done.stderr and not (tmp_path / "x").exists()
    done = run("prefill", "-m", files / "m.gguf", "-c", 100, "-o", tmp_path / "x", input=tokens)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.full
def test_prefill_refuses_more_ids_than_a_snapshot_holds(tmp_path):
    write_model(str(tmp_path / "m.gguf"), n_layer=1, n_vocab=N_VOCAB, n_ctx=1 << 24)
    head = run("tokenize", "-m", tmp_path / "m.gguf").stdout.splitlines(True)[0]
    done = run(
        "prefill",
        "-m",
        tmp_path / "m.gguf",
        "-o",
        tmp_path / "x",
        input=head + b"7\n" * ((1 << 22) + 1) + b"#end text\n",
    )
    assert (
        done.returncode == 65
        and b"more than 4194304 tokens" in done.stderr
        and done.stderr.count(b"\n") == 1
    )


def test_prefill_refuses_a_cache_of_the_other_type(files, tmp_path):
    done = run(
        "prefill",
        "-m",
        files / "m.gguf",
        "--kv",
        "f32",
        "-s",
        files / "p.snap",
        "-o",
        tmp_path / "x",
        input=(files / "ids").read_bytes(),
    )
    assert done.returncode == 65 and b"--kv" in done.stderr


def test_prefill_goes_on_in_the_type_of_its_base(files, tmp_path):
    tokens, snaps = (
        (files / "ids").read_bytes(),
        [tmp_path / name for name in ("f32", "more", "named")],
    )
    assert (
        run(
            "prefill", "-m", files / "m.gguf", "--kv", "f32", "-o", snaps[0], input=tokens
        ).returncode
        == 0
    )
    assert (
        run(
            "prefill", "-m", files / "m.gguf", "-s", snaps[0], "-o", snaps[1], input=tokens
        ).returncode
        == 0
    )
    assert (
        run(
            "prefill",
            "-m",
            files / "m.gguf",
            "--kv",
            "f32",
            "-s",
            snaps[0],
            "-o",
            snaps[2],
            input=tokens,
        ).returncode
        == 0
    )
    assert b"stored as            F32" in run("gguf-dump", snaps[1]).stdout
    assert snaps[1].read_bytes() == snaps[2].read_bytes()


def test_instruction_set_is_named_and_checked(files):
    elsewhere = "avx2" if os.uname().machine == "aarch64" else "neon"
    for name, code in (("reference", 0), ("fast", 64), (b"\xff", 64), (elsewhere, 69)):
        p = subprocess.run(
            [BIN / "decode", "-m", files / "m.gguf", files / "p.snap"],
            input=head_of(files) + b"#end stop\n",
            capture_output=True,
            env={**os.environ, "SLUICE_ISA": name},
        )
        assert p.returncode == code, p.stderr


def test_model_changed_while_running_voids_the_result(files, tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes((files / "m.gguf").read_bytes())
    p = subprocess.Popen(
        [BIN / "decode", "-m", model, files / "p.snap"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    p.stdout.read(HEADER.size)
    os.utime(model)
    out, err = p.communicate(head_of(files) + b"#end stop\n", timeout=60)
    assert p.returncode == 74 and b"changed" in err and err.count(b"\n") == 1


def test_model_cut_while_running_ends_in_74(files, tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes((files / "m.gguf").read_bytes())
    p = subprocess.Popen(
        [BIN / "decode", "-m", model, files / "p.snap"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    p.stdout.read(HEADER.size)
    os.truncate(model, 20000)
    out, err = p.communicate(head_of(files) + b"7\n8\n#end stop\n", timeout=60)
    assert p.returncode == 74 and err.count(b"\n") == 1, err


def test_ids_that_sample_limits_end_the_ring_quietly(files, tmp_path):
    """sample -n cuts an answer short: that is no fault of any stage, and the stream says so."""
    (tmp_path / "long.gbnf").write_text("root ::= [a-z ]{40}")
    done = shell(
        f"""mkfifo ring
        {{ decode '{files}/p.snap' <ring; echo decode $? >&2; }} | {{ grammar-filter -g long.gbnf; echo filter $? >&2; }} |
          sample -S 1 -n 3 | tee ring >answer""",
        tmp_path,
        MODEL=str(files / "m.gguf"),
    )
    assert sorted(done.stderr.split(b"\n")) == [b"", b"decode 0", b"filter 0"]
    assert (tmp_path / "answer").read_bytes().endswith(b"#end cut\n") and len(
        ids_in((tmp_path / "answer").read_bytes())
    ) == 3


def test_binary_is_not_written_to_a_terminal(files):
    leader, follower = pty.openpty()
    for argv in (
        ["decode", "-m", files / "m.gguf", files / "p.snap"],
        ["grammar-filter", "-m", files / "m.gguf", "-e", 'root ::= "a"'],
    ):
        p = subprocess.run(
            [BIN / argv[0], *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        assert p.returncode == 64 and b"terminal" in p.stderr
    os.close(leader)
    os.close(follower)


def test_tool_is_found_by_any_path(tmp_path):
    """It looks for Python beside the checkout it is in: not beside a link to it or to its
    directory, nor where $CDPATH leads.
    """
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "-decode").symlink_to(BIN / "decode")
    (tmp_path / "a b" / "tools").symlink_to(BIN)
    env = {**os.environ, "CDPATH": "/:/usr"}
    for argv, cwd in (
        ([tmp_path / "a b" / "-decode"], "/"),
        ([tmp_path / "a b" / "tools" / "decode"], "/"),
        (["./tools/decode"], tmp_path / "a b"),
        (["bin/decode"], BIN.parent),
        (["sh", "decode"], BIN),
        (["a b//tools/./decode"], tmp_path),
        (["a b/tools/../bin/decode"], tmp_path),
        (["env", f"PATH=:{env['PATH']}", "decode"], BIN),
    ):
        p = subprocess.run([*argv, "--version"], capture_output=True, env=env, cwd=cwd)
        assert p.returncode == 0 and b"(sluice)" in p.stdout, (argv, p.stderr)


def test_checkout_without_make_is_an_error_message(tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "decode"
    tool.write_bytes((BIN / "decode").read_bytes())
    tool.chmod(0o755)
    p = subprocess.run([tool], capture_output=True)
    assert (p.returncode, p.stderr) == (69, b"decode: run make first\n")
    with open(tool) as gone:  # and one whose directory is no more looks for Python nowhere else
        shutil.rmtree(tool.parent)
        n = gone.fileno()
        p = subprocess.run(
            ["sh", "-x", f"/dev/fd/{n}"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            pass_fds=[n],
        )
    said = p.stderr.decode().splitlines()
    assert (
        p.returncode == 69
        and [line for line in said if line[0] != "+"] == [f"{n}: run make first"]
        and ".venv" not in "".join(said)
    )


def test_python_that_the_user_cannot_run_is_told_from_none(tmp_path):
    """One that make has found in a home that others do not get into, and one that is gone."""
    (tmp_path / "lib" / "sluice").mkdir(parents=True)
    (tmp_path / "lib" / "sluice" / "start.py").touch()
    shutil.copytree(BIN, tmp_path / "bin", symlinks=True)
    python = tmp_path / ".venv" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    said = (
        f"decode: {python}: this user cannot run it; run make with a Python that all users can"
        " read\n"
    )

    def start():
        p = subprocess.run([tmp_path / "bin" / "decode"], capture_output=True, text=True)
        return p.returncode, p.stdout, p.stderr

    assert start() == (69, "", "decode: run make first\n")
    python.write_text("")
    assert start() == (69, "", said)
    python.unlink()
    python.symlink_to(tmp_path / "gone" / "python3")
    assert start() == (69, "", said)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_tool_that_cannot_fork_gives_no_verdict(tmp_path):
    """2 is what a shell ends with that cannot fork, and what classify says of a mail that it is not
    sure of.
    """
    # as another user does not get into every home
    (tmp_path / "lib" / "sluice").mkdir(parents=True)
    (tmp_path / "lib" / "sluice" / "start.py").touch()
    shutil.copytree(BIN, tmp_path / "bin", symlinks=True)
    os.chmod(tmp_path, 0o755)
    limit = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1));"
        " os.chdir(sys.argv[1]); os.setgid(61999); os.setuid(61999); os.execv(sys.argv[2],"
        " sys.argv[2:])"
    )
    for name, code in ("bin/classify", 69), ("./bin/classify", 75):
        p = subprocess.run(["python3", "-c", limit, tmp_path, name], capture_output=True)
        assert p.returncode == code, (name, p.stderr)


@pytest.mark.full
def test_changed_model_finds_and_opens_no_snapshot(tmp_path):
    model = tmp_path / "m.gguf"
    write_model(str(model), type="q8_0", n_layer=1, n_vocab=N_VOCAB, n_ctx=64)
    tokens = run("tokenize", "-m", model, input=b"Some words").stdout
    common = "prefill", "-m", model, "--cache", tmp_path / "c", "-v"
    prefill = lambda tokens, *argv: run(*common, *argv, input=tokens)
    assert b" reused=0 " in prefill(tokens, "-o", tmp_path / "s").stderr
    assert b" reused=0 " not in prefill(tokens).stderr
    before, tensor = os.stat(model), max(File(str(model)).tensors.values(), key=lambda t: t.n_bytes)
    with open(model, "r+b") as f:
        f.seek(tensor.offset + tensor.n_bytes - 1)
        last = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([last[0] ^ 1]))
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = prefill(tokens)
    assert done.returncode == 65 and b"tokens made with model" in done.stderr
    assert b" reused=0 " in prefill(run("tokenize", "-m", model, input=b"Some words").stdout).stderr
    done = run("decode", "-m", model, tmp_path / "s", input=b"")
    assert done.returncode == 65 and b"s: made with model" in done.stderr


def test_prefill_refuses_a_second_stream(files, tmp_path):
    tokens = (files / "ids").read_bytes()
    done = run("prefill", "-m", files / "m.gguf", "-o", tmp_path / "x", input=tokens + tokens)
    n = tokens.count(b"\n") + 1
    assert (
        done.returncode == 65
        and f"line {n}: there is more after".encode() in done.stderr
        and not (tmp_path / "x").exists()
    )


def test_models_with_another_vocabulary_decode_up_to_their_end_of_text(files, tmp_path):
    """tokenize refuses them by name, but prefill and decode only need ids."""
    model = tmp_path / "bpe.gguf"
    write_model(str(model), type="f32", n_layer=1, n_vocab=N_VOCAB)
    data = model.read_bytes()
    key = b"tokenizer.ggml.model"
    at = data.index(key) + len(key) + 4 + 8
    assert data[at : at + 5] == b"llama"
    model.write_bytes(data[:at] + b"gpt-2" + data[at + 5 :])
    assert run("tokenize", "-m", model, input=b"x").returncode == 69
    tokens = b"#ids 1 model=%s vocab=%d\n1\n7\n#end text\n" % (
        File(str(model)).id[:8].hex().encode(),
        N_VOCAB,
    )
    assert run("prefill", "-m", model, "-o", tmp_path / "p", input=tokens).returncode == 0
    done = run("decode", "-m", model, tmp_path / "p", input=tokens.replace(b"1\n7\n", b"9\n2\n8\n"))
    assert done.returncode == 0 and [r[0] for r in records(done.stdout)] == ["L", "L", "E"]


@pytest.mark.parametrize("tool", SCRIPTS)
def test_directory_on_a_standard_stream_is_a_one_line_error(tool):
    directory = os.open("/", os.O_RDONLY)
    p = subprocess.run([BIN / tool], stdin=directory, capture_output=True)
    assert (p.returncode, p.stderr) == (65, f"{tool}: standard input: is a directory\n".encode())
    nothing = {"stdin": subprocess.DEVNULL}
    p = subprocess.run([BIN / tool], **nothing, stdout=directory, stderr=subprocess.PIPE)
    assert (p.returncode, p.stderr) == (74, f"{tool}: standard output: is a directory\n".encode())
    p = subprocess.run([BIN / tool], **nothing, stdout=subprocess.PIPE, stderr=directory)
    assert (p.returncode, p.stdout) == (74, b"")
    os.close(directory)


@pytest.mark.parametrize("ignored", [False, True])
def test_interrupts_while_a_command_starts(ignored):
    """SIGINT ends a starting command without a traceback; one that was started with it ignored
    leaves it so.
    """
    code = (
        "import signal\nfrom sluice import cli\nprint(signal.getsignal(signal.SIGINT).name,"
        " flush=True)\nimport os\nos.kill(os.getpid(), signal.SIGINT)\nprint('alive')"
    )
    p = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler
        ),
    )
    assert p.stderr == b"" and (p.returncode, p.stdout) == (
        (0, b"SIG_IGN\nalive\n") if ignored else (-signal.SIGINT, b"SIG_DFL\n")
    )


@pytest.mark.parametrize("tool", SCRIPTS)
def test_interrupt_handler_is_imported_first(tool):
    path = ROOT / "lib/sluice/commands" / (tool.replace("-", "_") + ".py")
    lines = [
        line
        for line in path.read_text().splitlines()
        if line.startswith(("from ..", "import click"))
    ]
    assert lines[0].startswith("from .. import cli")


def test_interrupt_of_a_running_command_ends_it_by_the_signal(files):
    p = subprocess.Popen(
        [BIN / "decode", "-m", files / "m.gguf", files / "p.snap"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # a background job has it ignored
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    p.stdout.read(HEADER.size)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert (p.returncode, err) == (-signal.SIGINT, b"")
