"""A Why as a page (htmlpage.py): the text with its lines in shades, and tables of them."""

import html

from .. import VERSION, htmlpage
from ..system import files
from . import terminal, user_words
from .visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..classify.classifier import Classifier
    from .why import Why

STEPS = 9  # shades of a colour
STYLE = """\
:root { --for: 34, 139, 60; --against: 200, 66, 26; }
@media (prefers-color-scheme: dark) { :root { --for: 60, 170, 90; --against: 224, 92, 50; } }
main { max-width: 60rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.6rem; }
.text { background: var(--box); border: 1px solid var(--rule); border-radius: 8px;
  padding: 0.8rem 0.9rem; overflow-wrap: anywhere; }
.text mark { display: block; unicode-bidi: plaintext; }
mark { color: inherit; background: none; border-radius: 3px; padding: 0.05rem 0.2rem;
  border-left: 3px solid transparent; }
.inline mark { display: inline; border-left: 0; }
table { width: 100%; }
th, td { padding: 0.3rem 0.6rem 0.3rem 0; }
td.words { overflow-wrap: anywhere; unicode-bidi: plaintext; }
@media (max-width: 34rem) { th, td { padding-right: 0.4rem; } table { font-size: 0.85rem; } }
"""


def check(path: str, *sources: str | None) -> None:
    """Raise Error 64, 73 or 75 if `write` could not write `path`, or would write over one of
    `sources`: it is called before the work.
    """
    files.check_target(path, *sources)


def write(path: str, c: "Classifier", w: "Why", name: str, top: int | None = None) -> None:
    """Write the page of a Why about the text called `name`. Error 73 to 75, and `path` stays as it
    was.
    """
    htmlpage.write(path, text(c, w, name, top))


def text(c: "Classifier", w: "Why", name: str, top: int | None = None) -> str:
    """The page."""
    v, question = w.verdict, _shown(c.question.name)
    title = f"Why {_shown(v.answer)}? {question}: {_shown(name)}"
    parts = [
        f"<p><b>{_shown(v.answer)} {v.score:.3f}</b></p>",
        f"<p>{_shown(terminal.head(w))[:-1]}.</p>",
        *_together(w),
        *_counterfactual(w),
        f"<h2>Text</h2>\n{_marked(w)}",
        f"<h2>{_shown(w.spans.kind.capitalize())}</h2>",
        _table(w, top),
        '<p class="soft">Effect: the log-odds of the whole text less those without the'
        f" {_shown(w.spans.kind[:-1])}. Above 0 (green, +) it speaks for {_shown(w.of)}, below"
        " (red, −) against.</p>",
        *_words(w, top),
        f'<p class="soft">Model {c.model.file.id[:8].hex()}, question {question}. Written by'
        f" classify --why, Sluice {_shown(VERSION)}.</p>",
    ]
    return htmlpage.page(title, STYLE + _shades(), parts)


def _shown(text):
    return html.escape(visible(text))


def _span(w, i):
    return html.escape(terminal.span(w, i))


def _shades():
    """A class for each shade, f1 to f9 for the answer and a1 to a9 against it."""
    rules = []
    for letter, colour in (("f", "--for"), ("a", "--against")):
        for step in range(1, STEPS + 1):
            alpha = 0.06 * step
            rules.append(
                f".{letter}{step} {{ background: rgba(var({colour}), {alpha:.2f});"
                f" border-color: rgb(var({colour})); }}\n"
            )
    return "".join(rules)


def _class(w, i):
    return _shade(w.effects[i], max(1.0, *map(abs, w.effects)))


def _shade(effect, most):
    step = round(STEPS * abs(effect) / most)
    return f' class="{"f" if effect > 0 else "a"}{step}"' if step else ""


def _marked(w):
    marks = [
        f'<mark{_class(w, i)} title="{w.effects[i]:+.2f}">{_span(w, i)}</mark>'
        for i in range(len(w.effects))
    ]
    inline = "" if w.spans.kind == "lines" else " inline"
    return f'<div class="text{inline}">\n' + "\n".join(marks) + "\n</div>"


def _table(w, top):
    rows = [
        f'<tr><td class="n">{i + 1}</td><td class="n"><mark{_class(w, i)}>{_signed(w.effects[i])}'
        f'</mark></td><td class="n">{_shown(w.verdicts[i].answer)} {w.verdicts[i].score:.3f}</td>'
        f'<td class="words">{_span(w, i)}</td></tr>'
        for i in w.largest(len(w.effects) if top is None else top)
    ]
    return (
        "<table>\n<caption>Each left out, the largest effect first.</caption>\n<thead><tr><th>No."
        "</th><th>Effect</th><th>Without it</th><th>Text</th></tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody>\n</table>"
    )


def _words(w, top):
    """What the user's own words added."""
    if not w.words:
        return []
    head = _shown(user_words.head(w.words, top)).removesuffix(":")
    shown = w.words.effects[: top or user_words.N_SHOWN]
    most = max([1.0, *(abs(x) for _, x in shown)])
    rows = [
        f'<tr><td class="n"><mark{_shade(x, most)}>{_signed(x)}</mark></td>'
        f'<td class="words">{html.escape(user_words.shown(word))}</td></tr>'
        for word, x in shown
    ]
    table = [
        "<table>\n<thead><tr><th>Effect</th><th>Word or field</th></tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody>\n</table>"
    ]
    return ["<h2>Your words</h2>", f"<p>{head[0].upper()}{head[1:]}.</p>", *(table if rows else [])]


def _signed(x):
    return f"{x:+.2f}".replace("-", "−")


def _together(w):
    if w.together is None:
        return []
    return [
        f"<p>All {len(w.effects)} {_shown(w.spans.kind)} left out together: {_signed(w.together)};"
        f" the sum of the single effects: {_signed(sum(w.effects))}. They differ where"
        f" {_shown(w.spans.kind)} say the same or belong together.</p>"
    ]


def _counterfactual(w):
    if not w.counterfactual:
        return []
    numbers, v = w.counterfactual
    items = "\n".join(f"<li>{_span(w, i)}</li>" for i in numbers)
    return [
        f"<p>Without {terminal.these(w, len(numbers))}: <b>{_shown(v.answer)} {v.score:.3f}</b></p>"
        f"\n<ul>\n{items}\n</ul>"
    ]
