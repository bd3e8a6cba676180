"""Options of `classify`: texts, mail, why, receipts, learning, evaluation, fits, the daemon."""

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from .command import only_one
from .declared import option
from .values import Mode


def answers_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: answers to the text of a question. The function gets them as `answers`, a list or
    None.
    """

    @functools.wraps(function)
    def with_answers(
        *args: Any, answers: str | None, regex: str | None, json_schema: str | None, **values: Any
    ) -> Any:
        only_one(answers=answers, regex=regex, json_schema=json_schema)
        found = None if answers is None else [word.strip() for word in answers.split(",")]
        if regex is not None or json_schema is not None:
            from ..grammar import finite
            from ..grammar.sources import Source

            if json_schema == "-":
                raise click.UsageError("--json-schema -: stdin has the text")
            syntax = Source(regex=regex, schema=json_schema).syntax()
            assert syntax is not None
            found = (
                [os.fsdecode(text) for text in finite.texts(syntax)]
                if json_schema is None
                else finite.json_values(syntax)
            )
        if found is not None:
            from ..question import kinds

            option = "--json-schema" if regex is None else "--regex"
            kinds.check_given(found, option if answers is None else "--answers")
        return function(*args, answers=found, **values)

    for decorate in (
        option(
            "--json-schema",
            metavar="SCHEMA",
            group="Model",
            files=("json",),
            help="Answers to the question whose text -q gives: the values of a schema, such as an"
            " enum; a file or its text.",
        ),
        option(
            "--regex",
            metavar="RE",
            group="Model",
            help="Answers to the question whose text -q gives: the texts that RE matches.",
        ),
        option(
            "--answers",
            metavar="A,B",
            group="Model",
            help="Answers, 2 to 255 with commas between, to the question whose text -q gives.",
        ),
    ):
        with_answers = decorate(with_answers)
    return with_answers


def texts_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of many texts."""
    for decorate in (
        option(
            "--state",
            "state_file",
            metavar="FILE",
            group="Many texts",
            help="Record progress in FILE; a run that was killed continues. Needs >>OUTPUT.",
        ),
        option(
            "--select",
            metavar="ANSWER",
            group="Many texts",
            help="Print only the texts with this answer, as they came; of files the names.",
        ),
        option(
            "-0",
            "--null",
            is_flag=True,
            group="Many texts",
            help="End lines with NUL instead of a newline, for xargs -0.",
        ),
        option(
            "--text",
            "as_text",
            is_flag=True,
            group="Many texts",
            help="Each FILE is one text, even if it looks like a table, an mbox or binary.",
        ),
        option(
            "--csv",
            "column",
            metavar="COLUMN",
            group="Many texts",
            help="Read a CSV or TSV with a header; classify COLUMN; add columns with the answers.",
        ),
        option(
            "--each",
            type=click.Choice(["line"]),
            metavar="line",
            words=("line",),
            group="Many texts",
            help="Each line of the input is a text.",
        ),
        option(
            "--mbox",
            is_flag=True,
            group="Many texts",
            help="The input is an mbox; classify each message.",
        ),
        option(
            "-r",
            "--recursive",
            is_flag=True,
            group="Many texts",
            help="Read folders below a folder, too, and the folders of a Maildir.",
        ),
    ):
        function = decorate(function)
    return function


