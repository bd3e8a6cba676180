"""Generate completion scripts for bash, zsh and fish from the declarations of all commands.

The scripts contain all words; completion runs no command.
"""

import re
import shlex
from typing import NamedTuple

import click

from . import manual

SHELLS = ("bash", "zsh", "fish")
FILES, DIRECTORIES = "files", "directories"


class Value(NamedTuple):
    """Completion of a value: words, and files with these suffixes ((): any), or directories."""

    words: tuple[str, ...] = ()
    kind: str | None = None
    suffixes: tuple[str, ...] = ()


class Flag(NamedTuple):
    """An option: spellings, one line of help, and its Value; None if it has no value."""

    names: tuple[str, ...]
    help: str
    value: Value | None


class Syntax(NamedTuple):
    """The words after a command's name: options, and the completion of all other words."""

    flags: list[Flag]
    words: Value


def script(shell: str, commands: dict[str, click.Command | list], own: dict[str, Value]) -> str:
    """Return the completion script for `shell`, one of SHELLS.

    commands: {name: click command, or the OPTIONS of a manual}. own: {subcommand of `sluice`: Value
    of the word after it}, besides the commands.
    """
    syntax = {
        name: _of_rows(given) if isinstance(given, list) else _of_command(given)
        for name, given in commands.items()
    }
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](syntax, own)


# Declarations ----------------------------------------------------------------------------


def _of_command(command):
    with click.Context(command, **command.context_settings) as context:
        params = command.get_params(context)
    options = [p for p in params if isinstance(p, click.Option) and not p.hidden]
    arguments = [p for p in params if isinstance(p, click.Argument)]
    flags = [
        Flag(
            (*manual.names_of(o), *o.secondary_opts),
            _line(o.help or ""),
            None if o.is_flag else _value(o),
        )
        for o in options
    ]
    values = [_value(a) for a in arguments]
    suffixes = {suffix for value in values for suffix in value.suffixes}
    words = tuple(word for value in values for word in value.words)
    return Syntax(flags, Value(words, FILES, tuple(sorted(suffixes))) if values else Value(words))


def _value(param):
    words = tuple(param.type.choices) if isinstance(param.type, click.Choice) else ()
    words = (*words, *getattr(param, "words", ()))
    if isinstance(param, click.Argument):
        return Value(words, FILES, param.files)
    return _named(manual.metavar_of(param), words, getattr(param, "files", ()))


def _named(metavar, words=(), suffixes=()):
    """Return the Value for a metavar."""
    if metavar in ("DIR", "DIRECTORY"):
        return Value(words, DIRECTORIES)
    is_file = suffixes or re.search(r"\b(FILE|PATH|SOCKET|BASE|SNAPSHOT)\b", metavar)
    return Value(words, FILES if is_file else None, tuple(suffixes))


def _of_rows(rows):
    """Return the Syntax of rows of a manual: "-m, --model FILE; -q, --question FILE|NAME"."""
    flags = []
    for _, head, help in (row for row in rows if row[0] == "row"):
        *names, last = head.split(", ")
        name, _, metavar = last.partition(" ")
        flags.append(Flag((*names, name), _line(help), _named(metavar) if metavar else None))
    return Syntax(flags, Value())


def _line(help):
    """Return the first sentence of a help text."""
    return re.split(r"[.;] |\.$| \[", help)[0]


# bash ------------------------------------------------------------------------------------

_BASH = """\
# bash completion for sluice and its commands, made by `sluice completion bash`

# _sluice_files [SUFFIX...]: complete files with one of these suffixes, and directories
_sluice_files() {
    local suffix IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    (($#)) || { COMPREPLY+=($(compgen -f -- "$cur")); return; }
    COMPREPLY+=($(compgen -d -- "$cur"))
    for suffix; do COMPREPLY+=($(compgen -f -X "!*.$suffix" -- "$cur")); done
}

_sluice_words() { COMPREPLY+=($(compgen -W "$1" -- "$cur")); }

_sluice() {
    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[0]##*/}
    COMPREPLY=()
    if [[ $cur == = ]]; then cur=
    elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
    if [[ $command == sluice ]]; then
        ((COMP_CWORD > 1)) || { _sluice_words '@WORDS@'; return; }
        command=${COMP_WORDS[1]}
    fi
    case "$command $before" in
@VALUES@
    esac
    case $command in
@COMMANDS@
    esac
}

complete -F _sluice sluice @NAMES@
"""


def _bash(syntax, own):
    values, commands = [], []
    for word, value in own.items():
        commands.append(f"    {word}) ((COMP_CWORD > 2)) || {_bash_value(value)} ;;")
    for name, (flags, words) in syntax.items():
        for flag in flags:
            if flag.value is not None:
                patterns = "|".join(f"'{name} {spelling}'" for spelling in flag.names)
                values.append(f"    {patterns}) {_bash_value(flag.value)} return ;;")
        names = " ".join(spelling for flag in flags for spelling in flag.names)
        commands.append(
            f"    {name}) if [[ $cur == -* ]]; then _sluice_words '{names}';"
            f" else {_bash_value(words)} fi ;;"
        )
    return _filled(_BASH, syntax, own, VALUES="\n".join(values), COMMANDS="\n".join(commands))


