"""classify: classify a text with a language model; print a label and its probability."""

import sys
import time

if sys.argv[1:2] == ["--long"]:  # if it knows all options, this classifies and exits
    from ..classify import fast_start

    fast_start.run(sys.argv[1:])

from .. import cli  # first: an interrupt during the other imports is silent
from .. import stream
from ..faults import data_error
from ..classify.setup import Setup
from ..classify.plan import STDIN, Texts
from ..cli import classify_combinations, combinations
import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@cli.command()
@cli.argument("files", nargs=-1, metavar="[FILE]...", callback=cli.not_with_file)
@cli.option(
    "-m",
    "--model",
    last_wins=True,
    metavar="FILE",
    files=("gguf",),
    group="Model",
    show_default="the question's model, else $MODEL",
    help="GGUF model.",
)
@cli.vocab_option
@cli.option(
    "-q",
    "--question",
    "asked",
    multiple=True,
    metavar="Q",
    files=("yaml", "yml"),
    words=("spam", "language-is-english", "urgent", "sentiment"),
    group="Model",
    show_default="spam",
    help=(
        "Name of a bundled question, or path of a YAML file. Repeatable: each text is asked all of"
        " them."
    ),
)
@cli.answers_options
@cli.text_option("Read FILE as standard input.")
@cli.option(
    "--mail",
    is_flag=True,
    group="Input",
    help="The input is a message (RFC 5322), whatever the question says.",
)
@cli.option(
    "--long",
    is_flag=True,
    group="Output",
    help="Print label, P(first label), its threshold and the model ID in one line.",
)
@cli.option(
    "--pass-through",
    is_flag=True,
    group="Output",
    help="Copy the message from stdin to stdout and add X-Spam headers.",
)
@cli.option(
    "--json", "as_json", is_flag=True, group="Output", help="Print a JSON object for each text."
)
@cli.option(
    "--jsonl",
    is_flag=True,
    group="Output",
    help="Read JSON objects with id and text, one per line; print one for each. With --json: all"
    " there is to say.",
)
@cli.option(
    "--mass",
    is_flag=True,
    group="Output",
    help=(
        "With --json or --jsonl: add mass, the probability of all labels together among all"
        " possible outputs."
    ),
)
@cli.texts_options
@cli.mail_options
@cli.why_options
@cli.receipt_options
@cli.learning_options
@cli.evaluate_options
@cli.fit_options
@cli.option(
    "--cache",
    "cache_dir",
    last_wins=True,
    metavar="DIR",
    group="Cache",
    show_default="$XDG_CACHE_HOME/sluice or ~/.cache/sluice",
    help="Cache for parsed questions, model IDs and prompt prefixes.",
)
@cli.option("--no-cache", is_flag=True, group="Cache", help="Disable the cache.")
@cli.listen_options
@cli.arithmetic_option
@cli.threads_option
@cli.huge_pages_option
@cli.verbose_option
def main(
    files: tuple[str, ...],
    model: str | None,
    vocab_file: str | None,
    asked: tuple[str, ...],
    answers: list[str] | None,
    mail: bool,
    long: bool,
    pass_through: bool,
    as_json: bool,
    jsonl: bool,
    mass: bool,
    cache_dir: str | None,
    no_cache: bool,
    listen: str | None,
    workers: int | None,
    mode: int | None,
    stats: str | None,
    arithmetic: str,
    threads: int | None,
    huge_pages: bool,
    verbose: bool,
    learn: str | None,
    forget: bool,
    list_learned: bool,
    reset: bool,
    auto_learn: float | None,
    calibration_file: str | None,
    no_calibration: bool,
    recursive: bool,
    mbox: bool,
    each: str | None,
    column: str | None,
    as_text: bool,
    null: bool,
    select: str | None,
    state_file: str | None,
    why: bool,
    top: int | None,
    spans: int | None,
    counterfactual: bool,
    html: str | None,
    receipt: str | None,
    receipt_key: str | None,
    verify: str | None,
    evaluate: bool,
    label_column: str | None,
    compared: str | None,
    curve: str | None,
    prior: str | None,
    save_prior: str | None,
    fit: bool,
    head: bool,
    risk: float | None,
    fit_path: str | None,
    rules: str | None,
    authserv_ids: tuple[str, ...],
    client: str | None,
    learned_in: str | None,
    learned_by: str | None,
    explain_header: bool,
) -> None:
    """Classify a text with a language model.

    SYNOPSIS
      classify [OPTIONS] [FILE]
      classify [OPTIONS] FOLDER|MBOX|FILE FILE...
      classify --each line|--csv COLUMN|--jsonl|--mbox [OPTIONS] [FILE]
      classify --pass-through [OPTIONS] <message
      classify --fit [--risk R] [OPTIONS] LABELLED...
      classify --listen SOCKET [OPTIONS]
      classify --why [OPTIONS] [FILE]
      classify --learn ANSWER|--forget [OPTIONS] [FILE|FOLDER|MBOX]...
      classify --list-learned|--reset [OPTIONS]
      classify --verify RECEIPTS [OPTIONS] [FILE...]
      classify --evaluate [OPTIONS] LABELLED...

    DESCRIPTION
      Read FILE or stdin and print one line: a label and its probability. A question, a YAML file,
      defines the prompt, the labels and a threshold for each label; it may also name the model. If
      the most likely label is below its threshold, print "unsure" and the probability of the first
      label; so for a message that has neither text nor links. Bundled questions: spam (the
      default), and for any chat model language-is-english, urgent and sentiment. -q 'Is this
      urgent?' --answers yes,no needs no file. The answers may also be the values of a JSON Schema
      (--json-schema '{"enum": ["low", "high"]}') or the texts of a regular expression (--regex
      '[1-5]'). Long input is truncated to its first and last tokens.

      A question file, such as team.yaml, says what is asked (type: yesno, choice or score):

        type: choice
        question: Which team must act?
        answers: {billing: "invoices and payments", support: null}
        thresholds: 0.5

      An answer is one word; behind it stands a description or null, and [billing, support] would
      do. A score has levels, from low to high, in place of answers; a yesno question needs neither.
      Below its threshold an answer becomes "unsure". Optional: order (text-first or
      question-first), list (whether the prompt lists the answers), prior, orders, model. The name
      of the file, without .yaml, is the question's name in the output.

      With several questions, each text gets a line for each: question, label and probability, with
      tabs between. Each answer is that of the question asked alone. Questions whose prompts have
      the text first process it once.

      Many texts are a folder, an mbox, several FILEs, or what an option says. Each text gets a
      line: its name, the label and the probability, with tabs between. A folder stands for its
      files, a Maildir for the messages in cur and new. A FILE that begins with a From line and has
      a further dated one behind an empty line is an mbox; its messages are FILE:1, FILE:2 ...
      Messages on stdin are split with --mbox only. Lines of --each line are -:1, -:2 ...

      --csv COLUMN reads a table with a header (CSV or TSV, UTF-8 or UTF-16) and prints it with more
      columns: QUESTION with the label, QUESTION_score with its probability (the score of --jsonl),
      and QUESTION_p_LABEL with the probability of each label. Bytes that are not UTF-8 stay as they
      are, and a line on stderr says in how many rows.

      --jsonl reads objects {"id": ..., "text": ...}, one per line. For each it prints an object at
      once: id, answer (the label), score (its probability) and p (the probability of each label),
      or id and error. With --mail, text is a message whose bytes are written as characters of
      Latin-1. --json prints an object per text with all there is to say, also with --jsonl.

      --select ANSWER prints the texts that got this answer: lines, objects, rows and messages as
      they came, files by their names. QUESTION=ANSWER where there are several questions.

      A text that cannot be classified does not stop the others. It is named on stderr, its label is
      "error", and the exit status is 65. An empty line or field has the label "-". With --state
      FILE, a run that was killed goes on where it was, if it is started again with the same
      options and >>OUTPUT. A FILE that is a table or binary is refused as a text; --text insists.

      --pass-through reads a message of any size and prints it with the new headers X-Spam-Flag,
      X-Spam-Score and X-Spam-Status at the top. X-Spam headers that the message already had are
      removed; nothing else changes. If there is no result within 60 s, the header is
      "X-Spam-Status: unchecked; reason=WORD", as for mail-filter. If the command fails and prints
      nothing, use the original message.

      --learn ANSWER learns texts: stdin, FILEs, folders, mboxes, or those of --each, --csv and
      --jsonl. Verdicts join the model's answer with the words and header fields of learned texts. A
      learned text gets the ANSWER; another --learn moves it, --forget undoes it. All texts of one
      command get the same answer, so a folder must not hold others. Let it learn texts of every
      answer, and texts with a correct result, too. Of one text the new result is printed, of many
      their number. The file (mode 0600) has digests and numbers, no words, of at most 20,000 texts;
      the oldest give way. A damaged file, or one of another model, is ignored with a message on
      stderr; --reset empties it. --list-learned prints counts, dates, and how many of the texts
      would be right if each had not been learned. --auto-learn P also learns answers surer than P;
      they never count for more than those of --learn.

      --rules reads allow and block lists of messages from a YAML file: a list `rules` with for each
      rule its name (rule), an answer, and one or more of sender, domain, list-id, client and
      authenticated. The first rule of which all conditions hold gives the answer, with
      probability 1, and the model is not asked. The name of the rule is the word rule=NAME in
      X-Spam-Status and at the end of --long, and "rule" in JSON. sender (ADDRESS, @DOMAIN with its
      subdomains, or * and ? in either), domain and list-id are what the message says, so anybody
      can forge them; "authenticated: true" also demands that a server named by --authserv-id found
      the domain of From authenticated (dmarc=pass, or dkim=pass of that domain or one above).
      client is an IP address or network: what the mail server names, or --client, or else the
      address in the topmost Received field of a host listed under received-by. The file is read
      again when it changes; it must not be writable by others.

      --explain-header adds numbers and fixed words, no text of the message: log-odds of the first
      answer by the model and by what was learned (tokens), the number of learned texts, the rule,
      and signals such as dkim:pass (of servers named by --authserv-id), list, reply-to:other.

      --receipt appends one JSON object per verdict to FILE: digests of model, question and text,
      and every bit of the log probabilities. --verify RECEIPTS classifies the same texts again, by
      the same options, and prints for each NAME, "same", "differs" or "unknown" (no receipt of
      this text), the line of its receipt, and the digest of the calibration then. A text is known
      by its digest, not by its name. Receipts are the same on every processor, with any number of
      threads; a later --learn does not change the log probabilities.

      --why leaves out each line of the text in turn, or each sentence of a text with one line, and
      prints how much the log-odds of the answer fall by that (+: the line speaks for the answer).
      Of a message these are the lines that mail-text prints. Each text with a line left out is
      classified as if it had been given. --counterfactual adds lines without which the answer is
      another, if there are any. After --learn, the words and header fields of the text that weighed
      most follow. Colours: on a terminal, unless $NO_COLOR is set.

      --evaluate classifies texts whose answers are known. It prints accuracy, area under the ROC
      curve, Brier score, log loss, calibration error (ECE), coverage at the thresholds, and for
      each answer precision, recall and F1, all with 95 % bootstrap intervals; and the confusion
      matrix. LABELLED is a file of JSON objects with text and answer (or label), a table (--csv
      COLUMN --label COLUMN), ANSWER=PATH of a file, mbox, Maildir or folder, or a folder of folders
      named after answers. The question's aliases are labels, too: of spam, spam and ham. --json
      prints an object. --html writes a page with ROC and reliability curves, a histogram, and the
      worst mistakes with their texts. --compare evaluates another model, question or calibration on
      the same texts: the differences with paired intervals, and McNemar's exact test. --curve
      10,50,200 adds a learning curve: so many of the texts are learned, as --learn does it, and all
      others classified, five times for each number; next to the question alone, and to bogofilter
      that learned the same texts. What --learn has kept is not used for it, and nothing is kept.

      --prior corrects what the model prefers whatever the text says, without labels: it divides the
      probability of each answer by what the answer gets on average, over content-free inputs, over
      all the texts (which are then read before the first is printed), or over those in a file.
      "texts" assumes that the answers are about equally frequent.

      --fit reads labelled texts, fits the question to them as far as cross-validation says that it
      helps, prints the figures, and writes a file (mode 0600) that every later run uses: scale and
      biases of the calibration or, with 60 labels or more, a linear head on the model's last hidden
      state. --risk 0.01 also finds the threshold at which accepted answers are wrong in at most
      1 % of cases, with 95 % confidence; it needs 299 labelled texts, 59 for 5 %. A fit of another
      model or question is an error (65). --learn starts from a fit without a head.

      Over many texts, a line on stderr at the end says if the answers were improbable among all
      that the model could write, or if one answer took more than 95 % of 50 texts or more.

      The cache holds the parsed question, the model ID and, for a long prompt, the model's state
      after the part before the input. It never holds input.

      --listen keeps the model loaded and serves a Unix socket. A client connects, sends one
      message, half-closes and reads one line: that of --long, with yes, no or unsure as label, or
      "error WORD". A client may give its socket a name that asks for more (mail-filter does): the
      calibration of a user (--learned-in), a client for --rules, why. SIGHUP reloads question,
      model and rules; SIGUSR1 prints counts and times to stderr;
      SIGTERM ends.

    EXIT STATUS
      0   first label (yes) of each question; success with many texts, --learn, --forget,
          --list-learned, --reset, --fit or --pass-through; --select found a text; --verify: all
          texts have the same bits
      1   another label; --select found none; --verify: a text differs or is unknown
      2   unsure
      64  usage error
      65  invalid question, model or input; empty input; some texts have errors; nothing to forget;
          a text of one sentence for --why; a damaged receipt, or none of this model and question
      66  no such file
      69  unsupported model or arithmetic
      73  cannot create the file or socket
      74  I/O error
      75  out of memory; retry

      A result is always a line on stdout. Status 1 without that line is a failure: Python did not
      start, or was interrupted early.

    EXAMPLES
      classify mail.eml
      if classify -m m.gguf -q urgent prompt.txt >/dev/null; then echo urgent; fi
      classify --select yes -0 Maildir | xargs -0r mv -t Maildir/.Junk/cur
      classify --learn ham Maildir && classify --learn spam Maildir/.Junk
      classify -m m.gguf -q 'Urgent?' --answers yes,no --csv body tickets.csv
      classify -m m.gguf -q urgent --each line --select yes <log || echo none
      classify -m m.gguf -q urgent --jsonl <texts.jsonl
      classify --evaluate --html report.html spam=Maildir/.Junk ham=Maildir
      classify --evaluate --curve 10,20 spam=Maildir/.Junk ham=Maildir
      classify -m m.gguf -q team.yaml --prior texts --csv body tickets.csv
      classify -m m.gguf -q team.yaml --fit labelled.jsonl

    SEE ALSO
      mail-filter, mail-text, generate
    """
    began = time.monotonic()
    combinations.check(classify_combinations.RULES)
    cli.refuse(
        answers is not None and len(asked) != 1,
        "--answers, --regex and --json-schema: need exactly one -q, the text of a question",
    )
    is_learning = forget or learn is not None
    options: dict[str, Any] = dict(
        asked=asked or ("spam",),
        model=model,
        cache_dir=cache_dir,
        no_cache=no_cache,
        calibration_file=calibration_file,
        no_calibration=no_calibration,
        threads=threads,
        as_mail=mail or mbox or pass_through,
        mass=mass,
        arithmetic=arithmetic,
        vocab=vocab_file,
        huge_pages=huge_pages,
        say=None if is_learning else cli.say,
        answers=answers,
        fit_path=fit_path,
        prior=prior,
        auto_learn=auto_learn,
        rules=rules,
        authserv_ids=authserv_ids,
        client=client,
        learned_in=learned_in,
        learned_by=learned_by,
    )
    if reset or list_learned:
        from ..learn import asked as learning

        learning.at_once(Setup(**options), reset, as_json)
    forms = column, label_column, mail, recursive, mbox, as_text
    if evaluate:
        cli.refuse(prior == "texts" or save_prior, "--evaluate: save a prior before, then name it")
        return _evaluate(options, files, forms, as_json, html, compared, curve)
    if fit:
        return _fit(options, files, forms, (head, risk), as_json)
    texts = Texts(
        files, recursive, mbox, each, column, as_text, null, select, state_file, jsonl, as_json
    )
    options["as_mail"] |= texts.are_messages()
    are_many = texts.are_many()
    setup = Setup(**options)
    if prior or save_prior:
        from ..probability import priors

        priors.check_options(prior, save_prior, are_many, bool(state_file))
    learns = None
    if auto_learn is not None:
        from ..learn import asked as learning

        learning.path_of(setup)
    if is_learning:
        from ..learn import asked as learning

        cli.refuse(select is not None or state_file or null, "--learn and --forget print no texts")
        cli.refuse(receipt or verify or why, "--learn and --forget: no --receipt, --verify, --why")
        if are_many:
            return _learn(setup, texts, None if forget else learn, as_json)
        learns = learning.one(setup, None if forget else learn)
    if listen or pass_through:
        cli.refuse(are_many, "the options of many texts exclude --listen and --pass-through")
        if listen:
            from ..serve import worker

            load = lambda: setup.classifier(threads=1)
            permissions = 0o600 if mode is None else mode
            worker.run(listen, permissions, load, workers, threads, verbose, stats)
        from ..serve import pass_through as passing

        return passing.run(setup.classifier, explain_header, auto_learn is not None)
    cli.refuse(why and (are_many or len(asked) > 1), "--why: one text, one question")
    if html:
        from ..why import page as why_page

        why_page.check(html, *files, model)
    log = key = None
    if receipt or verify:
        from ..receipts import receipts

        key = receipts.read_key(receipt_key)
        log = receipts.Log(receipt, key) if receipt else None
    questions = setup.questions()
    cli.refuse(
        len(questions) > 1 and (long or learns or auto_learn is not None),
        "--long, --learn, --forget and --auto-learn: need one question",
    )
    cli.refuse(len(questions) > 1 and save_prior, "--save-prior: needs one question")
    if verify:
        return _verify(texts, setup.panel(questions), verify, key, verbose)
    cli.refuse(why and len(questions) > 1, "--why: one text, one question")
    if are_many:
        cli.refuse(long, "--long: for one text")
        return _many(texts, setup.panel(questions), log, save_prior)
    # before the model is opened: empty input ends at once
    data = setup.read_input(questions, files[0] if files else None, as_text)
    panel = setup.panel(questions)
    c = panel.first
    if save_prior:
        priors.save(save_prior, c)
    explained = _explain(c, data, counterfactual, spans) if why else None
    verdicts = (
        [learns(c, data)] if learns else [explained.verdict] if explained else panel.ask(data)
    )
    if log:
        log.add(panel.classifiers, verdicts, files[0] if files else STDIN, data)
    v = verdicts[0]
    ms = 1e3 * (time.monotonic() - began)
    if as_json:
        from ..classify import report

        fields = report.of_all(panel, verdicts, True, ms)
        if explained:
            from ..why import terminal as why_text

            fields["why"] = why_text.fields(explained, top)
        line = report.dump(fields)
    elif long:
        from ..classify import further_words

        line = further_words.line(c, v, data, explain_header, v.answer)
    else:
        line = panel.lines(verdicts)
        if explained:
            from ..why import terminal as why_text

            line += why_text.lines(explained, top, why_text.is_coloured(1))
    if html and explained:
        why_page.write(html, c, explained, files[0] if files else "standard input", top)
    stream.write_all(1, line)
    if c.auto:
        from ..learn import asked as learning

        learning.keep(c, v)
    if verbose:
        cli.report(
            tokens=v.n_tokens, reused=v.n_reused, steps=c.tree.n_nodes, cache=c.cache_state, ms=ms
        )
    raise click.exceptions.Exit(0 if learns else panel.status(verdicts))


