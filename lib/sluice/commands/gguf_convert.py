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
@click.argument("source", metavar="SOURCE")
@click.option(
    "-o", "--out", metavar="FILE", required=True, help="Write the model here: whole, or not at all."
)
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    type=click.Choice(requantize.KINDS, case_sensitive=False),
    help="Type of matrices in a GGUF; vectors are always F32.  [default: what they are in SOURCE]",
)
@click.option(
    "--vocab",
    metavar="FILE",
    help=(
        "Vocabulary of a llama2.c checkpoint: tokenizer.bin, tokenizer.model or a llama.proto"
        " message."
    ),
)
@click.option(
    "--from",
    "from_version",
    metavar="VERSION",
    type=click.Choice(VERSIONS),
    help="Version of a llama2.c checkpoint; only -1 and -2 cannot be told by themselves.",
)
@click.option(
    "--to",
    metavar="FORMAT",
    type=click.Choice(["gguf", *VERSIONS]),
    default="gguf",
    help="gguf; or, of a GGUF, the version of llama2.c checkpoint to write.",
)
@click.option(
    "--vocab-out",
    metavar="FILE",
    help="With --to VERSION: write the vocabulary too, a tokenizer.bin or NAME.pb.",
)
@click.option("--merge", is_flag=True, help="Of a GGUF in several files: write one.")
@click.option(
    "--split-bytes",
    type=cli.Bytes(),
    metavar="N",
    help="Of a GGUF: write several files of at most N bytes; N can be such as 50M or 2G.",
)
@click.option(
    "--no-tensor-first-split",
    is_flag=True,
    help="With --split-bytes: the first file has the metadata alone.",
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
    """Convert a model to GGUF, or a GGUF to a llama2.c checkpoint; split a GGUF, or merge one.

    \b
    Usage: gguf-convert FOLDER -o m.gguf
           gguf-convert model.bin --vocab tokenizer.bin -o m.gguf
           gguf-convert m.gguf --to 0 -o model.bin --vocab-out tokenizer.bin
           gguf-convert m.gguf --split-bytes 2G -o big.gguf
           gguf-convert big-00001-of-00003.gguf --merge -o m.gguf

    FOLDER is a model as Hugging Face keeps it: config.json, safetensors (sharded or not), and
    tokenizer.model or tokenizer.json, of llama (with Mistral and SmolLM), gemma, gemma2, gemma3,
    qwen2, qwen3 or phi3. Weights that are pickles (.bin, .pth, .pt) are programs: they are refused,
    never run.

    Checkpoints of llama2.c have versions: 0, without a number; 1; 2, int8 in groups; -1 and -2,
    matrices of bf16 by rows and by columns. Version 2 keeps its int8 in Q8_0, whose scales are F16;
    --type F32 keeps it exactly. A llama.proto message with weights can be SOURCE, too.

    TYPE is one that gguf-quantize writes, a mix too, and means the same here: Q8_0, Q4_0, Q4_1,
    Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, F16, BF16, F32, Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M. A row that is no
    multiple of 256 takes Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, one that is no multiple of 32
    takes F16.

    --split-bytes writes NAME-00001-of-000NN.gguf, where FILE is NAME.gguf or NAME, as llama.cpp's
    gguf-split does, which reads them. All commands take such a model: give any one of its files.
    All files appear or none, and none may be there already. --merge gives back the bytes of the
    file that was split. What neither copies is said on stderr: keys split.* of a whole file, keys
    of later files, bytes behind the last tensor; padding becomes zeros.

    No more than a piece of a tensor is in memory; on a terminal stderr shows how far it is.

    \b
    Exit status: 0 done; 64 usage; 65 bad, cut or mismatched input; 66 no such file; 69 unsupported (named);
      73 cannot create FILE; 74 cannot read or write; 75 out of memory or disk.

    \b
    Example:  gguf-convert m.gguf --to 1 -o model.bin --vocab-out tokenizer.bin
              gguf-convert model.bin --vocab tokenizer.bin --type BF16 -o again.gguf
    See also: gguf-dump, gguf-quantize, tokenize.
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
        raise faults.Fault(
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
        raise faults.Fault(faults.USAGE, f"{source}: --merge: is one file already")
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