def _bash_value(value):
    out = f"_sluice_words {shlex.quote(' '.join(value.words))};" if value.words else ""
    if value.kind == FILES:
        out += " ".join(["_sluice_files", *value.suffixes]) + ";"
    elif value.kind == DIRECTORIES:
        out += 'compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$cur"));'
    return out or ":;"


def _filled(template, syntax, own, **parts):
    parts["WORDS"], parts["NAMES"] = " ".join([*syntax, *own]), " ".join(syntax)
    for key, value in parts.items():
        template = template.replace(f"@{key}@", value)
    return template


# zsh -------------------------------------------------------------------------------------

_ZSH = """\
#compdef sluice @NAMES@
# zsh completion for sluice and its commands, made by `sluice completion zsh`

# _sluice_either WORDS PATTERN: complete words, and files that match the pattern
_sluice_either() { _alternative "words:word:($1)" "files:file:_files -g '$2'"; }

_sluice_command() {
    case $1 in
@COMMANDS@
    esac
}

_sluice() {
    local command=${words[1]:t}
    if [[ $command == sluice ]]; then
        ((CURRENT > 2)) || { compadd -- @WORDS@; return; }
        command=$words[2]
        shift words
        ((CURRENT--))
    fi
    _sluice_command $command
}

if [[ $funcstack[1] == _sluice ]]; then _sluice "$@"; else compdef _sluice sluice @NAMES@; fi
"""


def _zsh(syntax, own):
    commands = [
        f"    {word}) _arguments {shlex.quote('1:' + word + ':' + _zsh_value(value))} ;;"
        for word, value in own.items()
    ]
    for name, (flags, words) in syntax.items():
        specs = [_zsh_flag(flag, spelling) for flag in flags for spelling in flag.names]
        specs += [f"*:file:{_zsh_value(words)}"] if words != Value() else []
        quoted = " \\\n        ".join(map(shlex.quote, specs))
        commands.append(f"    {name}) _arguments -s \\\n        {quoted} ;;")
    return _filled(_ZSH, syntax, own, COMMANDS="\n".join(commands))


def _zsh_flag(flag, spelling):
    others = f"({' '.join(flag.names)})" if len(flag.names) > 1 else ""
    help = "[" + re.sub(r"([][:])", r"\\\1", flag.help) + "]"
    if flag.value is None:
        return f"{others}{spelling}{help}"
    name = spelling + ("=" if spelling.startswith("--") else "+")
    return f"{others}{name}{help}:value:{_zsh_value(flag.value)}"


def _zsh_value(value):
    """Return the action of a specification for _arguments."""
    if value.kind == DIRECTORIES:
        return "_files -/"
    words = " ".join(value.words)
    if value.kind != FILES:
        return f"({words})" if words else " "
    # (gguf) alone would be a qualifier of the pattern
    many = "|".join(value.suffixes)
    pattern = "*" if not many else f"*.({many})" if "|" in many else f"*.{many}"
    # the leading space: _arguments adds no words of its own
    return f' _sluice_either "{words}" "{pattern}"' if words else f'_files -g "{pattern}"'


# fish ------------------------------------------------------------------------------------


def _fish(syntax, own):
    lines = [
        "# fish completion for sluice and its commands, made by `sluice completion fish`",
        "complete -c sluice -n __fish_use_subcommand -f"
        f" -a {shlex.quote(' '.join([*syntax, *own]))}",
    ]
    for word, value in own.items():
        lines.append(f"{_fish_of_sluice(word)} {_fish_value(value)}")
    for name, (flags, words) in syntax.items():
        for start in (f"complete -c {name}", _fish_of_sluice(name)):
            lines += [f"{start} {_fish_flag(flag)}" for flag in flags]
            lines.append(f"{start} {_fish_value(words)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fish_of_sluice(word):
    return f"complete -c sluice -n '__fish_seen_subcommand_from {word}'"


def _fish_flag(flag):
    names = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names]
    value = [] if flag.value is None else ["-r", _fish_value(flag.value)]
    help = flag.help.replace("\\", "\\\\").replace("'", "\\'")
    return " ".join([*names, *value, *([f"-d '{help}'"] if help else [])])


def _fish_value(value):
    if value.kind == DIRECTORIES:
        return "-f -a '(__fish_complete_directories)'"
    parts = [*value.words, *(f"(__fish_complete_suffix .{suffix})" for suffix in value.suffixes)]
    # __fish_complete_suffix lists other files, too, after those with the suffix
    flags = "-F" if value.kind == FILES and not value.suffixes else "-f"
    return f'{flags} -a "{" ".join(parts)}"' if parts else flags
