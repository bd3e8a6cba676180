"""The build backend: `pip install .` calls make for the library, then setuptools for the wheel.

Two things setuptools cannot be told in pyproject.toml are said here: that the
wheel holds a compiled library (so that it is tagged for this platform, abi3),
and that an installed command begins with `#!python` (which pip replaces by the
interpreter it installs for) where bin/ has the three lines of shell that find
.venv from a checkout.
"""
import subprocess
import sys

from setuptools import Distribution, build_meta
from setuptools.build_meta import *  # noqa: F401,F403  (the hooks that need no change)

from distutils.command.build_scripts import build_scripts  # setuptools brings it, also where Python has it no more

SHIM_LINES = 4  # "#!/bin/sh", "''':'", "exec ...", "'''"


def copy_script(self, script, outfiles, updated_files):
    """Write bin/NAME to the wheel with a first line that pip rewrites."""
    with open(script) as f:
        lines = f.readlines()
    assert lines[1] == "''':'\n" and lines[3] == "'''\n", f"{script}: no shim in lines 1 to 4"
    out = f"{self.build_dir}/{script.rsplit('/', 1)[-1]}"
    with open(out, "w") as f:
        f.writelines(["#!python\n", *lines[SHIM_LINES:]])
    outfiles.append(out)
    updated_files.append(out)


Distribution.has_ext_modules = lambda self: True
build_scripts._copy_script = copy_script


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run(["make", "kernels", f"PYTHON={sys.executable}"], check=True)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
