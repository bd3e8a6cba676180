"""Settings of the sampler: one table of names, defaults and ranges.

The options of `sample`, `generate` and `chat`, the keys of presets, the arguments of Sampler, and
the table in lib/README.md all come from SETTINGS.
"""

from typing import NamedTuple

from .. import limits
from ..faults import data_error, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# Steps in their default order, that of llama.cpp; "least" is ours.
STEPS = (
    "penalties",
    "dry",
    "least",
    "top-n-sigma",
    "top-k",
    "typical",
    "top-p",
    "min-p",
    "xtc",
    "temperature",
)
LETTERS = dict(zip("edlskypmxt", STEPS))  # as for llama.cpp's --sampler-seq, and l
OTHER_NAMES = {"typ-p": "typical", "typical-p": "typical", "temp": "temperature"}
PRESETS = ("greedy", "precise", "balanced", "creative", "no-repeats")  # configs/samplers
BREAKERS = ("\n", ":", '"', "*")  # default sequence breakers of DRY


class Setting(NamedTuple):
    """A number that a step needs.

    argument: name of the argument of Sampler. step: the step, or "mirostat". default: its type,
    int or float, is that of the value. off: the value with which the setting does nothing by
    itself; None: there is none. limits: (minimum, maximum). flags: of the option, the long one
    first. aliases: further flags. shown: the default in words.
    """

    argument: str
    step: str
    default: "Any"
    off: float | None
    limits: tuple[float, float | None]
    flags: tuple[str, ...]
    metavar: str
    help: str
    aliases: tuple[str, ...] = ()
    shown: str | None = None


