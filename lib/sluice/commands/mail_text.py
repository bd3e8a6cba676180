import time

from .. import cli, stream
from ..mail import message
import click


@cli.command(options_metavar="[OPTIONS] <mail >text")
@click.option(
    "-n",
    "--bytes",
    "max_bytes",
    type=click.IntRange(min=1),
    default=256 << 10,
    metavar="N",
    help="Write at most N bytes, whole characters.",
)
@click.option("--body", is_flag=True, help="Without the lines From, Subject, Links and Files.")
@click.option(
    "--fold",
    is_flag=True,
    help=(
        "In the form that models of sluice read: lower case, digits 0, marks between blanks, the"
        " body one line."
    ),
)
@cli.verbose_option
def main(max_bytes, body, fold, verbose):
    """Turn a mail into the text that its reader would see.

    stdin is one message as it came (RFC 5322 and MIME, also with the first line of an mbox) or any
    text, at most 16 MiB, what follows is not read; stdout gets UTF-8 without control characters but
    newline: lines From, Subject, Links (hosts) and Files (attachments, by name), an empty line, and
    the body.

    HTML is read without what it hides; of alternatives the one is taken that a client shows;
    characters that show nothing are left out; nothing is opened or fetched. There is no malformed
    mail: whatever the bytes are, the answer is the text that could be found, and 0. -v counts what
    was left out, and says in reason= what went wrong: a list of words, or none.

    \b
    Exit status: 0 done; 64 usage; 65 stdin is a directory; 74 cannot read or write; 75 out of memory.

    \b
    Example:  printf 'Subject: Hi\\n\\nHow are you?\\n' | mail-text -v 2>/dev/null

    See also: tokenize.
    """
    start = time.perf_counter()
    data = stream.read_exactly(0, message.MAX_BYTES + 1)
    found = message.read(data)
    text = found.text(max_bytes, head=not body, fold=fold)
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
