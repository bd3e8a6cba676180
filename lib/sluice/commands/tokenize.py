"""tokenize: convert text to tokens, or tokens to text."""

import os
import time
from collections.abc import Callable
from typing import Any

from .. import cli, stream
from ..tokenizer import detokenizer, vocabulary
from ..gguf.model_file import open_model
import click

N_WRITE = 1 << 15  # tokens per write


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.text_option("Read FILE as standard input.")
@cli.option(
    "-d", "--decode", is_flag=True, group="Input", help="Convert tokens on stdin to text on stdout."
)
@cli.option(
    "--special",
    is_flag=True,
    group="Input",
    help="Parse control tokens in the text; with -d: print them.",
)
@cli.option(
    "--no-marks",
    is_flag=True,
    group="Input",
    help="Treat user-defined tokens that look like turn markers as text.",
)
@cli.option(
    "--no-prefix",
    is_flag=True,
    group="Input",
    help="Add no space before the text; with -d: do not remove the first space.",
)
@cli.option(
    "--bos/--no-bos",
    default=None,
    group="Output",
    show_default="the model's setting",
    help="Begin with the BOS token.",
)
@cli.option(
    "--eos/--no-eos",
    default=None,
    group="Output",
    show_default="the model's setting",
    help="End with the EOS token.",
)
@cli.option(
    "--count", "counts", is_flag=True, group="Output", help="Print only the number of tokens."
)
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    decode: bool,
    bos: bool | None,
    eos: bool | None,
    special: bool,
    no_marks: bool,
    no_prefix: bool,
    counts: bool,
    verbose: bool,
) -> None:
    """Convert text to tokens, or tokens to text.

    SYNOPSIS
      tokenize -m MODEL [OPTIONS] <text >tokens
      tokenize -m MODEL --count [OPTIONS] <text
      tokenize -m MODEL -d [OPTIONS] <tokens >text

    DESCRIPTION
      Read a text of at most 16 MiB, any bytes, and print its token IDs, one per line, between
      "#ids" and "#end text". An empty text gives the BOS token alone. Invalid UTF-8 becomes U+FFFD.
      Names of control tokens in the text stay text unless --special is given: never use it with
      untrusted text. User-defined tokens (runs of spaces, HTML tags, <think>) are recognized in
      every text, as in training. Some old files define turn markers this way; --no-marks treats
      those as text.

      -d reads tokens and prints their text as they arrive, in whole characters. Control tokens
      give no text. The space that many vocabularies add before a text is removed. The text is valid
      UTF-8: invalid bytes become U+FFFD, and an incomplete character at the end is dropped (-v
      prints its size as open, in bytes). On a terminal, control characters are shown as ^[.

      "#ids" has the model ID, the BLAKE3 hash of the file. The first run reads the whole file for
      it; the hash is then kept in $XDG_CACHE_HOME/sluice or ~/.cache/sluice while the file does not
      change.

      Supported vocabularies: SentencePiece BPE (tokenizer.ggml.model "llama"), byte-level BPE
      ("gpt2" with a known tokenizer.ggml.pre; the message names an unknown one) and Gemma 4
      ("gemma4"). Text is not normalized.

    EXIT STATUS
      0   success
      1   -d: the tokens end with "#end cut": the text was cut before its grammar was complete
      64  usage error
      65  invalid or truncated tokens; invalid model; text too long
      66  no such file
      69  unsupported vocabulary
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      printf %s 'Once upon a time' | tokenize -m m.gguf | tokenize -m m.gguf -d
      tokenize -m m.gguf --count -f prompt.txt

    SEE ALSO
      prefill, sample
    """
    start = time.perf_counter()
    if decode and (bos is not None or eos is not None):
        raise click.UsageError("--bos and --eos: not with -d")
    cli.refuse(decode and counts, "--count and -d exclude each other")
    file = open_model(model, vocab_file)
    words = vocabulary.Vocab(file)
    work = tokens_to_text if decode else text_to_count if counts else text_to_tokens
    figures, reason = work(
        file, words, special=special, marks=not no_marks, prefix=not no_prefix, bos=bos, eos=eos
    )
    if verbose:
        cli.report(**figures, ms=(time.perf_counter() - start) * 1e3)
    if reason == "cut":
        raise click.exceptions.Exit(1)


def text_to_count(file: Any, words: vocabulary.Vocab, **how: Any) -> tuple[dict[str, int], str]:
    """Print the number of tokens. Returns the statistics for -v and the reason of `#end`."""
    tokens, n_bytes = tokens_of_stdin(words, how)
    stream.write_all(1, b"%d\n" % len(tokens))
    return {"tokens": len(tokens), "bytes": n_bytes}, "text"


def tokens_of_stdin(words: vocabulary.Vocab, how: dict[str, Any]) -> tuple[list[int], int]:
    """Tokenize the text on stdin: (tokens, number of bytes). Raises DataError if it is too long."""
    data = stream.read_text(0)
    return words.encode(data, **how), len(data)


def text_to_tokens(file: Any, words: vocabulary.Vocab, **how: Any) -> tuple[dict[str, int], str]:
    """Print the tokens as a stream. Returns the statistics for -v and the reason of `#end`."""
    tokens, n_bytes = tokens_of_stdin(words, how)
    out = stream.tokens_header(file.id, words.n_vocab)
    for at in range(
        0, len(tokens), N_WRITE
    ):  # strings of all tokens would take more memory than all else
        if at:
            stream.write_all(1, out)
            out = b""
        out += "".join(f"{i}\n" for i in tokens[at : at + N_WRITE]).encode()
    stream.write_all(1, out + stream.tokens_end("text"))
    return {"tokens": len(tokens), "bytes": n_bytes}, "text"


def tokens_to_text(
    file: Any, words: vocabulary.Vocab, special: bool, prefix: bool, **_: Any
) -> tuple[dict[str, int], str | None]:
    """Print the text of the tokens on stdin.

    Writes whenever it would wait for the next token, so that the text of a generation loop appears
    at once. Returns the statistics for -v and the reason of `#end`.
    """
    reader = stream.TokenReader(0, file, words.n_vocab)
    joiner, show = detokenizer.Joiner(words, special, prefix), writer()
    n_tokens = n_bytes = 0
    try:
        for n_tokens, token in enumerate(reader, 1):
            joiner.add(token)
            if reader.is_waiting():
                n_bytes += show(joiner.fetch())
    finally:
        n_bytes += show(joiner.fetch())
    reader.finish()
    return {"tokens": n_tokens, "bytes": n_bytes, "open": joiner.n_open}, reader.reason


def writer() -> Callable[[bytes], int]:
    """Return a function that writes data to stdout, escaped on a terminal, and returns its size."""
    show: Callable[[bytes], None] = lambda data: stream.write_all(1, data)
    if os.isatty(1):
        from ..chat import terminal

        show = terminal.show

    def write(data: bytes) -> int:
        show(data)
        return len(data)

    return write
