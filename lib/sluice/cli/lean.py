"""Import click without the module inspect, which takes a seventh of a command's start-up time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Inspect(ModuleType):
    """Stands in for the module inspect.

    click calls `cleandoc` for every option. Any other attribute imports the real module, which
    loads a disassembler, a parser and a tokenizer.
    """

    def cleandoc(self, doc: str) -> str:
        """Return a docstring without indentation."""
        return doc.expandtabs().lstrip() if "\n" not in doc else self.__getattr__("cleandoc")(doc)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _remove(self)
        import inspect

        return getattr(inspect, name)


def _remove(stand_in):
    if sys.modules.get("inspect") is stand_in:
        del sys.modules["inspect"]


@contextmanager
def imports() -> Iterator[None]:
    """Replace the module inspect by a stand-in within the context, unless it is already loaded."""
    if "inspect" in sys.modules:
        yield
        return
    sys.modules["inspect"] = stand_in = _Inspect("inspect")
    try:
        yield
    finally:
        _remove(stand_in)
