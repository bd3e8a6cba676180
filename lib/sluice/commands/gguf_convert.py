"""gguf-convert: models of other programs to GGUF, and back."""

import os
import time

from .. import cli  # first: an interrupt during the other imports is silent
from .. import faults, gguf
from ..gguf import model_file
from ..system import files as newfile
from ..quantize import requantize
from ..model.model import start
import click

VERSIONS = ["0", "1", "2", "-1", "-2"]


@cli.command()
@cli.argument("source", metavar="SOURCE")
@cli.option(
    "-o",
    "--out",
    metavar="FILE",
    required=True,
    group="Output",
    help="Write the model to FILE, atomically.",
)
@cli.option(
    "--type",
    "kind",
    metavar="TYPE",
    type=click.Choice(requantize.KINDS, case_sensitive=False),
    group="Conversion",
    show_default="as in SOURCE",
    help="Type of the matrices of a GGUF; vectors are always F32.",
)
@cli.option(
    "--vocab",
    metavar="FILE",
    files=("bin", "model", "pb"),
    group="Conversion",
    help=(
        "Vocabulary of a llama2.c checkpoint: tokenizer.bin, tokenizer.model or a llama.proto"
        " message."
    ),
)
@cli.option(
    "--from",
    "from_version",
    metavar="VERSION",
    type=click.Choice(VERSIONS),
    group="Conversion",
    help="Version of a llama2.c checkpoint; only -1 and -2 are not detected.",
)
@cli.option(
    "--to",
    metavar="FORMAT",
    type=click.Choice(["gguf", *VERSIONS]),
    default="gguf",
    group="Conversion",
    help="gguf, or the version of the llama2.c checkpoint to make of a GGUF.",
)
@cli.option(
    "--vocab-out",
    metavar="FILE",
    group="Output",
    help="With --to VERSION: write the vocabulary, too, to tokenizer.bin or NAME.pb.",
)
@cli.option(
    "--merge", is_flag=True, group="Conversion", help="Merge the files of a split GGUF into one."
)
@cli.option(
    "--split-bytes",
    type=cli.Bytes(),
    metavar="N",
    group="Conversion",
    help="Split a GGUF into files of at most N bytes, such as 50M or 2G.",
)
@cli.option(
    "--no-tensor-first-split",
    is_flag=True,
    group="Conversion",
    help="With --split-bytes: the first file contains metadata only.",
)
@cli.threads_option
@cli.verbose_option
def main(
    source,
    out,
    kind,
    vocab,
    from_version,
    to,
    vocab_out,
    merge,
    split_bytes,
    no_tensor_first_split,
    threads,
    verbose,
):
    """Convert models to GGUF and back, split and merge them.

    SYNOPSIS
      gguf-convert FOLDER -o m.gguf [OPTIONS]
      gguf-convert model.bin --vocab tokenizer.bin -o m.gguf [OPTIONS]
      gguf-convert m.gguf --to 0 -o model.bin --vocab-out tokenizer.bin
      gguf-convert m.gguf --split-bytes 2G -o big.gguf
      gguf-convert big-00001-of-00003.gguf --merge -o m.gguf

    DESCRIPTION
      FOLDER is a Hugging Face model: config.json, safetensors (sharded or not), and tokenizer.model
      or tokenizer.json. Supported families: llama (with Mistral and SmolLM), gemma, gemma2, gemma3,
      qwen2, qwen3 and phi3. Pickled weights (.bin, .pth, .pt) are programs: they are refused, never
      run.

      Checkpoints of llama2.c have versions: 0, without a number; 1; 2, int8 in groups; -1 and -2,
      matrices of bf16 by rows and by columns. The int8 of version 2 becomes Q8_0, whose scales are
      F16; --type F32 keeps the values exactly. SOURCE can also be a llama.proto message with
      weights.

      TYPE is a type or mix of gguf-quantize, with the same meaning: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,
      Q4_K, Q5_K, Q6_K, F16, BF16, F32, Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M. A row that is not a
      multiple of 256 takes Q5_0 for Q4_K, Q5_1 for Q5_K and Q8_0 for Q6_K; one that is not a
      multiple of 32 takes F16.

      --split-bytes writes NAME-00001-of-000NN.gguf, where FILE is NAME.gguf or NAME, like
      gguf-split of llama.cpp, which reads these files. All commands accept any file of such a
      model. All files are written, or none; none may exist before. --merge restores the bytes of
      the file that was split. stderr reports what neither copies: split.* keys of a whole file,
      keys of later files, bytes after the last tensor. Padding becomes zeros.

      Memory holds one piece of a tensor at a time. On a terminal stderr shows the progress.

    EXIT STATUS
      0   success
      64  usage error
      65  invalid, truncated or mismatched input
      66  no such file
      69  unsupported feature (named)
      73  cannot create FILE
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      gguf-convert m.gguf --to 1 -o model.bin --vocab-out tokenizer.bin
      gguf-convert model.bin --vocab tokenizer.bin --type BF16 -o again.gguf

    SEE ALSO
      gguf-dump, gguf-quantize, tokenize
    """
    version = from_version and int(from_version)
    if no_tensor_first_split and not split_bytes:
        raise click.UsageError("--no-tensor-first-split goes with --split-bytes")
    if merge or split_bytes:
        converts = kind or vocab or version is not None or to != "gguf" or vocab_out
        cli.refuse(
            merge and split_bytes or converts,
            "--merge and --split-bytes copy a GGUF as it is: "
            "without each other, --type, --vocab, --from, --to and --vocab-out",
        )
        return copy(source, out, split_bytes, no_tensor_first_split, verbose)
    for path in (out, vocab_out):
        if path:
            newfile.check_target(path, source, vocab)
    start(threads)
    if to != "gguf":
        if kind or vocab or version is not None:
            raise click.UsageError(
                "--type, --vocab and --from are about writing a GGUF: not with --to VERSION"
            )
        from ..convert import from_gguf

        return from_gguf.run(source, out, int(to), vocab_out, verbose)
    if vocab_out:
        raise click.UsageError("--vocab-out goes with --to VERSION")
    from ..convert import to_gguf

    if os.path.isdir(source):
        if vocab or version is not None:
            raise click.UsageError(
                "--vocab and --from are about checkpoints of llama2.c: a folder has its vocabulary"
            )
        to_gguf.folder(source, out, kind, verbose)
    elif model_file.begins_as_gguf(source):
        raise faults.Error(
            faults.USAGE,
            f"{source}: is a GGUF: --to VERSION makes a checkpoint of it, "
            "gguf-quantize another type, "
            "--split-bytes and --merge other files",
        )
    else:
        to_gguf.checkpoint(source, out, kind, vocab, version, verbose)


def copy(source, out, split_bytes, no_tensor_first_split, verbose):
    """--merge, or --split-bytes."""
    from ..cli import progress
    from ..gguf import resplit

    began, file = time.monotonic(), gguf.File(source)
    if not (split_bytes or "split.count" in file.metadata):
        raise faults.Error(faults.USAGE, f"{source}: --merge: is one file already")
    if not split_bytes:
        newfile.check_target(out, *(part.path for part in file.parts))
    for line in resplit.lost(file):
        cli.say(line)
    n_bytes = sum(t.n_bytes for t in file.tensors.values())
    with progress.shown(os.path.basename(out), n_bytes) as tell:
        if split_bytes:
            paths = resplit.split(file, out, split_bytes, not no_tensor_first_split, tell)
        else:
            paths = [out]
            resplit.merge(file, out, tell)
    if verbose:
        cli.report(
            tensors=len(file.tensors),
            files=len(paths),
            bytes=sum(map(os.path.getsize, paths)),
            ms=1e3 * (time.monotonic() - began),
            out=paths[0],
        )
