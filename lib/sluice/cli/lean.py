"""click without what it imports for its help pages: a seventh of the time that a command takes to
start.
"""

import sys
from contextlib import contextmanager
from types import ModuleType


class _Inspect(ModuleType):
    """The module inspect for those who import it meanwhile. Of every option click asks it for
    `cleandoc`; the module itself, which brings a disassembler, a parser and a tokenizer along,
    comes when anything else is wanted.
    """

    def cleandoc(self, doc):
        return doc.expandtabs().lstrip() if "\n" not in doc else self.__getattr__("cleandoc")(doc)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        _remove(self)
        import inspect

        return getattr(inspect, name)


def _remove(stand_in):
    if sys.modules.get("inspect") is stand_in:
        del sys.modules["inspect"]


@contextmanager
def imports():
    """Within it `import inspect` gives a stand-in, where the module is not there already."""
    if "inspect" in sys.modules:
        yield
        return
    sys.modules["inspect"] = stand_in = _Inspect("inspect")
    try:
        yield
    finally:
        _remove(stand_in)