def why_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --why, --top, --spans, --counterfactual and --html."""
    for decorate in (
        option(
            "--html",
            metavar="FILE",
            files=("html",),
            group="Output",
            help="Write the explanation of --why, or the report of --evaluate with plots (extra"
            " plots), to FILE: one self-contained page (mode 0600: it has texts in it).",
        ),
        option(
            "--counterfactual",
            is_flag=True,
            group="Why",
            help="Name lines without which the answer is another, and as few as are needed.",
        ),
        option(
            "--spans",
            type=click.IntRange(2, 500),
            metavar="N",
            group="Why",
            show_default="500",
            help="At most N spans: of more lines, neighbours are left out together. Time grows with"
            " the number of spans.",
        ),
        option(
            "--top",
            type=click.IntRange(min=1),
            metavar="N",
            group="Why",
            show_default="all, in their order",
            help="The N lines with the largest effects, the largest first.",
        ),
        option(
            "--why",
            is_flag=True,
            group="Why",
            help="Print how much each line (or sentence, of a text with one line) moved the"
            " log-odds of the answer: each is left out in turn.",
        ),
    ):
        function = decorate(function)
    return function


def receipt_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --receipt, --receipt-key and --verify."""
    for decorate in (
        option(
            "--verify",
            metavar="RECEIPTS",
            files=("jsonl", "receipts"),
            group="Receipts",
            help="Classify the texts again; compare every bit with their receipts.",
        ),
        option(
            "--receipt-key",
            "receipt_key",
            metavar="FILE",
            group="Receipts",
            help="Key of the digests in receipts: guessing a text or forging a receipt needs it.",
        ),
        option(
            "--receipt",
            metavar="FILE",
            files=("jsonl", "receipts"),
            group="Receipts",
            help="Append a receipt of each verdict to FILE: digests, and every bit of the scores.",
        ),
    ):
        function = decorate(function)
    return function


def mail_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: what a mail server adds to the question about a message."""
    for decorate in (
        option(
            "--explain-header",
            is_flag=True,
            group="Mail",
            help="Add what led to the answer, as fixed words and numbers: the header X-Spam-Explain"
            " with --pass-through, words at the end of the line with --long.",
        ),
        option(
            "--learned-by",
            metavar="USER",
            group="Mail",
            help="With --learned-in: the calibration of USER, a name of at most 40 of a-z 0-9 . _"
            " -; of anybody else, the one without these options.",
        ),
        option(
            "--learned-in",
            metavar="DIR",
            group="Mail",
            help="Calibrations of several users, DIR/USER/QUESTION.calibration. With --listen the"
            " client names the user (mail-filter --learned-by recipient).",
        ),
        option(
            "--client",
            metavar="ADDRESS",
            group="Mail",
            help="IP address of the host that delivered the message, for --rules.",
        ),
        option(
            "--authserv-id",
            "authserv_ids",
            multiple=True,
            metavar="ID",
            group="Mail",
            help="Trust the Authentication-Results fields of this server: the name that they begin"
            " with. Repeatable.",
        ),
        option(
            "--rules",
            metavar="FILE",
            files=("yaml", "yml"),
            group="Mail",
            help="Allow and block lists by sender, domain, list or client: the first rule that"
            " matches gives the answer, and the model is not asked.",
        ),
    ):
        function = decorate(function)
    return function


def learning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --learn, --forget, --list-learned, --reset, --auto-learn, --calibration and
    --no-calibration.
    """
    for decorate in (
        option(
            "--no-calibration",
            is_flag=True,
            group="Learning",
            help="Ignore what was learned; use the question's calibration.",
        ),
        option(
            "--calibration",
            "calibration_file",
            metavar="FILE",
            files=("calibration",),
            group="Learning",
            show_default="QUESTION.calibration in $XDG_DATA_HOME/sluice or ~/.local/share/sluice",
            help="The file of what was learned, read and updated.",
        ),
        option(
            "--auto-learn",
            type=click.FloatRange(0.5, 1.0),
            metavar="P",
            group="Learning",
            help="Learn the answers that are surer than P, too. They never count for more than the"
            " texts that you let it learn.",
        ),
        option(
            "--reset",
            is_flag=True,
            group="Learning",
            help="Forget all that was learned, and print the number of texts.",
        ),
        option(
            "--list-learned",
            is_flag=True,
            group="Learning",
            help="Print what was learned: texts, dates, and how they would be classified if each"
            " had not been learned.",
        ),
        option(
            "--forget",
            is_flag=True,
            group="Learning",
            help="Forget these texts, as if they had never been learned.",
        ),
        option(
            "--learn",
            metavar="ANSWER",
            words=("yes", "no", "spam", "ham"),
            group="Learning",
            help="Learn that ANSWER is correct for these texts. The model does not change.",
        ),
    ):
        function = decorate(function)
    return function