SETTINGS = (
    Setting(
        "temperature",
        "temperature",
        0.8,
        None,
        limits.TEMPERATURE,
        ("--temperature", "-t"),
        "T",
        "Divide logits by T; 0: greedy.",
        ("--temp",),
    ),
    Setting(
        "dynatemp_range",
        "temperature",
        0.0,
        0.0,
        limits.DYNATEMP_RANGE,
        ("--dynatemp-range",),
        "R",
        "Choose the temperature from T - R to T + R by the entropy; 0: off.",
    ),
    Setting(
        "dynatemp_exponent",
        "temperature",
        1.0,
        None,
        limits.DYNATEMP_EXPONENT,
        ("--dynatemp-exp",),
        "E",
        "Raise the entropy, as a share of its maximum, to the power E.",
    ),
    Setting(
        "top_k",
        "top-k",
        40,
        0,
        limits.TOP_K,
        ("--top-k", "-k"),
        "K",
        "Keep the K most likely tokens; 0: all.",
    ),
    Setting(
        "top_p",
        "top-p",
        0.95,
        1.0,
        limits.TOP_P,
        ("--top-p", "-p"),
        "P",
        "Keep the fewest most likely tokens with total probability P; 1: all.",
    ),
    Setting(
        "min_p",
        "min-p",
        0.05,
        0.0,
        limits.MIN_P,
        ("--min-p",),
        "P",
        "Keep tokens at least P times as likely as the most likely one; 0: all.",
    ),
    Setting(
        "typical",
        "typical",
        1.0,
        1.0,
        limits.TYPICAL_P,
        ("--typical",),
        "P",
        "Keep the fewest tokens with total probability above P, those first whose surprise is"
        " nearest to the entropy; 1: all.",
        ("--typical-p",),
    ),
    Setting(
        "top_nsigma",
        "top-n-sigma",
        -1.0,
        -1.0,
        limits.TOP_N_SIGMA,
        ("--top-nsigma",),
        "N",
        "Keep tokens at most N standard deviations of all logits below the best; 0 or less: all.",
        ("--top-n-sigma",),
    ),
    Setting(
        "xtc_probability",
        "xtc",
        0.0,
        0.0,
        limits.XTC_PROBABILITY,
        ("--xtc-probability",),
        "P",
        "With probability P, exclude the top choices: of the tokens with probability"
        " --xtc-threshold or more only the least likely is kept; 0: off.",
    ),
    Setting(
        "xtc_threshold",
        "xtc",
        0.1,
        None,
        limits.XTC_THRESHOLD,
        ("--xtc-threshold",),
        "P",
        "Probability of a top choice; above 0.5: off.",
    ),
    Setting(
        "repeat",
        "penalties",
        1.0,
        1.0,
        limits.REPEAT_PENALTY,
        ("--repeat-penalty",),
        "R",
        "Divide positive logits of recent tokens by R and multiply negative ones; 1: off.",
    ),
    Setting(
        "presence",
        "penalties",
        0.0,
        0.0,
        limits.PRESENCE_PENALTY,
        ("--presence-penalty",),
        "A",
        "Subtract A from the logits of recent tokens; 0: off.",
    ),
    Setting(
        "frequency",
        "penalties",
        0.0,
        0.0,
        limits.FREQUENCY_PENALTY,
        ("--frequency-penalty",),
        "A",
        "Subtract A per occurrence of a recent token; 0: off.",
    ),
    Setting(
        "last_n",
        "penalties",
        64,
        None,
        limits.LAST_N,
        ("--last-n",),
        "N",
        "Number of recent tokens for the penalties.",
        ("--repeat-last-n",),
    ),
    Setting(
        "dry_multiplier",
        "dry",
        0.0,
        0.0,
        limits.DRY_MULTIPLIER,
        ("--dry-multiplier",),
        "M",
        "Subtract M B^(L - A) from the logit of a token that would continue a repetition of L"
        " tokens; 0: off.",
    ),
    Setting(
        "dry_base",
        "dry",
        1.75,
        None,
        limits.DRY_BASE,
        ("--dry-base",),
        "B",
        "Base B of the DRY penalty.",
    ),
    Setting(
        "dry_allowed_length",
        "dry",
        2,
        None,
        limits.DRY_ALLOWED_LENGTH,
        ("--dry-allowed-length",),
        "A",
        "Shortest repetition that the DRY penalty is for, in tokens.",
    ),
    Setting(
        "dry_last_n",
        "dry",
        64,
        None,
        limits.DRY_LAST_N,
        ("--dry-penalty-last-n",),
        "N",
        "Tokens that DRY looks back; 0: off; negative: 1048576.",
    ),
    Setting(
        "mirostat",
        "mirostat",
        0,
        0,
        limits.MIROSTAT,
        ("--mirostat",),
        "V",
        "Hold the surprise of the text near a target by Mirostat 1 or 2, with -t and biases alone;"
        " 0: off.",
    ),
    Setting(
        "mirostat_entropy",
        "mirostat",
        5.0,
        None,
        limits.MIROSTAT_ENTROPY,
        ("--mirostat-ent",),
        "H",
        "Target of Mirostat, in bits per token.",
    ),
    Setting(
        "mirostat_rate",
        "mirostat",
        0.1,
        None,
        limits.MIROSTAT_RATE,
        ("--mirostat-lr",),
        "R",
        "Learning rate of Mirostat.",
    ),
    Setting(
        "mirostat_mu",
        "mirostat",
        None,
        None,
        limits.MIROSTAT_MU,
        ("--mirostat-mu",),
        "MU",
        "Start Mirostat with this limit in bits, such as -v printed as mu at the end of a text.",
        (),
        "twice --mirostat-ent",
    ),
)
DEFAULTS = {setting.argument: setting.default for setting in SETTINGS}


def order_of(text: str) -> tuple[str, ...]:
    """Return the steps that `text` names, such as "top-k;temperature", "kt" or "none".

    Names are separated by ";" or ","; llama.cpp's are read, too. Raises ValueError.
    """
    words = [word.strip().lower().replace("_", "-") for word in text.replace(",", ";").split(";")]
    if words == ["none"]:
        return ()
    if (
        len(words) == 1
        and words[0]
        and words[0] not in {*STEPS, *OTHER_NAMES}
        and set(words[0]) <= set(LETTERS)
    ):
        words = [LETTERS[letter] for letter in words[0]]
    names = [OTHER_NAMES.get(word, word) for word in words]
    for name in names:
        if name not in STEPS:
            raise ValueError(f"{printable(name)} is not one of {', '.join(STEPS)}")
        if names.count(name) > 1:
            raise ValueError(f"{name} is named twice")
    return tuple(names)


