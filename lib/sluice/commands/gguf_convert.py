"""gguf-convert: convert models to GGUF and back, split and merge GGUF files."""

import os
import time

from .. import cli  # first: an interrupt during the other imports is silent
from .. import faults, gguf
from ..gguf import model_file
from ..system import files as paths
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
    help="Weight type of the matrices; vectors are always F32.",
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
    help="Version of a llama2.c checkpoint; needed for -1 and -2 only.",
)
@cli.option(
    "--to",
    metavar="FORMAT",
    type=click.Choice(["gguf", *VERSIONS]),
    default="gguf",
    group="Conversion",
    help="gguf; or convert a GGUF to a llama2.c checkpoint of version 0, 1, 2, -1 or -2.",
)
@cli.option(
    "--vocab-out",
    metavar="FILE",
    group="Output",
    help="With --to VERSION: write the vocabulary to FILE, tokenizer.bin or NAME.pb.",
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
    help="With --split-bytes: the first file has metadata only.",
)
@cli.threads_option
@cli.verbose_option
def main(
    source: str,
    out: str,
    kind: str | None,
    vocab: str | None,
    from_version: str | None,
    to: str,
    vocab_out: str | None,
    merge: bool,
    split_bytes: int | None,
    no_tensor_first_split: bool,
    threads: int | None,
    verbose: bool,
) -> None:
    """Convert models to GGUF and back, split and merge them.

    SYNOPSIS
      gguf-convert FOLDER -o m.gguf [OPTIONS]
      gguf-convert model.bin --vocab tokenizer.bin -o m.gguf [OPTIONS]
      gguf-convert m.gguf --to 0 -o model.bin --vocab-out tokenizer.bin
      gguf-convert m.gguf --split-bytes 2G -o big.gguf
      gguf-convert big-00001-of-00003.gguf --merge -o m.gguf

    DESCRIPTION
      Convert SOURCE and write FILE.

      FOLDER is a Hugging Face model: config.json, safetensors (sharded or not), and tokenizer.model
      or tokenizer.json. Supported families: llama (with Mistral and SmolLM), smollm3, mistral3
      (Ministral 3), granite (3, and dense 4), qwen2, qwen3, qwen35, phi3 (with Phi 4), gemma,
      gemma2, gemma3, gemma4, olmo2 and lfm2. Of a multimodal model the text part is converted, and
      stderr names the parts left out. An embedding model of sentence-transformers keeps its
      pooling; layers after the pooling are refused. Pickled weights (.bin, .pth, .pt) are refused:
      unpickling would run code from the file.

      Checkpoints of llama2.c have versions: 0, without a number; 1; 2, int8 in groups; -1 and -2,
      matrices of bf16 by rows and by columns. The int8 of version 2 becomes Q8_0, whose scales are
      F16; --type F32 keeps the values exactly. SOURCE can also be a llama.proto message with
      weights.

      TYPE is a type or mix of gguf-quantize, with the same meaning: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,
      Q4_K, Q5_K, Q6_K, F16, BF16, F32, Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M.

      --split-bytes writes NAME-00001-of-000NN.gguf, where FILE is NAME.gguf or NAME, like
      gguf-split of llama.cpp, which reads these files. All commands accept any file of such a
      model. All files are written, or none; none may exist before. --merge restores the bytes of
      the file that was split. Neither copies split.* keys of an unsplit file, keys of later files,
      or bytes after the last tensor; stderr reports them. Padding becomes zeros.

      Memory holds one part of a tensor at a time. On a terminal stderr shows the progress.

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
    version = int(from_version) if from_version else None
    if no_tensor_first_split and not split_bytes:
        raise click.UsageError("--no-tensor-first-split: needs --split-bytes")
    if merge or split_bytes:
        converts = kind or vocab or version is not None or to != "gguf" or vocab_out
        cli.refuse(
            merge and split_bytes or converts,
            "--merge and --split-bytes exclude each other, --type, --vocab, --from, --to and"
            " --vocab-out",
        )
        return copy(source, out, split_bytes, no_tensor_first_split, verbose)
    for path in (out, vocab_out):
        if path:
            paths.check_target(path, source, vocab)
    start(threads)
    if to != "gguf":
        if kind or vocab or version is not None:
            raise click.UsageError(
                "--type, --vocab and --from: not with --to VERSION, which reads a GGUF"
            )
        from ..convert import from_gguf

        return from_gguf.run(source, out, int(to), vocab_out, verbose)
    if vocab_out:
        raise click.UsageError("--vocab-out: needs --to VERSION")
    from ..convert import to_gguf

    if os.path.isdir(source):
        if vocab or version is not None:
            raise click.UsageError(
                "--vocab and --from: for checkpoints of llama2.c only; a folder has its vocabulary"
            )
        to_gguf.folder(source, out, kind, verbose)
    elif model_file.begins_as_gguf(source):
        raise faults.Error(
            faults.USAGE,
            f"{source}: is a GGUF; use gguf-quantize to change its type, --to VERSION for a"
            " checkpoint of llama2.c, or --split-bytes or --merge",
        )
    else:
        to_gguf.checkpoint(source, out, kind, vocab, version, verbose)


def copy(
    source: str,
    out: str,
    split_bytes: int | None,
    no_tensor_first_split: bool,
    verbose: bool,
) -> None:
    """Split a GGUF into files of at most `split_bytes`, or merge its files if that is None."""
    from ..cli import progress
    from ..gguf import resplit

    began, file = time.monotonic(), gguf.File(source)
    if not (split_bytes or "split.count" in file.metadata):
        raise faults.Error(faults.USAGE, f"{source}: is already one file: nothing to merge")
    if not split_bytes:
        paths.check_target(out, *(part.path for part in file.parts))
    for line in resplit.lost(file):
        cli.say(line)
    n_bytes = sum(t.n_bytes for t in file.tensors.values())
    with progress.shown(os.path.basename(out), n_bytes) as advance:
        if split_bytes:
            outputs = resplit.split(file, out, split_bytes, not no_tensor_first_split, advance)
        else:
            outputs = [out]
            resplit.merge(file, out, advance)
    if verbose:
        cli.report(
            tensors=len(file.tensors),
            files=len(outputs),
            bytes=sum(map(os.path.getsize, outputs)),
            ms=1e3 * (time.monotonic() - began),
            out=outputs[0],
        )
