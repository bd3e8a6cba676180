"""The report of an evaluation as a page (htmlpage.py): figures, plots and the worst mistakes."""

from __future__ import annotations

from .. import VERSION, htmlpage
from ..faults import one_line
from ..htmlpage import shown
from ..system import files
from . import bootstrap, metrics, plots, terminal
from .terminal import TITLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .result import Result

MAX_COLUMNS = 30  # answers of a confusion matrix; of more, the most frequent confusions are listed
IMAGES = "; img-src data:"  # of the policy
NOTES = {
    "accuracy": "texts whose most probable answer is correct, “unsure” or not",
    "auc": "probability that a text with the answer scores above one without",
    "brier": "mean squared error of the probabilities; 0 is perfect",
    "log_loss": "mean of −ln P(correct answer), nats; 0 is perfect",
    "ece": f"expected calibration error, {metrics.N_BINS} bins of equal width of the highest"
    " probability; 0 is perfect",
    "coverage": "texts that got an answer at the question’s thresholds",
    "accuracy_answered": "of these, texts whose answer is correct",
}
STYLE = """\
:root { --series-0: #1764ab; --series-1: #c4411a; --series-2: #2f7d3b;
  --series-3: #8a4fa8; --series-4: #a06a00; --series-5: #007f8b; --series-6: #b0316e;
  --series-7: #6b5b4b; }
@media (prefers-color-scheme: dark) { :root { --series-0: #66aef0; --series-1: #ff9166;
  --series-2: #7ccb86; --series-3: #cfa0ea; --series-4: #e5b454; --series-5: #56c8d2;
  --series-6: #f58ab8; --series-7: #c3b09c; } }
main { max-width: 90rem; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.6rem; }
.wide { overflow-x: auto; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; }
tbody th { font-weight: 500; }
td.n, th.n { padding: 0.3rem 0.6rem; }
.between { color: var(--soft); font-size: 0.875rem; white-space: nowrap; }
td b { font-weight: 600; }
td.note { color: var(--soft); font-size: 0.875rem; }
.tables, .plots { display: grid; gap: 1.2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
.plots.two { grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
.mistakes { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(34rem, 100%), 1fr)); }
.tables > *, .plots > *, .mistakes > * { min-width: 0; }
figure { margin: 0; padding: 0.9rem; background: var(--box); border: 1px solid var(--rule);
  border-radius: 8px; }
figcaption { margin-top: 0.4rem; }
figure h3, article h3 { font-size: 1rem; margin: 0 0 0.4rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; max-width: 36rem; margin: 0 auto;
  stroke-linejoin: round; stroke-linecap: butt; }
article { background: var(--box); border: 1px solid var(--rule); border-radius: 8px;
  padding: 0.8rem 0.9rem; }
article h3 { font-weight: 500; font-size: 0.95rem; }
pre { margin: 0.5rem 0 0; max-height: 18rem; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 0.85rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace;
  border-left: 3px solid var(--rule); padding-left: 0.7rem; unicode-bidi: plaintext; }
@media (max-width: 34rem) { table { font-size: 0.85rem; } th, td { padding-right: 0.45rem; }
  .between, td.note, thead th { font-size: 0.75rem; } }
"""


def check(path: str, sources: list[str]) -> None:
    """Raise Error 64, 69, 73 or 75 if `write` could not write `path`, or would write over one of
    `sources`: it is called before the work.
    """
    plots.check()
    files.check_target(path, *sources)


def write(path: str, r: Result) -> None:
    """Write the page of a Result. Error 73 to 75, and `path` stays as it was."""
    htmlpage.write(path, text(r))


def text(r: Result) -> str:
    """The page."""
    title = one_line(" and ".join(dict.fromkeys(s.label for s in r.systems)))
    parts = [
        *_head(r),
        _overall(r),
        *(f"<p>{shown(remark)}</p>" for remark in terminal.remarks(r)),
        "<h2>Curves</h2>",
        f'<div class="plots{" two" * (len(r.systems) > 1)}">',
        *(_figure(*plot) for plot in plots.draw(r)),
        "</div>",
        *_curve(r),
        "<h2>Answers</h2>",
        '<div class="tables">',
        *(_per_answer(r, i) for i in range(len(r.systems))),
        "</div>",
        "<h2>Confusion</h2>",
        '<p class="soft">Texts, in a row for each correct answer.</p>',
        '<div class="tables">',
        *(_confusion(r, i) for i in range(len(r.systems))),
        "</div>",
        *_mistakes(r),
        "<h2>About the figures</h2>",
        f"<p>Intervals hold with {100 * bootstrap.LEVEL:g} % confidence, by the bootstrap:"
        f" {bootstrap.RESAMPLES} resamples of the texts. Precision, recall and F1 are those of the"
        " confusion matrix, where “unsure” is no answer.</p>",
        f'<p class="soft">Written by classify --evaluate, Sluice {shown(VERSION)}.</p>',
    ]
    return htmlpage.page(f"Evaluation of {shown(title)}", STYLE, parts, IMAGES)


def _head(r):
    lines = [f"{terminal.counted(r.n_texts, 'text')}"]
    if r.n_bad:
        lines[0] += f"; {r.n_bad} more could not be classified"
    if r.n_learned:
        lines[0] += f"; {r.n_learned} were learned: each is classified as if it had not been"
    per_answer = [
        f"{n} {name}" for name, n in zip(r.answers, r.n_per_answer) if len(r.answers) <= MAX_COLUMNS
    ]
    if per_answer:
        lines[0] += f" ({', '.join(per_answer)})"
    for i, s in enumerate(r.systems):
        lines.append(f"{terminal.system_line(r, i)} ({s.model_id})")
    return [f'<p class="soft">{shown(line)}</p>' for line in lines]


