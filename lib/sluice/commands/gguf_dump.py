"""Print a model, a snapshot or a stream."""

import os
import stat

from .. import cli, faults, gguf, stream
from ..gguf import dump, dump_tensor, printing
import click


@cli.command()
@click.argument("path", metavar="[FILE]", required=False)
@click.argument("key", metavar="[KEY]", required=False)
@click.option(
    "--full", is_flag=True, help="All elements of arrays, all of strings, all ids and logits."
)
@click.option(
    "--json", "as_json", is_flag=True, help="The same as JSON; of a stream one object a record."
)
@click.option("--hexdump", metavar="TENSOR", help="The first bytes of a tensor.")
@click.option("--values", metavar="TENSOR", help="The first elements of a tensor, as f32.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 1 << 24),
    metavar="N",
    default=256,
    help="Bytes of --hexdump, elements of --values.",
)
@click.option(
    "--alone", is_flag=True, help="Of a model in several files this one, whatever the others are."
)
@click.option(
    "--check",
    is_flag=True,
    help="Look at every scale and float of a model, every checksum of a snapshot; "
    "print the tensors that hold infinities or NaN.",
)
def main(path, key, full, as_json, hexdump, values, count, alone, check):
    """Print a model, a snapshot or a stream; its first bytes say which it is.

    Reads FILE, or stdin without one: a stream is printed as it arrives, a model or
    snapshot must be a file (gguf-dump <FILE will do). stdout is aligned for reading, or
    JSON. Nothing in a file reaches the terminal as a control code: strings are escaped.

    Of a GGUF model: header, metadata with long values cut, and the tensors with shape (row length
    first), offset from the start of the file, and bytes. With KEY the bare value of one key: a
    string with its own newlines, an array one element a line, each with \\n and the like written
    out. The file is checked whole, but tensor data is read only to be printed, and all of it once
    for the model id of the listing, the BLAKE3 of the file; the id is kept in
    $XDG_CACHE_HOME/sluice or ~/.cache/sluice while the file stays as it is. FILE can be any shard
    of a model that is split: the model is printed, with the shard of each tensor, or with --alone
    that file. Values of more than 64 KiB that no command needs are written whole with KEY alone.

    \b
    Exit status:
      0 done                           64 usage
      1 no such key or tensor          65 bad or cut input; --check found something
      66 no such file                  69 a version or type this build does not know
      74 cannot read or write          75 out of memory
    \b
    Examples:
      gguf-dump m.gguf
      gguf-dump m.gguf tokenizer.ggml.model
      gguf-dump --values token_embd.weight -n 64 m.gguf
      decode -m m.gguf p.snap <ids | gguf-dump
    See also: tokenize, prefill, decode.
    """
    if sum(map(bool, (key, hexdump, values, check))) > 1:
        raise click.UsageError("KEY, --hexdump, --values and --check exclude each other")
    if path is None and os.isatty(0):
        raise click.UsageError("FILE is missing, and standard input is a terminal")
    name = "standard input" if path is None else path
    fd = 0 if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise faults.bad(name, "is a directory")
    start = stream.read_exactly(fd, 6)
    if start.startswith((b"GGUF", b"KVSNAP")) and not stat.S_ISREG(mode):
        raise faults.bad(name, "a model or snapshot from a pipe: name the file")
    if start.startswith(b"GGUF"):
        return dump_model(
            path or "/dev/stdin", key, full, as_json, hexdump, values, count, alone, check
        )
    if not start.startswith((b"KVSNAP", b"LOGITS", b"#ids ")):
        raise faults.bad(
            name,
            f"begins not with GGUF, KVSNAP, LOGITS or #ids but with {faults.printable(start)}"
            if start
            else "is empty",
        )
    if key or hexdump or values or alone or check and start != b"KVSNAP":
        raise click.UsageError(
            f"KEY, --hexdump, --values, --alone and --check are for models, and {name} is none"
        )
    from ..gguf import dump_state

    if start == b"LOGITS":
        dump_state.dump_logits(fd, name, start, full, as_json)
    elif start != b"KVSNAP":
        dump_state.dump_ids(fd, name, start, as_json)
    else:
        # --check takes no links
        snapshot = dump_state.SnapshotFile(fd, path or os.path.realpath("/dev/stdin"))
        snapshot.check() if check else dump_state.dump_snapshot(snapshot, full, as_json)


def dump_model(path, key, full, as_json, hexdump, values, count, alone, check):
    file = gguf.File(path, alone)
    tensor = file.tensors.get(hexdump or values)
    if (key and key not in file.metadata) or ((hexdump or values) and tensor is None):
        raise faults.Fault(
            1,
            f"{path}: no {'key' if key else 'tensor'} {faults.printable(key or hexdump or values)}",
        )
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
