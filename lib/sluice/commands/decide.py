"""decide: answer typed questions about a state, as JSON."""

import time

from .. import cli
from ..decide import decider
from ..model.model import Model


@cli.command()
@cli.model_option
@cli.vocab_option
@cli.text_option("Read FILE as standard input.")
@cli.option(
    "--mass",
    is_flag=True,
    group="Output",
    help=(
        "Add mass to each answer: the probability of all its options together among all possible"
        " outputs."
    ),
)
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    model: str,
    vocab_file: str | None,
    mass: bool,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
) -> None:
    """Answer typed questions about a state, as JSON.

    SYNOPSIS
      decide [-m MODEL] [OPTIONS] <requests >answers

    DESCRIPTION
      Read requests, one JSON object per line; print an object with the answers for each. Nothing
      listens on a socket. The form is that of POST /v1/systemone: a request has a state (a string;
      an object or array goes in as JSON) and questions, an object of questions by their IDs, which
      the model does not see. A question has instructions and a type:

      choice  criteria: an object of 2 to 255 options, each with a description or null
      score   criteria: an array of 2 to 10 levels, low to high
      noul    yes or no; criteria may describe true and false

      An answer has type, and choice, probabilities and confidence; or score (the expected level,
      from 0), legend, probabilities and confidence; or noul, the probability of true. The tokens of
      the state are processed once for all questions. Each answer is that of the question asked
      alone, bit for bit.

      An invalid request gets {"error": {"code": 400, "type": ..., "message": ...}} and does not
      stop the others. An "id" of a request is repeated. "model" is ignored; images are refused. A
      state that is longer than the model's context loses its middle; its answer has "cut": true.

    EXIT STATUS
      0   every request was answered
      64  usage error
      65  invalid model, or invalid requests; the others were answered
      66  no such file
      69  unsupported model or arithmetic
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      decide -m m.gguf <requests.jsonl

    SEE ALSO
      classify
    """
    began = time.monotonic()
    ready = decider.Decider(Model(model, threads, arithmetic, vocab_file, huge_pages), mass)
    n = decider.run(ready, 0)
    if verbose:
        ms = 1e3 * (time.monotonic() - began)
        cli.report(requests=n, tokens=ready.n_tokens, ms=ms)
