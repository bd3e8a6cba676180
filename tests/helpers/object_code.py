"""Print a fingerprint of all machine code that `make` builds, or compare two such tables.

    python3 tests/helpers/object_code.py TREE >table
    python3 tests/helpers/object_code.py --compare OLD NEW

The tree is copied and its own Makefile builds the copy, with a compiler wrapper that writes down
each compilation; links are left out. TREE/build is neither read nor written. The groups:

    kernels      the library that Python loads          glue         what cffi generates for it
    mail-filter  the program that Postfix starts        mail-milter  where libmilter is installed
    tiles        the kernels with emulated tiles        arm-*        where the cross compiler is

A line of the table is `KIND GROUP NAME SHA256`; a name that occurs twice has two lines.

    object  one object file: its sections .text*, .rodata* and .data* with their relocations, by
            the symbol's name, and the size of .bss. Its name is the source's, without directories.
    symbol  one function or variable, whichever file holds it: its assembly without debugging,
            local labels numbered within it, constants and strings by their content. The order of
            functions in a file does not matter, nor whether one is static.
    bare    the same with every symbol's name replaced by one sign.

So a moved file keeps its object line. A file that is split changes its object line and keeps its
symbol lines. A renamed function keeps its bare line. What the compiler knows of other functions of
the file (inlining, registers they leave alone) may change when a function moves: then its symbol
line changes, and the comparison shows it. In tables made with --apart the compiler knows nothing
of other functions: where a file is split, these agree.

--compare prints what differs and ends with 1, or with 0 if nothing does. --symbols leaves the
objects out (for a split file), --bare also the names (for renamed symbols); --only and --but
choose groups: a header that is split reorders what cffi generates, `--but glue` leaves that out.

--map FILE has lines OLD=NEW. Given with TREE, it renames sources (`dispatch.c=matmul.c`) and
symbols, also those that code refers to; with --compare, only the names in the first column of OLD.

--cache DIR keeps compiled code by the digest of the preprocessed source and the flags: a file that
only moved is not compiled again.

It needs gcc and make, of Python packages cffi alone (TREE/.venv, or --python).
"""

import argparse
import collections
import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    "*.so",
    "*.o",
    "golden",
    "mails",
    "*.gguf",
    "training",
    "spam_training",
    "mail-filter",
    "mail-milter",
)
FLAGS = "-O3 -g0 -Wall -Wextra -Wvla"
APART = (  # what tells one function about another of its file
    " -fno-inline -fno-ipa-cp -fno-ipa-sra -fno-ipa-ra -fno-ipa-icf -fno-ipa-pure-const"
    " -fno-ipa-modref -fno-ipa-reference -fno-ipa-stack-alignment -fno-ipa-vrp"
    " -fno-ipa-bit-cp -fno-partial-inlining -fno-toplevel-reorder"
)
TARGETS = {
    "kernels": ["kernels"],
    "mail-filter": ["bin/mail-filter"],
    "mail-milter": ["bin/mail-milter"],
    "tiles": ["tiles"],
}
ARM = "aarch64-linux-gnu-gcc"


def main():
    if sys.argv[1:2] == ["--compiler"]:
        return compiler(json.loads(Path(sys.argv[2]).read_text()), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="+", metavar="TREE")
    parser.add_argument("--compare", action="store_true", help="the two arguments are tables")
    parser.add_argument("--symbols", action="store_true", help="compare symbols alone")
    parser.add_argument("--bare", action="store_true", help="compare code without names alone")
    parser.add_argument("--only", metavar="GROUPS", help="groups to compare or to build")
    parser.add_argument("--but", metavar="GROUPS", help="groups to leave out")
    parser.add_argument("--map", metavar="FILE", help="lines OLD=NEW: sources and symbols")
    parser.add_argument("--python", metavar="FILE", help="with cffi [TREE/.venv/bin/python3]")
    parser.add_argument("--apart", action="store_true", help="compile functions by themselves")
    parser.add_argument("--keep", metavar="DIR", help="build here, and leave it there")
    parser.add_argument("--cache", metavar="DIR", help="code of files compiled before")
    a = parser.parse_args()
    if len(a.trees) != (2 if a.compare else 1):
        parser.error("one TREE, or --compare OLD NEW")
    names = read_map(a.map)
    if a.compare:
        old, new = (read_table(path) for path in a.trees)
        old = [(kind, group, names.get(name, name), digest) for kind, group, name, digest in old]
        kinds = {"bare"} if a.bare else {"symbol"} if a.symbols else {"object", "symbol"}
        return compare(wanted(old, a), wanted(new, a), kinds)
    for line in sorted(table(Path(a.trees[0]).resolve(), a, names)):
        print(*line)
    return 0


