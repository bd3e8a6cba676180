"""The architectures of this build: a file each, found by its name, which the model file gives."""

import os

from ..architecture import Architecture, check


def names() -> list[str]:
    """The architectures this build has, sorted: the files of this package."""
    return sorted(
        entry[:-3]
        for directory in __path__
        for entry in os.listdir(directory)
        if entry.endswith(".py") and not entry.startswith("_")
    )


def find(name: str) -> Architecture | None:
    """The record of the architecture `name`, any string of a model file; None if there is none.

    Imports its file alone, and those it builds upon. ValueError if the record contradicts itself.
    """
    if name not in names():
        return None
    # importlib would take longer to import than the record
    record = __import__(f"{__name__}.{name}", fromlist=("ARCHITECTURE",)).ARCHITECTURE
    if record.name != name:
        raise ValueError(f"architectures/{name}.py holds the record of {record.name}")
    check(record)
    return record


def load_all() -> list[Architecture]:
    """All records, by name."""
    return [record for name in names() if (record := find(name))]
