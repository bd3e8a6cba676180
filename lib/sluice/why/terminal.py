"""A Why as lines for a terminal and as JSON.

    yes 1.000
    log-odds of yes against the rest: +9.42; without text: -1.30; each of 5 lines left out:
    +0.61 #####      Buy now!
    -0.20 ##         We met last week.
    learned from 120 texts: words and fields add +0.40; the 2 of 31 that weigh most:
    +0.31 ###        from:example.org
    -0.12 #          minutes
    without these 2 lines: no 0.812
      2 Buy now!
      4 Only today!

A span is printed without its line end, control characters as ^[ and the like. Colours are used on a
terminal only, unless $NO_COLOR is set: green for spans that speak for the answer, red for those
against it.
"""

import os

from . import user_words
from .visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .why import Why

BAR = 10  # characters of the largest effect, or of 1 if that is larger
MAX_SHOWN = 1000  # characters of a span
GREEN, RED, DIM, RESET = "\033[32m", "\033[31m", "\033[2m", "\033[0m"


def is_coloured(fd: int) -> bool:
    """Whether to use colours on a descriptor: a terminal, and $NO_COLOR is not set."""
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def lines(w: "Why", top: int | None = None, coloured: bool = False) -> bytes:
    """The lines after the verdict. top: the number of spans, the largest effects first; None: all,
    in their order.
    """
    style = (lambda codes, text: codes + text + RESET) if coloured else (lambda codes, text: text)
    out = [style(DIM, head(w))]
    words = w.words.effects[: top or user_words.N_SHOWN] if w.words else []
    most = max(1.0, *map(abs, w.effects), *(abs(x) for _, x in words))  # small ones, small bars

    def row(effect: float, shown: str) -> str:
        bar = "#" * round(BAR * abs(effect) / most)
        colour = DIM if not bar else GREEN if effect > 0 else RED
        return style(colour, f"{effect:+.2f} {bar:<{BAR}}") + f" {shown}"

    out += [row(w.effects[i], span(w, i)) for i in w.largest(top)]
    if w.words:
        out.append(style(DIM, user_words.head(w.words, top)))
        out += [row(effect, user_words.shown(word)) for word, effect in words]
    if w.counterfactual:
        numbers, v = w.counterfactual
        out.append(f"without {these(w, len(numbers))}: {v.answer} {v.score:.3f}")
        out += [f"{i + 1:>3} {span(w, i)}" for i in numbers]
    return "".join(line + "\n" for line in out).encode()


def these(w: "Why", n: int) -> str:
    """ "this line", "these 2 sentences"."""
    return f"these {n} {w.spans.kind}" if n > 1 else f"this {w.spans.kind[:-1]}"


def head(w: "Why") -> str:
    """What the effects are, in one line."""
    n, kind = len(w.effects), w.spans.kind
    merged = w.spans.n_cut - max(0, w.spans.n_unread - 1) > n
    without = "" if w.without is None else f"; without text: {w.without:+.2f}"
    of = f" (of {w.spans.n_cut}, neighbours together)" if merged else ""
    return (
        f"log-odds of {w.of} against the rest: {w.score:+.2f}{without}; each of {n} {kind}{of}"
        " left out:"
    )


def span(w: "Why", i: int) -> str:
    """The span of a number, as it is shown."""
    if i == w.spans.unread:
        return f"({w.spans.n_unread} {w.spans.kind} in the middle, which the prompt leaves out)"
    shown = visible(w.spans.texts[i][: 4 * MAX_SHOWN])
    return shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 3] + "..."


def fields(w: "Why", top: int | None = None) -> "dict[str, Any]":
    """The value of the key why: numbers of spans begin with 1."""
    spans = [
        {
            "span": i + 1,
            "effect": round(w.effects[i], 6),
            "answer": w.verdicts[i].answer,
            "score": round(w.verdicts[i].score, 6),
            **(
                {"text": None, "left_out_by_prompt": w.spans.n_unread}
                if i == w.spans.unread
                else {"text": w.spans.texts[i].decode("utf-8", "replace")}
            ),
        }
        for i in w.largest(top)
    ]
    found: dict[str, Any] = {
        "of": w.of,
        "log_odds": round(w.score, 6),
        "without_text": None if w.without is None else round(w.without, 6),
        "together": None if w.together is None else round(w.together, 6),
        "sum": round(sum(w.effects), 6),
        "kind": w.spans.kind,
        "n": len(w.effects),
        "n_cut": w.spans.n_cut,
        "spans": spans,
    }
    if w.words:
        found["learned"] = user_words.fields(w.words, top)
    if w.counterfactual:
        numbers, v = w.counterfactual
        found["counterfactual"] = {
            "without": [i + 1 for i in numbers],
            "answer": v.answer,
            "score": round(v.score, 6),
        }
    return found
