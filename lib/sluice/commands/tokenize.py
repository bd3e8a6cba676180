import os
import time

from .. import cli, stream
from ..tokenizer import detokenizer, vocabulary
from ..gguf.model_file import open_model
import click

PIECE = 1 << 15  # ids written at once


@cli.command(options_metavar="[OPTIONS] <text >ids")
@cli.model_option
@cli.vocab_option
@click.option(
    "-d", "--decode", is_flag=True, help="The reverse: ids on stdin, their text on stdout."
)
@click.option(
    "--bos/--no-bos", default=None, help="Put the begin id first.  [default: as the model says]"
)
@click.option(
    "--eos/--no-eos", default=None, help="Put the end id last.  [default: as the model says]"
)
@click.option(
    "--special", is_flag=True, help="Let text become control tokens; with -d: write their text."
)
@click.option(
    "--no-marks",
    is_flag=True,
    help="Leave user-defined tokens that look like marks of turns as text.",
)
@click.option(
    "--no-prefix",
    is_flag=True,
    help="No blank before the text; with -d: leave the first blank where it is.",
)
@cli.verbose_option
def main(model, vocab_file, decode, bos, eos, special, no_marks, no_prefix, verbose):
    """Turn text into ids, or with -d ids into text (<ids >text).

    Reads a text of at most 16 MiB, any bytes, and writes its ids, one a line, between "#ids" and
    "#end text". An empty text gives the begin id alone. What is not UTF-8 becomes U+FFFD. Names of
    control tokens in the text stay text, unless --special is given: never give it for text that
    somebody else wrote. User-defined tokens (runs of blanks, HTML tags, <think>) come out of every
    text, as the model was trained; some old files have marks of turns among them, and --no-marks
    keeps those out.

    With -d it reads ids and writes each one's text as it arrives, but only whole characters;
    control tokens write nothing. The blank that many vocabularies put before a text is taken away
    again. The text is valid UTF-8: bytes that make no character become U+FFFD, and of a character
    that is open at the end nothing is written (-v tells: open, in bytes). To a terminal, control
    characters are shown as ^[.

    "#ids" names the model by the BLAKE3 of its file, of which every byte is read the first time;
    then the digest is kept in $XDG_CACHE_HOME/sluice or ~/.cache/sluice while the file stays as it
    is.

    The vocabulary is SentencePiece BPE (tokenizer.ggml.model "llama"), byte-level BPE ("gpt2", with
    a tokenizer.ggml.pre that is known; another is named in the message) or Gemma 4's ("gemma4").
    Text is not normalised.

    \b
    Exit status: 0 done; 1 -d: the ids end with "#end cut", so -n or the context cut the text before
      its grammar was complete; 64 usage; 65 bad or cut ids, bad model file, too much text;
      66 no such file; 69 other vocabulary; 74 cannot read or write; 75 out of memory.

    \b
    Example:  echo -n 'Once upon a time' | tokenize -m m.gguf | tokenize -m m.gguf -d
    See also: prefill, sample.
    """
    start = time.perf_counter()
    if decode and (bos is not None or eos is not None):
        raise click.UsageError("--bos and --eos are about writing ids: not with -d")
    file = open_model(model, vocab_file)
    words = vocabulary.Vocab(file)
    work = ids_to_text if decode else text_to_ids
    figures, reason = work(
        file, words, special=special, marks=not no_marks, prefix=not no_prefix, bos=bos, eos=eos
    )
    if verbose:
        cli.report(**figures, ms=(time.perf_counter() - start) * 1e3)
    if reason == "cut":
        raise click.exceptions.Exit(1)


def text_to_ids(file, words, **how):
    data = stream.read_text(0)
    ids = words.encode(data, **how)
    out = stream.ids_header(file.id, words.n_vocab)
    for at in range(0, len(ids), PIECE):  # a string for each id takes more memory than all else
        if at:
            stream.write_all(1, out)
            out = b""
        out += "".join(f"{i}\n" for i in ids[at : at + PIECE]).encode()
    stream.write_all(1, out + stream.ids_end("text"))
    return {"ids": len(ids), "bytes": len(data)}, "text"


def ids_to_text(file, words, special, prefix, **_):
    """Writes whenever the next id has yet to arrive, so that a ring is seen live.

    Returns the figures and the reason of `#end`."""
    reader = stream.IdReader(0, file, words.n_vocab)
    joiner, show = detokenizer.Joiner(words, special, prefix), writer()
    n_ids = n_bytes = 0
    try:
        for n_ids, i in enumerate(reader, 1):
            joiner.add(i)
            if reader.is_waiting():
                n_bytes += show(joiner.take())
    finally:
        n_bytes += show(joiner.take())
    reader.finish()
    return {"ids": n_ids, "bytes": n_bytes, "open": joiner.n_open}, reader.reason


def writer():
    """A function that writes bytes to stdout, to a terminal harmlessly, and returns how many."""
    if not os.isatty(1):
        return lambda data: stream.write_all(1, data) or len(data)
    from ..chat import terminal

    return lambda data: terminal.show(data) or len(data)
