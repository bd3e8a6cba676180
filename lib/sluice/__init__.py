"""Run language models on a CPU: the package of the commands, and the Python API.

    model = sluice.load("m.gguf")          # tokenize, logits, generate, embed, rerank
    question = sluice.Question("spam")     # classify, classify_many

`__all__` lists the public names. All other modules are internal to the commands. Importing this
package loads no other module; the first use of a public name does.
"""

TYPE_CHECKING = False  # type checkers treat it as true; importing typing takes too long
if TYPE_CHECKING:
    from .api import Call, ChatPrompt, Generation, Model, Question, Ranked, Verdict, load
    from .faults import DataError, Error, UnsupportedError

__all__ = [
    "Call",
    "ChatPrompt",
    "DataError",
    "Error",
    "Generation",
    "Model",
    "Question",
    "Ranked",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "load",
]

VERSION = "0.1.0"


__version__ = VERSION


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.endswith("Error"):
        from . import faults

        return getattr(faults, name)
    try:
        from . import api
    except SystemExit as e:  # this ends a command; in a program only the import fails
        raise ImportError("the kernels of sluice cannot be loaded", name="sluice._kernels") from e
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
