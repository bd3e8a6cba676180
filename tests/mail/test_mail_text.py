"""The command mail-text: text on stdout, 0 and one line of figures whatever the mail."""

import os
import re
import subprocess
import sys

import pytest
from conftest import BIN, ROOT, run
from test_mail import HUGE, nested


def fields(done):
    """The key=value pairs of the line that -v writes."""
    assert done.returncode == 0 and re.fullmatch(rb"mail-text: ([a-z]+=\S+ ?)+\n", done.stderr), (
        done.stderr
    )
    return dict(pair.split("=") for pair in done.stderr.decode().split()[1:])


def test_mail_text_writes_head_and_body():
    done = run("mail-text", input=b"From: a@b\nSubject: =?utf-8?q?=C3=A4?=\n\nbody")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "From: a@b\nSubject: ä\n\nbody\n".encode(),
        b"",
    )
    assert run("mail-text", "--body", input=b"From: a@b\n\nbody").stdout == b"body\n"
    assert (
        run("mail-text", "--fold", input=b"From: a@b\n\nCall 12!").stdout
        == b"From: a @ b\n\ncall 00 !"
    )
    assert (
        run("mail-text", "--fold", "--body", input=b"From: a@b\n\nCall\n12!").stdout == b"call 00 !"
    )


def test_mail_text_bytes_cuts_whole_characters():
    data = "Subject: x\n\näöü".encode()
    assert run("mail-text", "-n", 13, input=data).stdout == b"Subject: x\n\n"
    assert run("mail-text", "-n", 14, input=data).stdout == "Subject: x\n\nä".encode()
    assert len(run("mail-text", input=b"Subject: x\n\n" + b"word " * 200000).stdout) == 256 << 10


def test_mail_text_verbose_counts():
    html = (
        b"Subject: a\xe2\x80\x8bb\nContent-Type: text/html\n\n<p hidden>abc</p><!-- x --><a"
        b" href=http://a.example>x</a>"
    )
    got = fields(run("mail-text", "-v", input=html))
    assert {
        k: got[k] for k in ("hidden", "comments", "invisible", "links", "html", "parts", "reason")
    } == {
        "hidden": "3",
        "comments": "1",
        "invisible": "1",
        "links": "1",
        "html": "1",
        "parts": "1",
        "reason": "none",
    }
    assert got["bytes"] == str(len(html))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "data, reason",
    [
        (b"", "empty"),
        (b"\0\0\0", "empty"),
        (nested(1000), "depth"),
        (b"Subject: x\nContent-Type: text/html\n\nx" + b"<a " * 20000, "html"),
        (HUGE["newlines"], "empty,lines"),
        (HUGE["html"], "html,text"),
        (bytes(range(256)) * 400, "none"),
    ],
    ids=["empty", "nul", "nested", "tags", "newlines", "html", "binary"],
)
def test_mail_text_hostile_input_ends_in_0_and_a_reason(data, reason):
    assert fields(run("mail-text", "-v", input=data))["reason"] == reason


def test_mail_text_reads_no_more_than_its_limit():
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        done = run("mail-text", "-v", stdin=endless.stdout)
        endless.stdout.close()
    assert fields(done)["reason"] == "bytes,empty,text" and done.stdout == b""


def test_mail_text_of_a_directory(tmp_path):
    with_directory = os.open(tmp_path, os.O_RDONLY)
    done = run("mail-text", stdin=with_directory)
    os.close(with_directory)
    assert (done.returncode, done.stdout, done.stderr) == (
        65,
        b"",
        b"mail-text: standard input: is a directory\n",
    )


@pytest.mark.parametrize(
    "error, code, n_lines",
    [("ImportError('x.so: failed to map segment')", 75, 1), ("ModuleNotFoundError('lxml')", 70, 2)],
)
def test_unloadable_library_is_an_error_and_a_missing_one_is_internal(error, code, n_lines):
    script = (
        "import click\nfrom sluice import cli\n@cli.command()\ndef main():\n    raise"
        f" {error}\ncli.run(main)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert done.returncode == code and (
        done.stderr.count(b"\n") == 1 if n_lines == 1 else b"Traceback" in done.stderr
    ), done.stderr


def test_mail_text_needs_little_memory():
    script = f'ulimit -v 400000; exec "{BIN}/mail-text" -v'
    done = subprocess.run(["sh", "-c", script], input=HUGE["html"], capture_output=True, timeout=60)
    assert fields(done)["reason"] == "html,text"


def test_mail_text_fold_is_what_the_readme_shows():
    command, shown = re.search(
        r"<!-- fold -->\n```console\n\$ (.*)\n((?s:.*?))```\n",
        (ROOT / "lib" / "README.md").read_text(),
    ).groups()
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0 and done.stdout.decode() == shown
