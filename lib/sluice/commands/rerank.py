"""rerank: order texts by how well they answer a query."""

import time

from .. import cli
from ..cli import many_texts
import click


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.option("-q", "--query", metavar="TEXT", required=True, group="Input", help="The query.")
@cli.option(
    "--instruct",
    metavar="TEXT",
    group="Input",
    show_default="a web search",
    help="What the search is for, in a sentence.",
)
@many_texts.options("rank COLUMN", each="line")
@cli.option(
    "-n",
    "--top",
    type=click.IntRange(1),
    metavar="N",
    group="Output",
    show_default="all",
    help="Print only the N best.",
)
@cli.option(
    "--json", "as_json", is_flag=True, group="Output", help="Print a JSON object for each text."
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    query: str,
    instruct: str | None,
    top: int | None,
    as_json: bool,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
    reading: many_texts.Reading,
) -> None:
    """Order texts by how well they answer a query.

    SYNOPSIS
      rerank -m MODEL -q QUERY [OPTIONS] <lines
      rerank -m MODEL -q QUERY [OPTIONS] FILE|FOLDER...
      rerank -m MODEL -q QUERY --each line|--jsonl|--csv COLUMN [OPTIONS] [FILE]

    DESCRIPTION
      Read texts and print them, the best first: the probability that the text answers the query, a
      tab, and the line, or the name of the file or row. Texts are the lines of stdin, unless FILEs
      or an option say otherwise. Texts with equal probabilities stay in their order.

      The model is asked of each text whether it meets the query, yes or no, in the form of
      Qwen3-Reranker; the probability is that of yes among the two. A file with a template of its
      own (tokenizer.chat_template.rerank) or rows of its own for yes and no (cls.output.weight) is
      asked by these. Any chat model can be asked, but one that was not trained for it orders
      poorly; at a terminal rerank says so, as far as keys and name of the model tell. Query
      and texts never become control tokens. Of a text at most 8192 tokens are read, less if the
      model's context is shorter.

      --json prints objects with score, name, and of a line text; --jsonl reads objects with id and
      text, and prints score and id; last come those with id and error.

      A probability has the same bits for a text alone or among others, and for any thread count,
      instruction set and processor.

    EXIT STATUS
      0   every text was ranked, or is empty
      64  usage error
      65  invalid model or input; some texts have errors, the others were ranked
      66  no such file
      69  unsupported model or arithmetic
      74  I/O error
      75  out of memory or disk space; retry

    EXAMPLES
      rerank -m m.gguf -q 'where does it rain most?' <prompt.txt
      rerank -m m.gguf -q 'how to install' -n 3 docs

    SEE ALSO
      embed, classify
    """
    began = time.monotonic()
    from ..rerank import prompt

    for name, text in (("-q", query), ("--instruct", instruct)):
        if text is not None:
            try:
                prompt.check(name, text)
            except ValueError as e:
                raise click.UsageError(str(e)) from None
    from ..classify import many
    from ..model.model import Model
    from ..rerank.ranking import Ranking
    from ..rerank.reranker import Reranker

    m = Model(model, threads, arithmetic, vocab_file, huge_pages)
    reranker = Reranker(m, query, instruct, reading.is_mail)
    ranking = Ranking("id" if reading.texts.jsonl else "name" if as_json else None)
    n = reading.put(reranker, reading.source(), ranking)
    ranking.print(top)
    many_texts.say_cut(reranker.n_cut)
    texts = reading.texts
    if n.all == 1 and not (n.bad or texts.each or texts.jsonl or texts.column) and texts.paths:
        cli.hint(f"{texts.paths[0]}: is one text; --each line ranks the lines of a file")
    if not prompt.is_trained(m.file):
        cli.hint(f"{m.file.path}: no reranker by its keys and name; its order may be poor")
    if verbose:
        ms = 1e3 * (time.monotonic() - began)
        cli.report(texts=n.all, tokens=reranker.n_tokens, ms=ms)
    raise click.exceptions.Exit(many.outcome(n, ranking, cli.say, "rank"))
