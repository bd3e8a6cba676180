"""Language models as Unix filters, and as a library.

    model = sluice.load("m.gguf")          # tokenize, detokenize, logits, generate
    question = sluice.Question("spam")     # classify, classify_many

The public names are those of `__all__`; the modules beneath are the commands' own. Importing this
package loads none of them: the first use of a name does.
"""

TYPE_CHECKING = False  # as typing has it; checkers take it for true
if TYPE_CHECKING:
    from .api import Generation, Model, Question, Verdict, load
    from .faults import DataError, Error, UnsupportedError

__all__ = [
    "DataError",
    "Error",
    "Generation",
    "Model",
    "Question",
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
    except SystemExit as e:  # it ends a command; of a program it is one import that fails
        raise ImportError("the kernels of sluice cannot be loaded", name="sluice._kernels") from e
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
