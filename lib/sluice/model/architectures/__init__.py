"""Architectures of this build: one file each; general.architecture of a model is its name."""

import os

from ..architecture import Architecture, check


def names() -> list[str]:
    """Return the sorted names of this build's architectures: the files of this package."""
    return sorted(
        entry[:-3]
        for directory in __path__
        for entry in os.listdir(directory)
        if entry.endswith(".py") and not entry.startswith("_")
    )


def find(name: str) -> Architecture | None:
    """Return the record of the architecture `name` (any string of a model file), or None.

    Imports only its file and those it builds upon. ValueError if the record contradicts itself.
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
    """Return all records, sorted by name."""
    return [record for name in names() if (record := find(name))]