def _explain(c, data, counterfactual, spans):
    from ..why import why
    from ..cli import progress

    with progress.shown("leaving out", len(data)) as advance:
        last = 0

        def show(n: int, of: int) -> None:
            nonlocal last
            advance(len(data) * n // of - last)
            last = len(data) * n // of

        return why.explain(c, data, counterfactual, spans or why.MAX_SPANS, show)


def _many(texts, panel, log, save_prior):
    from ..classify import many
    from ..cli import progress

    auto = panel.first.auto

    def note(item, found):
        if log:
            log.add(panel.classifiers, found, item.name, item.data, item.id)
        if auto:
            auto.note(found[0])

    with progress.Texts(texts.count) as bar:
        try:
            code = many.run(
                texts, panel, bar.say, bar.advance, note if log or auto else None, save_prior
            )
        finally:
            if auto:
                auto.save()
    raise click.exceptions.Exit(code)


def _learn(setup, texts, answer, as_json):
    from ..cli import progress
    from ..learn import asked as learning

    with progress.Texts(texts.count) as bar:
        code = learning.many(setup, texts, answer, as_json, bar)
    raise click.exceptions.Exit(code)


def _verify(texts, panel, path, key, verbose):
    from ..receipts import verify
    from ..cli import progress

    with progress.Texts(texts.count) as bar:
        code, book = verify.run(texts, panel, path, key, bar.say, bar.advance)
    if verbose:
        cli.report(receipts=book.n, compared=book.n_seen)
    raise click.exceptions.Exit(code)


def _evaluate(options, words, forms, as_json, html, compared, curve):
    from ..cli import progress
    from ..evaluate import run as evaluation
    from ..texts.labelled import Labelled

    evaluation.run(
        lambda **changes: Setup(**{**options, **changes}),
        lambda q: Labelled(words, q, *forms),
        progress.Texts,
        as_json,
        html,
        compared,
        curve,
    )


def _fit(options, words, forms, how, as_json):
    from ..probability import fits
    from ..classify import report
    from ..cli import progress
    from ..texts.labelled import Labelled

    setup = Setup(**options, ignores_fit=True)
    q = setup.question()
    path = setup.fit_path(q)
    cli.refuse(not path, "--fit: a question without a file needs --fit-file FILE")
    labelled = Labelled(words, q, *forms)
    setup.as_mail |= labelled.are_messages
    c = setup.classifier(q)
    with progress.Texts(lambda: labelled.n) as bar:
        fields, n_bad = fits.run(c, labelled, words[0], path, *how, bar.say, bar.advance)
    stream.write_all(1, report.dump(fields) if as_json else fits.table(fields, path))
    if n_bad:
        raise data_error(words[0], f"{n_bad} labelled texts could not be used; see above")