def read_map(path):
    """Dict: old name -> new name, of a file of lines OLD=NEW."""
    lines = Path(path).read_text().split() if path else []
    return dict(line.split("=") for line in lines)


# Build


def table(tree, a, names):
    """The lines (kind, group, name, digest) of a tree."""
    with tempfile.TemporaryDirectory() as made:
        copy = Path(a.keep or made, "tree").resolve()
        shutil.copytree(tree, copy, ignore=LEFT_OUT, symlinks=True)
        python = tree / ".venv/bin/python3"
        python = a.python or (python if python.exists() else sys.executable)
        cache = str(Path(a.cache or made).resolve())
        Path(cache).mkdir(parents=True, exist_ok=True)
        flags = FLAGS + APART * a.apart
        lines, last = [], ""
        for group, cc, targets in groups(a):
            if cc != last:
                shutil.rmtree(copy / "build", ignore_errors=True)
            last = cc
            objects = collections.defaultdict(list)
            for source, out, text in built(copy, group, cc, targets, python, cache, flags):
                name = group.replace("kernels", "glue") if source.startswith("build/") else group
                text = Assembly((copy / text).read_text())
                if "glue" not in name and text.file_names():
                    print(f"{name}: {source} names files: {text.file_names()}", file=sys.stderr)
                objects[name].append((Path(source).name, (copy / out).read_bytes(), text))
            for name, found in objects.items():
                lines += lines_of(name, found, names)
        return lines


def groups(a):
    """(group, compiler, make's targets) of what can be built here and is asked for."""
    out = [(group, "gcc", targets) for group, targets in TARGETS.items()]
    if not any(
        Path(d, "libmilter/mfapi.h").exists() for d in ("/usr/include", "/usr/local/include")
    ):
        out = [o for o in out if o[0] != "mail-milter"]
        print("libmilter is not installed: no mail-milter", file=sys.stderr)
    if shutil.which(ARM):
        out += [(f"arm-{name}", ARM, TARGETS[name]) for name in ("kernels", "mail-filter")]
    else:
        print(f"{ARM} is not installed: no code for ARM", file=sys.stderr)
    only, but = (a.only or "").split(","), (a.but or "").split(",")
    return [o for o in out if (not a.only or o[0] in only) and o[0] not in but]


