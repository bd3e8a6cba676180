"""gguf-dump: print a model, a snapshot or a stream."""

import os
import stat

from .. import cli, faults, gguf, stream
from ..gguf import dump, dump_tensor, printing
import click


@cli.command()
@cli.argument("path", metavar="[FILE]", required=False)
@cli.argument("key", metavar="[KEY]", required=False)
@cli.option(
    "--full",
    is_flag=True,
    group="Output",
    help="Print whole arrays and strings, all tokens and all logits.",
)
@cli.option(
    "--json",
    "as_json",
    is_flag=True,
    group="Output",
    help="Print JSON; for a stream one object per record.",
)
@cli.option("--hexdump", metavar="TENSOR", group="Output", help="Print the bytes of a tensor.")
@cli.option(
    "--values", metavar="TENSOR", group="Output", help="Print the elements of a tensor as f32."
)
@cli.option(
    "-n",
    "--count",
    type=click.IntRange(1, 1 << 24),
    metavar="N",
    default=256,
    group="Output",
    help="Number of bytes for --hexdump, or of elements for --values.",
)
@cli.option("--alone", is_flag=True, group="Input", help="Read only this file of a split model.")
@cli.option(
    "--check",
    is_flag=True,
    group="Output",
    help=(
        "Check a model for infinities and NaN, and print the tensors that have them; check the"
        " checksums of a snapshot."
    ),
)
def main(
    path: str | None,
    key: str | None,
    full: bool,
    as_json: bool,
    hexdump: str | None,
    values: str | None,
    count: int,
    alone: bool,
    check: bool,
) -> None:
    """Print a model, a snapshot or a stream.

    SYNOPSIS
      gguf-dump [OPTIONS] FILE [KEY]
      gguf-dump [OPTIONS] <FILE

    DESCRIPTION
      Read FILE or stdin; its first bytes tell the format. A stream is printed as it arrives. A
      model or snapshot must be a file (gguf-dump <FILE works, a pipe does not). The output is a
      table or JSON. Strings are escaped, so no control code in a file reaches the terminal.

      For a GGUF model the output is the header, the metadata with long values cut, and the tensors
      with shape (row length first), offset from the start of the file, and size in bytes. KEY
      prints the bare value of one key: a string with its newlines, an array with one element per
      line and escapes such as \\n. The header, all metadata and all tensor sizes are checked.

      The listing has the model ID, the BLAKE3 hash of the file. The first run reads the whole file
      for it; the hash is then kept in $XDG_CACHE_HOME/sluice or ~/.cache/sluice while the file does
      not change. FILE can be any file of a split model: the whole model is printed, with the file
      number of each tensor; --alone prints that file. Values above 64 KiB that no command needs are
      printed in full with KEY only.

    EXIT STATUS
      0   success
      1   no such key or tensor
      64  usage error
      65  invalid or truncated input; --check found an error
      66  no such file
      69  unsupported version or type
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      gguf-dump m.gguf
      gguf-dump m.gguf tokenizer.ggml.model
      gguf-dump --values token_embd.weight -n 64 m.gguf
      decode -m m.gguf p.snap <tokens | gguf-dump

    SEE ALSO
      tokenize, prefill, decode
    """
    if sum(map(bool, (key, hexdump, values, check))) > 1:
        raise click.UsageError("KEY, --hexdump, --values and --check exclude each other")
    if path is None and os.isatty(0):
        raise click.UsageError("FILE: missing argument, and standard input is a terminal")
    name = "standard input" if path is None else path
    fd = 0 if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise faults.data_error(name, "is a directory")
    start = stream.read_exactly(fd, 6)
    if start.startswith((b"GGUF", b"KVSNAP")) and not stat.S_ISREG(mode):
        raise faults.data_error(name, "is a model or snapshot in a pipe; give FILE")
    if start.startswith(b"GGUF"):
        return dump_model(
            path or "/dev/stdin", key, full, as_json, hexdump, values, count, alone, check
        )
    if not start.startswith((b"KVSNAP", b"LOGITS", b"#ids ")):
        raise faults.data_error(
            name,
            f"begins with {faults.printable(start)} instead of GGUF, KVSNAP, LOGITS or #ids"
            if start
            else "is empty",
        )
    if key or hexdump or values or alone or check and start != b"KVSNAP":
        raise click.UsageError(
            f"KEY, --hexdump, --values, --alone and --check: for models only, and {name} is none"
        )
    from ..gguf import dump_state

    if start == b"LOGITS":
        dump_state.dump_logits(fd, name, start, full, as_json)
    elif start != b"KVSNAP":
        dump_state.dump_tokens(fd, name, start, as_json)
    else:
        # SnapshotFile refuses links
        snapshot = dump_state.SnapshotFile(fd, path or os.path.realpath("/dev/stdin"))
        snapshot.check() if check else dump_state.dump_snapshot(snapshot, full, as_json)


def dump_model(
    path: str,
    key: str | None,
    full: bool,
    as_json: bool,
    hexdump: str | None,
    values: str | None,
    count: int,
    alone: bool,
    check: bool,
) -> None:
    """Print the GGUF model at `path`, or the part of it that the options choose."""
    file = gguf.File(path, alone)
    tensor = file.tensors.get(hexdump or values)
    if (key and key not in file.metadata) or ((hexdump or values) and tensor is None):
        name = faults.printable(key or hexdump or values or "")
        raise faults.Error(1, f"{path}: no {'key' if key else 'tensor'} {name}")
    if check:
        dump_tensor.check(file)
    elif hexdump:
        printing.put(dump_tensor.hexdump_lines(file, tensor, count))
    elif values and as_json:
        printing.put_json(
            [printing.json_number(x, gguf.F32) for x in dump_tensor.values(file, tensor, count)]
        )
    elif values:
        printing.put(dump_tensor.values_lines(file, tensor, count))
    elif key and as_json:
        dump.put_json_value(file, key)
    elif key:
        dump.put_value(file, key)
    elif as_json:
        printing.put_json(dump.model_json(file, full))
    else:
        printing.put(dump.model_lines(file, full))
