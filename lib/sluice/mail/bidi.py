"""Put text whose direction is overridden in the order in which a reader sees it.

Unicode's UAX #9, as much of it as decides that order for letters that are read from left to right:
U+202E shows the characters up to U+202C, or to the end of the line, from right to left, brackets
mirrored; U+202D and embeddings within show theirs from left to right again. Hebrew and Arabic are
read from right to left in any case, so that they keep their order.
"""

import re
import unicodedata

RLO, PDF = "\u202e", "\u202c"
# overrides, embeddings, isolates and their ends
CONTROLS = "([\u202a-\u202e\u2066-\u2069])"
ISOLATES = "\u2066\u2067\u2068"
# nested changes of direction of one line; those deeper change nothing. UAX #9 has 125
MAX_NESTED = 8
MIRRORED = str.maketrans("()[]{}<>\xab\xbb\u2039\u203a", ")(][}{><\xbb\xab\u203a\u2039")


def displayed(text: str) -> str:
    """The text with each overridden run in the order of the eye; controls are removed from lines
    that have one. Linear.
    """
    return "\n".join(_line(line) if RLO in line else line for line in text.split("\n"))


def _line(line: str) -> str:
    # open runs: (is an isolate, is from right to left, its pieces)
    runs: list[tuple[bool, bool, list[str]]] = [(False, False, [])]
    n_ignored = 0
    for i, piece in enumerate(re.split(CONTROLS, line)):
        if i % 2 == 0:
            runs[-1][2].append(piece)
        elif piece == PDF or piece == "\u2069":
            if n_ignored:
                n_ignored -= 1
            elif piece == PDF:
                if len(runs) > 1 and not runs[-1][0]:
                    _close(runs)
            elif any(is_isolate for is_isolate, _, _ in runs):
                while not runs[-1][0]:  # what is open within an isolate ends with it
                    _close(runs)
                _close(runs)
        elif len(runs) > MAX_NESTED:
            n_ignored += 1
        else:
            runs.append((piece in ISOLATES, piece == RLO, []))
    while len(runs) > 1:
        _close(runs)
    return "".join(runs[0][2])


def _close(runs: list[tuple[bool, bool, list[str]]]) -> None:
    _, is_reversed, pieces = runs.pop()
    text = "".join(pieces)
    was_reversed = runs[-1][1]
    runs[-1][2].append(_reversed(text) if is_reversed != was_reversed else text)


def _reversed(text: str) -> str:
    """The characters from the last to the first, each with its combining marks."""
    n_right = sum(unicodedata.bidirectional(c) in ("R", "AL") for c in text)
    if 2 * n_right > sum(map(str.isalpha, text)):
        return text
    if not text.isascii():
        text = "".join(
            reversed(re.findall("(?s).[\u0300-\u036f\u20d0-\u20ff\ufe20-\ufe2f]*", text))
        )
    else:
        text = text[::-1]
    return text.translate(MIRRORED)
