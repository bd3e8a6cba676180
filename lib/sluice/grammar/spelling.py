"""Spelling: the tokens of a text that a grammar determines, as the vocabulary itself would have
them.

A model reads a text best in the tokens of its vocabulary's own rules, since it learned from these.
So a determined text is not written in any tokens that the grammar allows, but in those. It begins
behind tokens that were chosen, and is tokenized together with the last of them; where the rules
would join both, it is tokenized alone, as the chosen ones stand. Tokens that the model suppresses
are left out: others with the same text stand in their place.
"""

from ..faults import data_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tokenizer.vocabulary import Vocab
    from .matcher import Matcher

N_BEFORE = 4  # tokens before a text that it is tokenized with
MAX_TOKEN_BYTES = 64  # of a token that is looked for by its text


def of_text(vocab: "Vocab", before: "Sequence[int]", text: bytes) -> list[int]:
    """Return tokens of `text` behind the tokens `before`. The texts of the first of them are the
    first bytes of `text`; later ones may differ from it where it is not UTF-8.
    """
    known = [*before[-N_BEFORE:]]
    if known and not any(vocab.is_control(token) for token in known):
        together = _encode(vocab, b"".join(map(vocab.bytes_of, known)) + text)
        if together[: len(known)] == known:
            return together[len(known) :]
    return _encode(vocab, text)


def forced(matcher: "Matcher", vocab: "Vocab", before: "Sequence[int]") -> tuple[list[int], bool]:
    """Return (tokens, last): the tokens that must come next, [] where there is a choice; whether
    the text is complete behind them, and cannot continue.

    A token is left out, and those behind it, if the grammar allows one that goes on beyond the text
    that must come, or if it is suppressed.
    """
    text, is_open, last = matcher.forced()
    tokens: list[int] = []
    at = 0
    for token in of_text(vocab, before, text) if text and not is_open[0] else ():
        data = vocab.bytes_of(token)
        if at == len(text) or is_open[at] or not data or not text.startswith(data, at):
            break
        if token in vocab.suppressed:
            break
        tokens.append(token)
        at += len(data)
    return tokens, last and at == len(text)


def closing(matcher: "Matcher", vocab: "Vocab", before: "Sequence[int]") -> list[int]:
    """Return the tokens of the shortest text that completes the text so far. DataError."""
    tokens: list[int] = []
    for part in matcher.shortest():
        if isinstance(part, bytes):
            tokens += _exactly(matcher, vocab, [*before, *tokens], part)
        else:
            token, negated = part
            tokens.append(_other(matcher, vocab, token) if negated else token)
    return tokens


def _encode(vocab, text):
    return vocab.encode(text, bos=False, eos=False, prefix=False, marks=False)


def _exactly(matcher, vocab, before, text):
    """Return tokens whose texts are `text`, which may begin within a character."""
    n_within = 0
    while n_within < len(text) and text[n_within] & 0xC0 == 0x80:
        n_within += 1
    head, rest = text[:n_within], text[n_within:]
    tokens = of_text(vocab, [] if head else before, rest)
    is_spelled = b"".join(map(vocab.bytes_of, tokens)) == rest and all(map(vocab.bytes_of, tokens))
    if not is_spelled or not vocab.suppressed.isdisjoint(tokens):
        head, tokens = text, []
    return _by_text(matcher, vocab, head) + tokens


def _by_text(matcher, vocab, text):
    """Return tokens whose texts are `text`, the longest first. A suppressed one is among them only
    if no other begins there.
    """
    tokens, at = [], 0
    while at < len(text):
        found = _longest(vocab, text, at, vocab.eog | vocab.suppressed)
        if found is None:
            found = _longest(vocab, text, at, vocab.eog)
        if found is None:
            raise data_error(matcher.grammar.name, f"the model has no token for byte {text[at]}")
        tokens.append(found)
        at += len(vocab.bytes_of(found))
    return tokens


def _longest(vocab, text, at, never):
    """Return the token with the longest text that `text` has at `at`, or None."""
    for n in range(min(MAX_TOKEN_BYTES, len(text) - at), 0, -1):
        for token in vocab.tokens_writing(text[at : at + n]):
            if token not in never:
                return token
    return None


def _other(matcher, vocab, token):
    """Return the first token with a text that is not `token`; a suppressed one if all are."""
    others = [
        i
        for i in range(vocab.n_vocab)
        if i != token and i not in vocab.eog and vocab.bytes_of(i) and not vocab.is_control(i)
    ]
    if not others:
        raise data_error(matcher.grammar.name, f"the model has no token but {token}")
    return next((i for i in others if i not in vocab.suppressed), others[0])
