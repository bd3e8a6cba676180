"""grammar-filter: the logits of tokens that a grammar allows."""

import time

from .. import cli, stream
from ..grammar import matcher as grammar
import click


@cli.command()
@cli.option(
    "-m",
    "--model",
    metavar="FILE",
    envvar="MODEL",
    show_envvar=True,
    show_default="$MODEL",
    files=("gguf",),
    group="Model",
    help="GGUF model; not needed with --check.",
)
@cli.vocab_option
@cli.option(
    "-g",
    "--grammar",
    "path",
    aliases=("--grammar-file",),
    metavar="FILE",
    files=("gbnf",),
    group="Input",
    help="Grammar (GBNF).",
)
@cli.option(
    "-e",
    "--grammar-text",
    "text",
    metavar="TEXT",
    group="Input",
    help="The grammar itself, instead of -g.",
)
@cli.option(
    "--check",
    is_flag=True,
    group="Output",
    help="Print nothing; exit with 0 if the text on stdin matches the grammar, else with 1.",
)
@cli.verbose_option
def main(model, vocab_file, path, text, check, verbose):
    """Keep the logits of tokens that a grammar allows.

    SYNOPSIS
      grammar-filter -m MODEL -g FILE [OPTIONS] <logits >logits
      grammar-filter -g FILE --check <text

    DESCRIPTION
      Read records of logits, dense or candidates. Write records of the tokens whose text stays
      within the grammar, with unchanged logits. The token chosen from a record is known from the
      next record. End-of-generation tokens are allowed exactly when the text is complete. The
      output ends when nothing may follow. It never ends successfully with an incomplete text,
      unless the KV cache is full or sample reached its -n tokens. Records are marked as
      constrained, and as may-end where the text is complete: by these marks sample prints "#end
      cut" for a text cut before its end, and tokenize -d exits with 1.

      The grammar is the GBNF of llama.cpp: "text", [a-z], [^a-z], ., ( ), |, * + ? {m} {m,} {m,n}
      and named rules, starting with `root`. It applies to the bytes of UTF-8 text. Left recursion
      is refused. Token terminals such as <[1000]> are not supported.

      With --check the text must match to its last byte: use printf rather than echo.

    EXIT STATUS
      0   success, also if -n or the KV cache cut the text (tokenize -d tells); --check: match
      1   --check: no match
      64  usage error
      65  invalid grammar (with line and column); invalid or truncated input; a token that the
          grammar does not allow; a text that ended before it was complete
      66  no such file
      69  token terminals
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      printf yes | grammar-filter -e 'root ::= "yes" | "no"' --check && echo match

    SEE ALSO
      decode, sample, tokenize
    """
    began = time.monotonic()
    if (path is None) == (text is None):
        raise click.UsageError("Give either -g FILE or -e TEXT.")
    if model is None and not check:
        raise click.UsageError("Missing option '-m' / '--model'.")
    rules = grammar.of_options(path, text)
    if check:
        raise click.exceptions.Exit(0 if matches(grammar.Matcher(rules)) else 1)
    cli.refuse_terminal("a stream of logits")
    from ..tokenizer import vocabulary
    from ..gguf.model_file import open_model

    file = open_model(model, vocab_file)
    words = vocabulary.Vocab(file)
    matcher = grammar.Matcher(rules, words)
    reader = stream.LogitsReader(0, b"LCE", model=file)
    if reader.n_vocab != words.n_vocab:
        raise stream.data_error(
            reader.name,
            f"logits of a vocabulary of {reader.n_vocab}, but the model has {words.n_vocab}",
        )
    stream.write_all(1, stream.logits_header(file.id, reader.n_vocab))
    n_record = n_candidate = 0
    for record in grammar.filter_records(reader, matcher):
        if record.kind == b"E":
            stream.end_quietly(1, record.pack())
            break
        stream.write_all(1, record.pack())
        n_record += 1
        n_candidate += len(record.payload) // stream.CANDIDATE.size
    reader.finish()
    if verbose:
        cli.report(records=n_record, candidates=n_candidate, ms=1e3 * (time.monotonic() - began))


def matches(matcher):
    """Whether everything on stdin is a sentence of the matcher's grammar."""
    while part := stream.read_some(0, stream.CHUNK_BYTES):
        if not matcher.feed(part):
            return False
    return matcher.complete
