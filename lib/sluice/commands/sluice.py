"""sluice: list all commands, show their manuals, print completion scripts.

lib/sluice/start.py runs `sluice COMMAND`.
"""

import os
import subprocess
import sys

from .. import cli, faults, stream
import click

# {group: {command: summary}}; the summaries are those of the manuals
COMMANDS = {
    "Everyday": {
        "classify": "classify a text with a language model",
        "decide": "answer typed questions about a state, as JSON",
        "generate": "generate text from a prompt",
        "chat": "chat with a model, at a terminal or through pipes",
        "embed": "print the vector of each text",
        "rerank": "order texts by how well they answer a query",
        "tokenize": "convert text to tokens, or tokens to text",
    },
    "Pipeline, after tokenize": {
        "prefill": "run tokens through a model and save its state",
        "decode": "run a model token by token and write its logits",
        "grammar-filter": "keep the logits of tokens that a grammar allows",
        "sample": "sample a token from each record of logits",
    },
    "Mail": {
        "mail-text": "convert a message to the text that its reader sees",
        "mail-filter": "mark a message with the answer of classify, for Postfix",
        "mail-milter": "mark messages while Postfix or Sendmail receives them",
    },
    "Model files": {
        "gguf-convert": "convert models to GGUF and back, split and merge them",
        "gguf-dump": "print a model, a snapshot or a stream",
        "gguf-quantize": "quantize the weights of a model",
    },
    "Measurement": {
        "perplexity": "compute a model's perplexity on a text",
        "sluice-bench": "measure how fast models run on this machine",
    },
}
OWN = {
    "help": "show the manual of a command",
    "completion": "print the completion script of a shell",
}
NAMES = [name for group in COMMANDS.values() for name in group]


@cli.command(allow_interspersed_args=False)
@cli.argument("words", nargs=-1, metavar="COMMAND [WORD]...", words=(*NAMES, *OWN))
def main(words: tuple[str, ...]) -> None:
    """Language models as Unix filters.

    SYNOPSIS
      sluice
      sluice COMMAND [WORD]...
      sluice help [COMMAND]
      sluice completion bash|zsh|fish

    DESCRIPTION
      Without arguments, list all commands. "sluice COMMAND" does the same as the separate program
      COMMAND, except for the name in its messages.

      "sluice help COMMAND" shows the manual page of a command, through man(1) on a terminal, else
      as plain text. "sluice completion SHELL" prints a script that completes commands, options,
      values and file names.

      An option that names a file, a column or a text is a usage error if it is given twice, unless
      it is repeatable. Of a number, or a setting such as -m, the last one counts. (mail-filter and
      mail-milter have rules of their own.)

      Postfix must start mail-filter itself, not "sluice mail-filter": only the separate program
      always exits with 0 or 75.

    EXIT STATUS
      0   success
      64  usage error, unknown command
      69  the command is not installed
      74  I/O error
      75  out of memory; retry
      "sluice COMMAND" exits with the status of COMMAND.

    EXAMPLES
      sluice classify --no-cache mail.eml
      sluice help classify
      sluice completion bash >sluice.bash

    SEE ALSO
      classify, generate, tokenize
    """
    if not words or words == ("help",):
        return stream.write_all(1, listing().encode())
    word, *rest = words
    if word == "help" and len(rest) == 1:
        return show(known(rest[0], [*NAMES, "sluice"]))
    if word == "completion" and len(rest) == 1:
        from ..cli import completion

        shell = known(rest[0], completion.SHELLS, "shell")
        names = (*NAMES, "sluice")
        own = {"help": completion.Value(names), "completion": completion.Value(completion.SHELLS)}
        return stream.write_all(1, completion.script(shell, described(), own).encode())
    if word in OWN:
        choices = "the name of a command" if word == "help" else "bash, zsh or fish"
        raise click.UsageError(f"{word}: needs one argument, {choices}")
    known(word, [*NAMES, *OWN])
    raise faults.Error(faults.UNSUPPORTED, f"{word}: is not installed")


ROWS = [
    f"{name}  {summary}" for group in (*COMMANDS.values(), OWN) for name, summary in group.items()
]
main.help = (main.help or "") + "\n    COMMANDS\n      " + "\n      ".join(ROWS)


def listing() -> str:
    """Return the list of all commands in their groups, one per line."""
    lines = ["Usage: sluice COMMAND [WORD]...", ""]
    for title, commands in [*COMMANDS.items(), ("Help", OWN)]:
        lines += [f" {title}", *(f"  {name:<16}{commands[name]}" for name in commands)]
    lines += ["", "Next: sluice COMMAND --help, for example sluice classify --help"]
    return "\n".join(lines) + "\n"


def known(word: str, words: "list[str] | tuple[str, ...]", kind: str = "command") -> str:
    """Return `word` if it is one of `words`. Raises UsageError that names similar ones."""
    if word in words:
        return word
    import difflib

    near = difflib.get_close_matches(word, words, 3, 0.5) or [w for w in words if word in w][:3]
    hint = f"; try {', '.join(near)}" if near else ""
    raise click.UsageError(f"{faults.printable(word)}: unknown {kind}{hint}")


def show(name: str) -> None:
    """Show the manual of a command, through man if stdout is a terminal, else as text."""
    from ..cli import manual

    page = manual_of(name)
    if not (os.isatty(1) and _man(manual.roff(page))):
        stream.write_all(1, manual.text(page).encode())


def _man(roff):
    """Show a page through man. Returns whether that succeeded."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
        file.write(roff)
        file.flush()
        try:
            return subprocess.run(["man", "-l", file.name], check=False).returncode == 0
        except OSError:
            return False


def manual_of(name: str) -> list:
    """Return the manual of a command (cli.manual).

    Raises UnsupportedError for a program that is not installed.
    """
    from .. import start
    from ..cli import manual

    if name in start.PROGRAMS:
        return manual.of_usage(usage_of(name))
    return manual.of_command(name, command(name))


def usage_of(name: str) -> str:
    """Run a C program with --help and return its output.

    Raises UnsupportedError if the program is not installed.
    """
    from .. import start

    path = start.program_path(sys.argv[0], name)
    if path is None:
        raise faults.Error(faults.UNSUPPORTED, f"{name}: is not installed")
    return subprocess.run([path, "--help"], check=True, capture_output=True, text=True).stdout


def command(name: str) -> click.Command:
    """Return the click command called `name`."""
    module = "sluice.commands." + name.replace("-", "_")
    return main if name == "sluice" else __import__(module, fromlist=["main"]).main


def described() -> "dict[str, click.Command | list]":
    """Return {name: click command, or rows of a C program's options} of all installed commands."""
    from .. import start

    out: dict = {name: command(name) for name in NAMES if name not in start.PROGRAMS}
    for name in start.PROGRAMS:
        if start.program_path(sys.argv[0], name):
            out[name] = dict(manual_of(name))["OPTIONS"]
    return out