def _overall(r):
    is_two = r.differences is not None
    head = ["", *(s.label for s in r.systems), "difference"] if is_two else []
    rows = []
    for name in metrics.OVERALL:
        cells = [_interval(f[name, None]) for f in r.figures]
        if is_two:
            cells.append(_interval(r.differences[name, None], True))
        else:
            cells.append(f'<td class="note">{shown(NOTES[name])}</td>')
        rows.append(f"<tr><th>{shown(TITLES[name])}</th>{''.join(cells)}</tr>")
    return _table(head, rows)


def _interval(f, is_difference=False):
    value = terminal.number(f.value, is_difference)
    between = ""
    if f.low == f.low:
        low, high = (terminal.number(x, is_difference) for x in (f.low, f.high))
        between = f' <span class="between">{low} to {high}</span>'
    return f"<td><b>{value}</b>{between}</td>"


def _table(head, rows, caption="", numbers=False):
    kind = ' class="n"' if numbers else ""
    cells = "".join(f"<th{kind if i else ''}>{shown(text)}</th>" for i, text in enumerate(head))
    caption = f"<caption>{shown(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{cells}</tr></thead>" if head else ""
    return (
        f'<div class="wide"><table>{caption}{head}\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _figure(title, caption, svg):
    caption = f"<figcaption>{shown(caption)}</figcaption>"
    return f"<figure><h3>{shown(title)}</h3>\n{svg}\n{caption}</figure>"


def _curve(r):
    """The learning curve: a plot for each figure, and the table."""
    if not r.curve:
        return []
    from . import curve

    head, *rows = curve.rows(r.curve)
    lines = [
        f"<tr><th>{shown(row[0])}</th>"
        + "".join(f'<td class="n">{shown(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    ]
    return [
        "<h2>Learning</h2>",
        f'<p class="soft">{shown(curve.note(r.curve))}</p>',
        '<div class="plots two">',
        *(_figure(*plot) for plot in plots.draw_curve(r.curve)),
        "</div>",
        _table(head, lines, numbers=True),
    ]


def _per_answer(r, i):
    names = ["precision", "recall", "f1"] + ["auc"] * (len(r.answers) > 2)
    rows = []
    for a, answer in enumerate(r.answers):
        cells = "".join(_interval(r.figures[i][name, a]) for name in names)
        rows.append(
            f'<tr><th>{shown(answer)}</th><td class="n">{r.n_per_answer[a]}</td>{cells}</tr>'
        )
    head = ["answer", "texts", *(TITLES[name] for name in names)]
    return _table(head, rows, r.systems[i].label if len(r.systems) > 1 else "")


def _confusion(r, i):
    cells, columns = r.outcomes[i].confusion(), [*r.answers, "unsure"]
    caption = r.systems[i].label if len(r.systems) > 1 else ""
    if len(r.answers) > MAX_COLUMNS:
        rows = [
            f"<tr><th>{shown(r.answers[a])}</th><td>{shown(columns[b])}</td>"
            f'<td class="n">{n}</td></tr>'
            for a, b, n in terminal.confusions(cells)
        ]
        return _table(["correct", "answer", "texts"], rows, caption or "the most frequent")
    rows = []
    for a, (name, row) in enumerate(zip(r.answers, cells)):
        of = max(1, int(row.sum()))
        tds = "".join(
            f'<td class="n" style="background: {_shade(n / of, a, b, len(row))}">{n}</td>'
            for b, n in enumerate(map(int, row))
        )
        rows.append(f"<tr><th>{shown(name)}</th>{tds}</tr>")
    return _table(["correct", *columns], rows, caption, numbers=True)


def _shade(share, right, given, n_columns):
    """The background of a cell: by its share of a row; correct, unsure or wrong."""
    if given == right:
        rgb = "70, 140, 210"
    else:
        rgb = "128, 134, 140" if given == n_columns - 1 else "235, 110, 60"
    return f"rgba({rgb}, {0.5 * share:.3f})" if share else "transparent"


def _mistakes(r):
    if not r.mistakes:
        return ["<h2>Worst mistakes</h2>", "<p>No most probable answer is wrong.</p>"]
    title = f"Worst mistakes of {r.systems[0].label}" if len(r.systems) > 1 else "Worst mistakes"
    parts = [
        f"<h2>{shown(title)}</h2>",
        '<p class="soft">Texts whose most probable answer is wrong, those with the least'
        " probability of the correct one first.</p>",
    ]
    return [*parts, '<div class="mistakes">', *(_mistake(r, m) for m in r.mistakes), "</div>"]


def _mistake(r, m):
    other = ""
    if len(r.outcomes) > 1:
        p = r.outcomes[1].p[m.i]
        other = f"; {shown(r.systems[1].label)}: {shown(r.answers[int(p.argmax())])} {p.max():.3f}"
    unsure = " (unsure)" if m.is_unsure else ""
    said = (
        f"correct: <b>{shown(r.answers[m.right])}</b> {m.p_right:.3f}; most probable:"
        f" <b>{shown(r.answers[m.best])}</b> {m.p_best:.3f}{unsure}{other}"
    )
    rest = '<p class="soft">The text goes on.</p>' if m.is_cut else ""
    return (
        f"<article><h3>{shown(one_line(m.name))}</h3><p>{said}</p>\n"
        f'<pre dir="auto" tabindex="0">{shown(m.text)}</pre>{rest}</article>'
    )
