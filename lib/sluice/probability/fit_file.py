"""Files of `classify` for one model and one question: a fit (--fit), a prior (--save-prior).

    #fit 1 5f0c...                     what it is, version, SHA-256 of all that follows
    {"answers": ["yes", "no"], ...}    one JSON object

A fit has these fields; a prior has the first four and log_p.

    model        ID of the model, 64 hex digits
    question     calibration.digest of the question
    answers      names, in order
    base         [scale, *biases] of the question's calibration, which the fit replaces
    labels       number of labelled texts
    taken        "none", "calibration" or "head"
    scale, bias  P(answer) ~ exp(scale * x + bias), x: the log probabilities, or the head's scores
    head         None, or {weights: base64 of f32 [n_answers][n_embd], offset: [n_answers], ridge}
    risk         None, or {error, confidence, threshold, accepted, errors}: see risk.py
    figures      {rung: {log_loss, brier, accuracy}}, out of fold

A file that is damaged, or of another model, question or calibration, is an error (65): an answer
would differ from the one that was measured. Files have mode 0600 and appear whole or not at all.
"""

import base64
import binascii
import os
from array import array

from ..faults import data_error, printable
from ..jsonl import BadLine, dump, load
from ..question import calibration
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..classify.classifier import Classifier

VERSION = 1
FIT = "fit"
MAX_BYTES = 64 << 20
MAX_FIRST_LINE = 96
MAX_NUMBER = 1e6  # absolute value of a number in a file
TAKEN = ("none", "calibration", "head")
SAFE = "; --no-calibration ignores it"


class Fitted:
    """A fit in use. path: of its file. digest: 16 hex digits of the file's checksum. n: labelled
    texts. taken: the rung. risk: dict or None.
    """

    def __init__(self, path: str, fields: "dict[str, Any]", digest: str) -> None:
        self.path, self.digest = path, digest[:16]
        self.n, self.taken, self.risk = fields["labels"], fields["taken"], fields["risk"]


def prepare_target(path: str) -> None:
    """Make the directory of the file at `path`. Error 73 if it, or the file, cannot be made."""
    files.make_directory_of(path)
    files.check_target(path)


def write(path: str, kind: str, fields: "dict[str, Any]") -> str:
    """Write the file at `path` atomically, mode 0600. Returns its digest. Error 73, 74 or 75."""
    import hashlib

    body = dump(dict(sorted(fields.items())))
    digest = hashlib.sha256(body).hexdigest()
    first = f"#{kind} {VERSION} {digest}\n".encode()
    files.write(path, lambda f: f.write(first + body), mode=0o600)
    return digest[:16]


def kind_of(path: str) -> str | None:
    """Return the kind that the first line of the file at `path` names; None for any other file.
    OSError.
    """
    if os.path.isdir(path):
        return None
    with open(path, "rb", buffering=0) as f:
        words = f.read(MAX_FIRST_LINE).partition(b"\n")[0].split(b" ")
    if len(words) == 3 and words[0] in (b"#fit", b"#prior") and len(words[2]) == 64:
        return words[0][1:].decode()
    return None


def read(path: str, kind: str) -> "dict[str, Any]":
    """Return the fields of the file at `path`, and its digest as the field "digest".

    Raises DataError if it is damaged, of another kind or version, or if others could have written
    it, and OSError.
    """
    import hashlib

    with open(files.open_trusted(path), "rb") as f:
        first, body = f.readline(MAX_FIRST_LINE), f.read(MAX_BYTES + 1)
    words = first.split(b" ")
    if len(words) != 3 or words[0] != b"#" + kind.encode() or not first.endswith(b"\n"):
        raise data_error(path, f"line 1: is not the first line of a {kind}")
    if words[1] != str(VERSION).encode():
        raise data_error(path, f"line 1: version {printable(words[1])}; this program reads 1")
    digest = hashlib.sha256(body).hexdigest()
    if len(body) > MAX_BYTES or words[2].rstrip(b"\n") != digest.encode():
        raise data_error(path, f"damaged: wrong checksum; make the {kind} again{SAFE}")
    try:
        fields = load(body)
    except BadLine as e:
        raise data_error(path, f"line 2: {e}") from None
    if not isinstance(fields, dict):
        raise data_error(path, "line 2: is not an object")
    return {**fields, "digest": digest}


