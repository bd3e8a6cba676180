"""grammar-filter: keep the logits of tokens that a grammar allows."""

import time

from .. import cli, stream
from ..grammar import matcher as grammar, sources
from ..grammar.constraint import Constraint
import click


@cli.command()
@cli.a_model_option("GGUF model; not needed with --check.")
@cli.vocab_option
@cli.grammar_options("Input")
@cli.option(
    "--complete-after",
    "close_after",
    type=click.IntRange(1),
    metavar="N",
    group="Output",
    help="After N tokens, or where the context is full, let only the shortest text follow that"
    " completes the grammar; omit -n of sample.",
)
@cli.option(
    "--check",
    is_flag=True,
    group="Output",
    help="Print nothing; exit with 0 if the text on stdin matches the grammar, else with 1.",
)
@cli.option(
    "--print",
    "is_print",
    is_flag=True,
    group="Output",
    help="Print the grammar as GBNF; read nothing.",
)
@cli.verbose_option
def main(
    model: str | None,
    vocab_file: str | None,
    rules: sources.Source,
    close_after: int | None,
    check: bool,
    is_print: bool,
    verbose: bool,
) -> None:
    """Keep the logits of tokens that a grammar allows.

    SYNOPSIS
      grammar-filter -m MODEL -g FILE [OPTIONS] <logits >logits
      grammar-filter -g FILE --check <text
      grammar-filter --json-schema SCHEMA --print

    DESCRIPTION
      Read records of logits, as decode or grammar-filter writes them. Write records with only the
      tokens whose text stays within the grammar; their logits do not change. The next record tells
      which token was chosen from a record. End-of-generation tokens are allowed exactly when the
      text is complete. The output ends when nothing can follow.

      The text is incomplete at the end only if the context is full or sample reached its -n tokens.
      For this case records have two marks: constrained, and may-end if the text is complete. From
      these sample prints "#end cut" for a text cut before its end, and tokenize -d exits with 1.

      Of text that the grammar leaves no choice about, a record keeps one candidate: the next token
      of this text by the vocabulary's own rules. -v prints forced=, the number of these records.
      With --complete-after N the text is closed by the shortest way behind N tokens, or where the
      context is full; sample then ends with "#end length" or "#end full", as with -n, but the text
      is complete.

      A GBNF grammar is that of llama.cpp: "text", [a-z], [^a-z], ., ( ), |, * + ? {m} {m,} {m,n}
      and named rules, starting with root. It applies to the bytes of UTF-8 text; <[1000]> and
      <think> are whole tokens, !<think> any other one. Left recursion is refused.

      --regex takes what RE2 and ECMAScript have in common, and matches from end to end. Lookaround,
      references to groups, word boundaries and flags are refused.

      --json-schema takes a JSON Schema of draft 2020-12, or spelled as in draft 7. A keyword that
      cannot be honoured is an error, which names its place; --json-schema-lax leaves it out.
      Properties come in the schema's order, declared ones before all others. One blank stands
      behind ":" and ",", and with --check it may be missing; --json-indent N lays the text out as
      Python's json.dumps(indent=N) does.

      With --check the text must match to its last byte: use printf rather than echo. --print
      prints any grammar as GBNF.

    EXIT STATUS
      0   success, also if -n or the context cut the text (see tokenize -d); --check: match
      1   --check: no match
      64  usage error
      65  invalid grammar (with line and column), expression or schema (with the path); invalid or
          truncated input; a token that the grammar does not allow; a text that ended before it was
          complete
      66  no such file
      69  keyword of a schema, or part of an expression, that is not supported; token terminals
          without a model
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      printf yes | grammar-filter -e 'root ::= "yes" | "no"' --check && echo match
      printf '[null, null]' |
        grammar-filter --json-schema '{"items": {"type": "null"}}' --check

    SEE ALSO
      decode, sample, tokenize
    """
    began = time.monotonic()
    if not rules.n_given:
        raise click.UsageError("give -g FILE, -e TEXT, --regex RE or --json-schema SCHEMA")
    if check and is_print:
        raise click.UsageError("--check and --print exclude each other")
    if close_after and (check or is_print):
        raise click.UsageError("--complete-after: not with --check or --print")
    if model is None and not (check or is_print):
        raise click.UsageError("-m/--model: missing option; give -m FILE or set $MODEL")
    if rules.schema == "-" and not is_print:
        raise click.UsageError("--json-schema -: stdin has the text or the logits")
    if is_print:
        from ..grammar import show

        syntax = rules.syntax()
        assert syntax is not None
        stream.write_all(1, show.gbnf(syntax))
        return
    compiled = rules.grammar(reads=check)
    assert compiled is not None
    if check or model is None:
        raise click.exceptions.Exit(0 if matches(grammar.Matcher(compiled)) else 1)
    cli.refuse_terminal("a stream of logits")
    from ..tokenizer import vocabulary
    from ..gguf.model_file import open_model

    file = open_model(model, vocab_file)
    words = vocabulary.Vocab(file)
    constraint = Constraint(grammar.Matcher(compiled, words), close_after)
    reader = stream.LogitsReader(0, b"LCE", model=file)
    if reader.n_vocab != words.n_vocab:
        raise stream.data_error(
            reader.name,
            f"vocabulary size {reader.n_vocab} differs from that of the model, {words.n_vocab}",
        )
    stream.write_all(1, stream.logits_header(file.id, reader.n_vocab))
    n_record = n_candidate = n_forced = 0
    for record in constraint.filter(reader):
        if record.kind == b"E":
            stream.end_quietly(1, record.pack())
            break
        stream.write_all(1, record.pack())
        n_record += 1
        n_forced += constraint.is_forced
        n_candidate += len(record.payload) // stream.CANDIDATE.size
    reader.finish()
    if verbose:
        cli.report(
            records=n_record,
            candidates=n_candidate,
            forced=n_forced,
            **({"closed": constraint.n_closing} if close_after else {}),
            ms=1e3 * (time.monotonic() - began),
        )


def matches(matcher: grammar.Matcher) -> bool:
    """Whether the text on stdin matches the grammar to its last byte."""
    while part := stream.read_some(0, stream.CHUNK_BYTES):
        if not matcher.feed(part):
            return False
    return matcher.complete