def evaluate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --evaluate, --curve, --label and --compare."""
    for decorate in (
        option(
            "--curve",
            metavar="N,N",
            group="Evaluation",
            help="With --evaluate: learn N of the texts, as --learn does, and classify all others,"
            " for each N; next to bogofilter, if it is installed.",
        ),
        option(
            "--compare",
            "compared",
            metavar="OTHER",
            files=("gguf", "yaml", "yml", "fit", "calibration"),
            group="Evaluation",
            help="Evaluate another model (.gguf), question, or calibration on the same texts, and"
            " test the difference.",
        ),
        option(
            "--label",
            "label_column",
            metavar="COLUMN",
            group="Evaluation",
            show_default="label; in JSON answer or label",
            help="Column, or key of a JSON object, with the correct answer of a text.",
        ),
        option(
            "--evaluate",
            is_flag=True,
            group="Evaluation",
            help="Classify labelled texts and print how good the answers are. LABELLED is a JSONL"
            " file, a CSV file (with --csv), ANSWER=FOLDER, or a folder of folders named after"
            " answers.",
        ),
    ):
        function = decorate(function)
    return function


def fit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --prior and --save-prior, --fit and its options."""
    for decorate in (
        option(
            "--fit-file",
            "fit_path",
            metavar="FILE",
            files=("fit",),
            group="Honest probabilities",
            show_default="QUESTION.fit in $XDG_DATA_HOME/sluice or ~/.local/share/sluice",
            help="The fit, written by --fit and used by every other run.",
        ),
        option(
            "--risk",
            type=click.FloatRange(0.001, 0.5),
            metavar="R",
            group="Honest probabilities",
            help="With --fit: the threshold at which at most a share R of the accepted answers is"
            " wrong, with 95 % confidence.",
        ),
        option(
            "--head",
            is_flag=True,
            group="Honest probabilities",
            help="With --fit: insist on trying a linear head on the hidden state; needs 60 labels.",
        ),
        option(
            "--fit",
            is_flag=True,
            group="Honest probabilities",
            help="Fit the question to labelled texts: LABELLED as for --evaluate. Later runs use"
            " the fit.",
        ),
        option(
            "--save-prior",
            metavar="FILE",
            group="Honest probabilities",
            help="Write the prior that was found, for a later --prior FILE.",
        ),
        option(
            "--prior",
            metavar="KIND|FILE",
            files=("prior", "txt", "jsonl"),
            words=("none", "content-free", "texts"),
            group="Honest probabilities",
            show_default="the question's",
            help="Divide the probabilities by what the answers get on average: for content-free"
            " inputs, over all the texts, over the texts in FILE, or as saved in FILE.",
        ),
    ):
        function = decorate(function)
    return function


def listen_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: --listen, --workers, --mode and --stats."""
    for decorate in (
        option(
            "--stats",
            metavar="FILE",
            files=("prom",),
            group="Server",
            help="Write counts and times for node_exporter's textfile collector to FILE, every 15"
            " s. FILE ends in .prom.",
        ),
        option(
            "--mode",
            type=Mode(),
            metavar="MODE",
            group="Server",
            show_default="0600",
            help="Permissions of the socket, in octal.",
        ),
        option(
            "--workers",
            type=click.IntRange(1, 1024),
            metavar="N",
            group="Server",
            show_default="available cores",
            help="Messages classified at the same time.",
        ),
        option(
            "--listen",
            metavar="SOCKET",
            group="Server",
            help="Serve this Unix socket until SIGTERM.",
        ),
    ):
        function = decorate(function)
    return function
