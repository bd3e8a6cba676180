"""Where the file of what was learned is."""

import os

SUFFIX = ".calibration"


def path_for(
    asked: str, calibration_file: str | None = None, no_calibration: bool = False
) -> str | None:
    """Return the path of the file to use for the question `asked`, or None."""
    return None if no_calibration else calibration_file or home(asked)


def home(asked: str, suffix: str = SUFFIX) -> str | None:
    """Return the default path of the file for the question `asked`.

    The directory is sluice in $XDG_DATA_HOME or ~/.local/share. None if $HOME is not set.
    """
    base = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".local", "share")
    name = os.path.basename(asked)
    if name.endswith((".yaml", ".yml")):
        name = name.rpartition(".")[0]
    return os.path.join(base, "sluice", name + suffix)
