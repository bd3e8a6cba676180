"""Keep of each logits record the ids that a grammar allows next."""

import time

from .. import cli, stream
from ..grammar import matcher as grammar
import click


@cli.command(options_metavar="-m FILE -g FILE [OPTIONS] <logits >logits")
@click.option(
    "-m",
    "--model",
    metavar="FILE",
    envvar="MODEL",
    show_envvar=True,
    help="GGUF file; not needed for --check.",
)
@cli.vocab_option
@click.option("-g", "--grammar", "path", metavar="FILE", help="Grammar in GBNF.")
@click.option(
    "-e", "--grammar-text", "text", metavar="TEXT", help="The grammar itself, in place of -g."
)
@click.option(
    "--check",
    is_flag=True,
    help="Only say by the exit status whether the text on stdin is a sentence of the grammar.",
)
@cli.verbose_option
def main(model, vocab_file, path, text, check, verbose):
    """Keep of each logits record the ids that a grammar allows next.

    Reads logits records, dense or candidates, and writes records of the ids whose text
    keeps the answer within the grammar, with their logits unchanged. The id chosen from a
    record is learnt from the next one. End-of-generation ids are allowed exactly when the answer is
    complete. The output ends when nothing may follow the answer; it never ends well with an
    answer that is not complete, unless the model's cache is full or sample has had its -n ids.
    Records are marked as constrained, and as may-end where the answer is complete: by these marks
    sample writes "#end cut" where an answer is cut before that, and tokenize -d ends with 1.

    The grammar is GBNF as llama.cpp has it: "text", [a-z], [^a-z], ., ( ), |, * + ? {m} {m,} {m,n}
    and named rules, of which `root` is the start. It works on the bytes of UTF-8 text. Left
    recursion is refused. Token terminals such as <[1000]> are not supported.

    With --check the text must match to its last byte: use printf rather than echo.

    \b
    Exit status: 0 done, also where -n or the cache cut the answer (tokenize -d tells), or the text
      matches; 1 --check: it does not match; 64 usage; 65 bad
      grammar (with line and column), bad or cut input, an id that the grammar does not allow, or
      an answer cut before it was complete; 66 no such file; 69 token terminals; 74 cannot read or
      write; 75 out of memory.

    \b
    Example:
      printf yes | grammar-filter -e 'root ::= "yes" | "no"' --check && echo matches

    See also: decode, sample, tokenize.
    """
    began = time.monotonic()
    if (path is None) == (text is None):
        raise click.UsageError("Give either -g FILE or -e TEXT.")
    if model is None and not check:
        raise click.UsageError("Missing option '-m' / '--model'.")
    rules = grammar.given(path, text)
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
        raise stream.bad(
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