def built(copy, group, cc, targets, python, cache, flags):
    """Build `targets` in the copy; a list of (source, object, assembly)."""
    wrapper, log = copy.parent / f"{group}-cc", copy.parent / f"{group}.log"
    # Anchors address variables by their distance from others of the file.
    more = ["-fno-section-anchors"] if cc == ARM else []
    settings = copy.parent / f"{group}.json"
    settings.write_text(json.dumps({"cc": cc, "more": more, "log": str(log), "cache": cache}))
    this = [sys.executable, "-I", str(Path(__file__).resolve()), "--compiler", str(settings)]
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(this)} "$@"\n')
    wrapper.chmod(0o755)
    log.unlink(missing_ok=True)
    for name in ("mail-filter", "mail-milter"):
        (copy / "bin" / name).unlink(missing_ok=True)
    for library in copy.glob("lib/**/*.so"):
        library.unlink()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS"))}
    flags = f"{flags} -ffile-prefix-map={copy}=."
    done = subprocess.run(
        ["make", "-k", "-j2", *targets, f"CC={wrapper}", f"CFLAGS={flags}", f"PYTHON={python}"],
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{group}: make {' '.join(targets)}: {done.stderr[-3000:]}")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    if not rows:
        sys.exit(f"{group}: make {' '.join(targets)} compiled nothing")
    if group == "tiles":
        rows = [row for row in rows if "tiles" in Path(row[1]).parts]
    return rows


def compiler(settings, argv):
    """Do what the compiler is called for: links are left out, compilations are written down."""
    cc, log, cache = settings["cc"], settings["log"], Path(settings["cache"])
    if "-o" not in argv:
        os.execvp(cc, [cc, *argv])
    out = argv[argv.index("-o") + 1]
    if "-c" not in argv:
        Path(out).touch()
        return 0
    source = next(a for a in argv if a.endswith(".c"))
    flags = [a for a in argv if a not in ("-c", "-o", out, source, "-MMD", "-MP")] + settings[
        "more"
    ]
    text = subprocess.run([cc, *flags, "-E", "-P", source], capture_output=True, check=True).stdout
    ours = [a for a in flags if not a.startswith(("-I", "-D", "-ffile-prefix-map"))]
    version = subprocess.run([cc, "--version"], capture_output=True, check=True).stdout
    kept = cache / digest_of([repr((cc, version, ours, text))])
    if not kept.with_suffix(".o").exists():
        made = kept.with_suffix(f".{os.getpid()}")
        assembly, code = f"{made}.s", f"{made}.o"
        subprocess.run([cc, *flags, "-S", "-o", assembly, source], check=True)
        subprocess.run([cc, "-c", "-o", code, assembly], check=True)
        os.replace(assembly, kept.with_suffix(".s"))
        os.replace(code, kept.with_suffix(".o"))
    shutil.copy(kept.with_suffix(".s"), out + ".s")
    shutil.copy(kept.with_suffix(".o"), out)
    with open(log, "a") as file:
        file.write(json.dumps([source, out, out + ".s"]) + "\n")
    return 0


def lines_of(group, objects, names):
    """The lines of the objects of one group: a list of (source, bytes of the object, assembly)."""
    defined = {symbol for _, _, text in objects for symbol, _ in text.units()}
    defined = {names.get(symbol, symbol) for symbol in defined}
    for source, data, text in objects:
        yield "object", group, names.get(source, source), digest_of(sections(data, names))
        for symbol, lines in text.units():
            lines = [WORD.sub(lambda m: names.get(m[0], m[0]), line) for line in lines]
            yield "symbol", group, names.get(symbol, symbol), digest_of(lines)
            bare = [WORD.sub(lambda m: "@" if m[0] in defined else m[0], line) for line in lines]
            yield "bare", group, "-", digest_of(bare)


def digest_of(lines):
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# Assembly

WORD = re.compile(
    r"(?<![%\w.$])[A-Za-z_][\w$]*(\.[\w#]+)*"
)  # a symbol, or a mnemonic, or a register of ARM
LOCAL = re.compile(r"\.L[A-Za-z_]*\d+")
NUMBER = re.compile(r"(?<=\w)\.\d+(?![\w$])")  # known.0, f.constprop.1: counted through the file
DATA = re.compile(
    r"\s*\.([248]?byte|value|short|hword|word|xword|long|quad|octa|string|asciz?|zero"
    r"|skip|float|double|base64)\b"
)
STARTS_DATA = re.compile(r"\s*\.(section|text|data|bss)\b")
FILE_NAME = re.compile(r'"[^"]*\w\.[ch](\\0)?"$')


SIZES = {
    ".byte": 1,
    ".value": 2,
    ".hword": 2,
    ".short": 2,
    ".long": 4,
    ".word": 4,
    ".quad": 8,
    ".xword": 8,
}


def period(data):
    """The shortest part that makes `data` when it is repeated.

    The compiler lets a scalar be the first part of a vector constant where one file has both, so a
    constant may be longer in one file than in another. What is read of it, the instruction says.
    """
    sizes = (n for n in range(1, len(data) + 1) if len(data) % n == 0)
    return next((data[:n] for n in sizes if data[:n] * (len(data) // n) == data), data)


def is_string(line):
    return '"' in line and DATA.match(line)


class Assembly:
    """What the compiler wrote for one file, read line by line."""

    def __init__(self, text):
        self._lines = [self._clean(line) for line in text.splitlines()]
        self._lines = [line for line in self._lines if line]
        self._constants, self._units = {}, []
        self._read()

    @staticmethod
    def _clean(line):
        line = line.rstrip()
        if line.lstrip().startswith((".cfi_", "#", "//", ".loc ", ".file", ".ident")):
            return ""
        return line if is_string(line) else NUMBER.sub(".#", line).replace("@PLT", "")

    def file_names(self):
        """The strings that look like the name of a source file."""
        return [line.strip() for line in self._lines if DATA.match(line) and FILE_NAME.search(line)]

    def units(self):
        """(name, lines) of every function and variable; local labels are renumbered."""
        for name, lines in self._units:
            yield name, self._numbered(lines)

    def _numbered(self, lines):
        labels = {}

        def label(match):
            if match[0] in self._constants:
                return f"={self._content(match[0])}"
            return f".L{labels.setdefault(match[0], len(labels))}"

        return [line if is_string(line) else LOCAL.sub(label, line) for line in lines]

    def _content(self, label):
        """A digest of what stands at a constant's label."""
        data = self._bytes(label)
        if data is not None:
            return hashlib.sha256(period(data)).hexdigest()[:16]
        lines = self._constants[label]
        return digest_of(
            LOCAL.sub(lambda m: f"={self._content(m[0])}" if m[0] in self._constants else m[0], x)
            for x in lines
        )[:16]

    def _bytes(self, label):
        """The bytes of a constant of plain numbers, else None."""
        out = b""
        for line in self._constants.get(label, ["none"]):
            word, _, rest = line.strip().partition("\t")
            if word == ".set":
                other, _, offset = rest.partition("+")
                data = self._bytes(other)
                return None if data is None else data[int(offset or 0) :]
            if word in SIZES and re.fullmatch(r"-?\d+", rest):
                out += (int(rest) % (1 << 8 * SIZES[word])).to_bytes(SIZES[word], "little")
            elif word == ".zero" and rest.isdigit():
                out += bytes(int(rest))
            else:
                return None
        return out

    def _read(self):
        at, section, kinds, sizes = 0, ".text", {}, {}
        while at < len(self._lines):
            line = self._lines[at]
            word, _, rest = line.strip().partition("\t")
            at += 1
            if STARTS_DATA.match(line):
                section = rest.split(",")[0] if word == ".section" else word
                section = section.replace(".rel.ro.local", ".rel.ro")
            elif word == ".type":
                name, kind = (x.strip() for x in rest.split(","))
                kinds[name] = kind[1:]
            elif word == ".size":
                name, size = rest.split(",", 1)
                sizes[name] = size.strip()
            elif word in (".comm", ".lcomm"):
                name, size = rest.split(",", 1)
                self._units.append((name, [f".comm {size}"]))
            elif word == ".set":
                name, value = rest.split(",", 1)
                if LOCAL.fullmatch(name):
                    self._constants[name] = [f".set\t{value.strip()}"]
                else:
                    self._units.append((name, [f".set {value.strip()}"]))
            elif line.endswith(":") and LOCAL.fullmatch(line[:-1]):
                end = self._data_end(at)
                if end > at:
                    self._constants[line[:-1]] = self._lines[at:end]
                at = end
            elif line.endswith(":"):
                name = line[:-1]
                end = (
                    self._function_end(name, at)
                    if kinds.get(name) == "function"
                    else self._data_end(at)
                )
                head = [f"{kinds.get(name)} {section} {sizes.get(name, '')}"]
                self._units.append((name, head + self._body(at, end)))
                at = end

    def _data_end(self, at):
        while at < len(self._lines) and DATA.match(self._lines[at]):
            at += 1
        return at

    def _function_end(self, name, at):
        end = re.compile(rf"\s*\.size\s+{re.escape(name)}, *\.-")
        while not end.match(self._lines[at]):
            at += 1
        return at

    def _body(self, at, end):
        """Lines without labels that nothing refers to."""
        lines = self._lines[at:end]
        used = {label for line in lines if not line.endswith(":") for label in LOCAL.findall(line)}
        return [line for line in lines if not LOCAL.fullmatch(line[:-1]) or line[:-1] in used]


# Objects (System V ABI, ELF-64; little-endian)


def sections(data, names):
    """A line for each section of code, constants and variables: name, size, digest, relocations."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, number, strings = struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(number)]

    def string(at, of):
        start = heads[of][4] + at
        return data[start : data.index(b"\0", start)].decode()

    titles = [string(head[0], strings) for head in heads]
    relocations = {head[7]: head for head in heads if head[1] == 4}
    out = []
    for i, (title, head) in enumerate(zip(titles, heads)):
        if not re.match(r"\.(text|rodata|data|bss|tbss|tdata|init_array)\b", title) or not head[5]:
            continue
        body = b"" if head[1] == 8 else data[head[4] : head[4] + head[5]]  # SHT_NOBITS has none
        out.append(f"{title} {head[2]} {head[5]} {head[8]} {hashlib.sha256(body).hexdigest()}")
        if i in relocations:
            out += relocated(data, heads, titles, relocations[i], string, names)
    return sorted(out)


def relocated(data, heads, titles, head, string, names):
    """The relocations of one section (SHT_RELA) by the names of symbols."""
    symbols = heads[head[6]]
    for at in range(head[4], head[4] + head[5], 24):
        offset, info, addend = struct.unpack_from("<QQq", data, at)
        name, kind, _, section = struct.unpack_from("<IBBH", data, symbols[4] + (info >> 32) * 24)
        name = titles[section] if kind & 15 == 3 else string(name, head_strings(symbols))
        yield f"{titles[head[7]]}+{offset:x} {info & 0xFFFFFFFF} {names.get(name, name)}{addend:+}"


def head_strings(symbols):
    """The number of the section that holds the names of a table of symbols."""
    return symbols[6]


# Compare


def read_table(path):
    """The lines (kind, group, name, digest) of a table."""
    return [tuple(line.split()) for line in Path(path).read_text().splitlines()]


def wanted(lines, a):
    only, but = (a.only or "").split(","), (a.but or "").split(",")
    return [x for x in lines if (not a.only or x[1] in only) and x[1] not in but]


def compare(old, new, kinds):
    """Print what differs; 1 if anything does, else 0."""
    differs = 0
    for group in sorted({line[1] for line in old + new}):
        for kind in ("object", "symbol", "bare"):
            a, b = (digests(lines, kind, group) for lines in (old, new))
            names = [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
            n_same = sum(
                (collections.Counter(a.get(k)) & collections.Counter(b.get(k))).total() for k in a
            )
            n_old, n_new = (sum(map(len, x.values())) for x in (a, b))
            print(
                f"{group}: {kind}: {n_old} before, {n_new} after, {n_same} identical"
                + ("" if kind in kinds else " (does not count)")
            )
            if kind not in kinds:
                continue
            for name in names:
                print(f"    {kind} {group} {name}: {said(a.get(name, []), b.get(name, []))}")
            differs += len(names)
    print("identical" if not differs else f"{differs} differences")
    return int(differs > 0)


def digests(lines, kind, group):
    """Dict: name -> sorted digests."""
    out = collections.defaultdict(list)
    for a_kind, a_group, name, digest in lines:
        if (a_kind, a_group) == (kind, group):
            out[name].append(digest)
    return {name: sorted(found) for name, found in out.items()}


def said(old, new):
    if not old or not new:
        return "gone" if not new else "new"
    same = (collections.Counter(old) & collections.Counter(new)).total()
    return f"changed ({len(old)} before, {len(new)} after, {same} identical)"


if __name__ == "__main__":
    sys.exit(main())
