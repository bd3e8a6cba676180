"""mail-text: convert a message to the text that its reader sees."""

import time

from .. import cli, stream
from ..mail import message
import click


@cli.command()
@cli.option(
    "-n",
    "--bytes",
    "max_bytes",
    type=click.IntRange(min=1),
    default=256 << 10,
    metavar="N",
    group="Output",
    show_default="256 KiB",
    help="Limit of the output in bytes; it ends with a whole character.",
)
@cli.option(
    "--body",
    is_flag=True,
    group="Output",
    help="Omit the lines From, Subject, Links and Files.",
)
@cli.option(
    "--normalize",
    "normalize",
    aliases=("--fold",),
    is_flag=True,
    group="Output",
    help=(
        "Print the form that the spam model processes: lower case, 0 for each digit, spaces around"
        " punctuation, the body in one line."
    ),
)
@cli.option(
    "--attachments",
    is_flag=True,
    group="Input",
    help="Show the text of messages that are attached, too.",
)
@cli.verbose_option
def main(max_bytes: int, body: bool, normalize: bool, attachments: bool, verbose: bool) -> None:
    """Convert a message to the text that its reader sees.

    SYNOPSIS
      mail-text [OPTIONS] <message >text

    DESCRIPTION
      Read one message from stdin (RFC 5322 and MIME, with or without the "From " line of an mbox),
      or any text; at most 16 MiB are used. Print UTF-8 without control characters except newline:
      the lines From, Subject, Links (hosts) and Files (names of attachments), an empty line, and
      the body.

      Hidden parts of HTML and invisible characters are omitted; the message's style sheets are
      applied. Of several alternatives the one that a mail client shows is used. Alternative texts
      of pictures, calendar parts and opaque S/MIME signatures are read. Attachments are named, not
      opened; --attachments adds the text of those that are messages. Nothing is fetched. Any bytes
      are valid input and give status 0. -v prints counts of omitted parts, and a list of problems
      as reason.

    EXIT STATUS
      0   success
      64  usage error
      65  stdin is a directory
      74  I/O error
      75  out of memory; retry

    EXAMPLES
      printf 'Subject: Hi\\n\\nHow are you?\\n' | mail-text -v 2>/dev/null

    SEE ALSO
      classify, tokenize
    """
    start = time.perf_counter()
    data = stream.read_exactly(0, message.MAX_BYTES + 1)
    found = message.read(data, attached=attachments)
    text = found.text(max_bytes, head=not body, fold=normalize)
    stream.write_all(1, text)
    if verbose:
        cli.report(
            bytes=len(data),
            text=len(text),
            parts=found.n_parts,
            html=found.n_html,
            links=len(found.links),
            files=len(found.files),
            hidden=found.n_hidden,
            comments=found.n_comment,
            invisible=found.n_invisible,
            reason=",".join(found.reasons) or "none",
            ms=(time.perf_counter() - start) * 1e3,
        )