def check_breakers(texts: "Iterable[str]") -> tuple[str, ...]:
    """Return sequence breakers; without any the default ones; () for "none". Raises ValueError."""
    found = tuple(texts)
    if found == ("none",):
        return ()
    if len(found) > limits.MAX_BREAKERS:
        raise ValueError(f"more than {limits.MAX_BREAKERS} sequence breakers")
    for text in found:
        data = text.encode("utf-8", "replace")
        if data.decode() != text:
            raise ValueError("a sequence breaker is not UTF-8")
        if not 0 < len(data) <= limits.MAX_BREAKER_BYTES:
            raise ValueError(f"a sequence breaker has 1 to {limits.MAX_BREAKER_BYTES} bytes")
    return found or BREAKERS


def number(setting: Setting, value: "Any") -> float | int:
    """Return `value` as the number of a setting. Raises ValueError if it is none, or not in
    range.
    """
    low, high = setting.limits
    is_int = isinstance(setting.default, int)
    if isinstance(value, bool) or not isinstance(value, int if is_int else (int, float)):
        raise ValueError(f"{printable(str(value))} is not {'an integer' if is_int else 'a number'}")
    if not (low <= value and (value <= high if high is not None else value < float("inf"))):
        most = "" if high is None else f" to {high:g}"
        raise ValueError(f"{value} is not in the range from {low:g}{most}")
    return value if is_int else float(value)


# Presets ------------------------------------------------------------------------------------


def check_effect(values: "dict[str, Any]", is_given: "Callable[[str], bool]") -> None:
    """ValueError if a setting was given whose step is not run. values: {argument: value}, with
    `order` and `least`. is_given: whether the user chose the value of an argument.
    """
    order = ("temperature", "mirostat") if values["mirostat"] else (*values["order"], "mirostat")
    why = "--mirostat" if values["mirostat"] else "--sampler-order"
    if values["mirostat"] and is_given("order"):
        raise ValueError("--mirostat and --sampler-order exclude each other")
    for setting in SETTINGS:
        chosen = is_given(setting.argument) and values[setting.argument] != setting.off
        if chosen and setting.step not in order:
            raise ValueError(f"{setting.flags[0]}: {why} leaves out the step {setting.step}")
    if values["least"] and "least" not in order:
        raise ValueError(f"--least: {why} leaves out the step least")


MAX_PRESET_BYTES = 1 << 16


def key_of(setting: Setting) -> str:
    """Return the key of a setting in a preset: repeat_penalty for --repeat-penalty."""
    return setting.flags[0].removeprefix("--").replace("-", "_")


def read_preset(path: str) -> "dict[str, Any]":
    """Return the arguments of Sampler in a preset, a YAML file or the name of a bundled one.

    Its keys are the long options with "_" for "-". DataError names the file and the key.
    """
    import os

    from .. import stream, yamlfile

    file = path
    if "/" not in path and not path.endswith((".yaml", ".yml")):
        file = os.path.join(
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            "configs",
            "samplers",
            f"{path}.yaml",
        )
    values = yamlfile.parse(stream.read_file(file, MAX_PRESET_BYTES), file)
    if not isinstance(values, dict) or not values:
        raise data_error(file, "is not a mapping of settings such as top_k: 40")
    known = {key_of(setting): setting for setting in SETTINGS}
    out: dict[str, Any] = {}
    for key, value in values.items():
        try:
            if key in known:
                out[known[key].argument] = number(known[key], value)
            elif key == "sampler_order":
                out["order"] = order_of(";".join(_texts(value)))
            elif key == "dry_sequence_breakers":
                out["dry_breakers"] = check_breakers(_texts(value))
            elif key == "least":
                if not isinstance(value, bool):
                    raise ValueError("is neither true nor false")
                out["least"] = value
            else:
                keys = [*known, "sampler_order", "dry_sequence_breakers", "least"]
                raise ValueError(f"unknown key; there are {', '.join(keys)}")
        except ValueError as e:
            name = key if key.isidentifier() and key.isascii() else printable(key)
            raise data_error(file, f"{name}: {e}") from None
    return out


def _texts(value):
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("is not a list of texts")
    return value or ["none"]
