"""Words behind the line of a verdict (Classifier.line): why, without a word of the message.

    yes 0.9931 0.9386 3f9a0c1b2d4e5f60 rule=scanners
    no 0.0312 0.9386 3f9a0c1b2d4e5f60 model=-2.63 tokens=-0.80 taught=120 signals=dkim:pass,list

rule: name of the rule that gave the answer. model, tokens: log-odds of the first answer, in nats,
by the question's own calibration, and what the user's adds; "none" if a rule decided. taught: texts
of the user's calibration. signals: mail/signals.py. csrc/mail/marking.c makes headers of them.
"""

from ..question.answers import log_sum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .classifier import Classifier, Verdict

MAX_LOG_ODDS = 99.99
MAX_SIGNALS = 100  # characters


def line(
    c: "Classifier", v: "Verdict", data: bytes, explain: bool, name: str | None = None
) -> bytes:
    """Return c.line(v, name) with the words. data: the message. explain: all but the rule."""
    words = [c.line(v, name)[:-1].decode()]
    if v.rule:
        words.append(f"rule={v.rule}")
    if explain:
        model, tokens, taught = contributions(c, v)
        words += [f"model={model}", f"tokens={tokens}", f"taught={taught}"]
        words.append(f"signals={_signals(c, data)}")
    return " ".join(words).encode() + b"\n"


def contributions(c: "Classifier", v: "Verdict") -> tuple[str, str, int]:
    """Return (model, tokens, taught) as they are printed."""
    if v.rule:
        return "none", "none", 0
    q = c.question
    scale, *bias = v.calibration
    log_p = c.head.scores(v.hidden) if c.head else v.log_p
    own = _log_odds(log_p, q.scale, list(q.bias.values()))
    both = _log_odds(log_p, scale, bias)
    return f"{own:+.2f}", f"{both - own:+.2f}", v.learned.n_texts if v.learned else 0


def _log_odds(log_p, scale, bias):
    """ln(P(first) / (1 - P(first))), within MAX_LOG_ODDS."""
    first, *others = [scale * p + b for p, b in zip(log_p, bias)]
    return max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, first - log_sum(others)))


def _signals(c, data):
    from ..mail import signals

    shown = ""
    for word in signals.words(signals.tokens(data, c.authserv_ids)) if c.is_mail else ():
        if len(shown) + 1 + len(word) > MAX_SIGNALS:
            break
        shown += "," * bool(shown) + word
    return shown or "none"