def bound_to(c: "Classifier", base: list[float]) -> "dict[str, Any]":
    """Return the fields that bind a file to the model and the question of `c`."""
    return {
        "model": c.model.file.id.hex(),
        "question": calibration.digest(c.question),
        "answers": list(c.question.answers),
        "base": base,
    }


def check_bound(path: str, fields: "dict[str, Any]", c: "Classifier") -> None:
    """Raise DataError unless the file is of the model and the question of `c`."""
    if fields.get("model") != c.model.file.id.hex():
        raise data_error(path, f"belongs to another model than {c.model.file.path}{SAFE}")
    if fields.get("question") != calibration.digest(c.question):
        raise data_error(path, f"belongs to another question than {c.question.path}{SAFE}")
    if fields.get("answers") != list(c.question.answers):
        raise data_error(path, f"answers: are not those of {c.question.path}")


def numbers(path: str, fields: "dict[str, Any]", key: str, n: int) -> list[float]:
    """Return the list of `n` floats in the field `key`. Raises DataError."""
    value = fields.get(key)
    if not isinstance(value, list) or len(value) != n or not all(map(_is_number, value)):
        raise data_error(path, f"{key}: is not a list of {n} numbers")
    return [float(x) for x in value]


def use(c: "Classifier", path: str) -> None:
    """Let `c` answer by the fit in the file at `path`: calibration, head and thresholds.

    Changes c.question, which must be a copy of its own. Raises DataError, or OSError.
    """
    fields = read(path, FIT)
    check_bound(path, fields, c)
    q, n = c.question, len(c.question.answers)
    base = [q.scale, *q.bias.values()]
    if numbers(path, fields, "base", n + 1) != base:
        raise data_error(path, f"was fitted to another calibration of {q.path}{SAFE}")
    labels, taken = fields.get("labels"), fields.get("taken")
    if type(labels) is not int or labels < 0 or taken not in TAKEN:
        raise data_error(path, "labels or taken: is not what a fit has")
    scale = fields.get("scale")
    if scale is None or not _is_number(scale) or scale <= 0:
        raise data_error(path, "scale: is not a number above 0")
    bias = numbers(path, fields, "bias", n)
    head = _head(path, fields.get("head"), n, c.model.hparams.n_embd)
    if (taken == "head") != (head is not None):
        raise data_error(path, "head: is missing, or one too many")
    _check_risk(path, fields)
    q.scale, q.bias = float(scale), dict(zip(q.answers, bias))
    if fields["risk"]:
        q.thresholds = dict.fromkeys(q.answers, float(fields["risk"]["threshold"]))
    if head:
        c.head, c.keeps_hidden = head, True
    c.fitted = Fitted(path, fields, fields["digest"])


def _head(path, fields, n_answers, n_embd):
    if fields is None:
        return None
    from .heads import Head

    if not isinstance(fields, dict) or not isinstance(fields.get("weights"), str):
        raise data_error(path, "head: is not an object with weights")
    try:
        data = base64.b64decode(fields["weights"], validate=True)
    except (binascii.Error, ValueError):
        raise data_error(path, "head.weights: is not base64") from None
    if len(data) != 4 * n_answers * n_embd:
        raise data_error(path, f"head.weights: is not {n_answers} rows of {n_embd} numbers")
    weights = array("f", data)
    if not all(map(_is_number, weights)):
        raise data_error(path, "head.weights: a number is not finite, or is too large")
    rows = [weights[i * n_embd : (i + 1) * n_embd] for i in range(n_answers)]
    return Head(rows, numbers(path, fields, "offset", n_answers))


def _check_risk(path, fields):
    risk = fields.setdefault("risk", None)
    if risk is None:
        return
    if not isinstance(risk, dict) or not all(
        _is_number(risk.get(key)) for key in ("error", "confidence", "threshold")
    ):
        raise data_error(path, "risk: is not an object with error, confidence and threshold")
    if not 0 <= risk["threshold"] <= 1:
        raise data_error(path, "risk.threshold: is not a probability")


def _is_number(x):
    return type(x) in (int, float) and -MAX_NUMBER <= x <= MAX_NUMBER  # NaN fails, too


def refuse_learning(fitted: Fitted) -> None:
    """Raise DataError if --learn and --forget cannot start from the fit: it has a head."""
    if fitted.taken == "head":
        raise data_error(
            fitted.path,
            "has a head, which --learn and --forget cannot change: add the text to the labels"
            " and run --fit again, or remove the file",
        )
