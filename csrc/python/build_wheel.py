"""The build backend: `pip install .` calls make for the library, mail-filter and the manual pages,
then setuptools for the wheel.

Two things setuptools cannot be told in pyproject.toml are said here: that the
wheel holds a compiled library (so that it is tagged for this platform, abi3),
and that an installed command begins with `#!python` (which pip replaces by the
interpreter it installs for) where bin/ has the lines of shell that find .venv
from a checkout; mail-filter, a program, is left as it is.
"""

import os
import shutil
import subprocess
import sys
from distutils.command.build_scripts import (
    build_scripts,  # setuptools brings it, also where Python has it no more
)

from setuptools import Distribution, build_meta
from setuptools.build_meta import *  # noqa: F401,F403  (the hooks that need no change)

# how the lines of shell begin and end; to Python they are a string
SHIM = ("#!/bin/sh\n", "''':'\n"), "'''\n"
BINARIES = {"bin/mail-filter"}


def copy_script(self, script, outfiles, updated_files):
    """Write bin/NAME to the wheel, if it is Python with a first line that pip rewrites."""
    out = f"{self.build_dir}/{script.rsplit('/', 1)[-1]}"
    outfiles.append(out)
    updated_files.append(out)
    if script in BINARIES:
        shutil.copy(script, out)
        return
    with open(script) as f:
        lines = f.readlines()
    begin, end = SHIM
    assert tuple(lines[:2]) == begin, f"{script}: does not begin with the shell that finds .venv"
    with open(out, "w") as f:
        f.writelines(["#!python\n", *lines[lines.index(end) + 1 :]])


Distribution.has_ext_modules = lambda self: True
build_scripts._copy_script = copy_script


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    # pip may itself run under make: what an outer make says of its jobs is not for this one
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    subprocess.run(["make", "kernels", "hook", "man", f"PYTHON={sys.executable}"], check=True, env=env)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
