"""The build backend: `pip install .` calls make for the library, mail-filter, the man pages and the
completion scripts, then setuptools for the wheel.

It does four things that pyproject.toml cannot declare:

- The wheel holds a compiled library. So it is tagged for this platform (and abi3).
- The library and mail-filter go in without debug information.
- An installed command is a script of sh that runs sluice-start: lib/sluice/start.py after the line
  `#!python`, which pip replaces by the interpreter it installs for. mail-filter, a program, is
  copied.
- An earlier build leaves nothing in the wheel.
"""

import glob
import os
import shutil
import subprocess
import sys

from setuptools import Distribution, build_meta
from setuptools.build_meta import *  # noqa: F401,F403  (the hooks that need no change)
from setuptools.command.build_py import build_py

# isort: split
from distutils.command.build_scripts import build_scripts  # setuptools brings it to Python 3.12

PROGRAMS = {"mail-filter"}
START = "sluice-start"
COMMAND = """\
#!/bin/sh
# Runs lib/sluice/start.py, here sluice-start, with the Python that this was installed for.
d="${0%%/*}"; [ -f "$d/sluice-start" ] || {
    trap 'exit 75' EXIT; d="$(readlink -f "$0")"; d="${d%%/*}"; trap - EXIT; }
[ -x "$d/sluice-start" ] || { echo "${0##*/}: sluice-start is not installed" >&2; exit 69; }
%s\
exec "$d/sluice-start" "$0" "$@"
"""
LIBRARY = "sluice/_kernels.abi3.so"


def script():
    """The text of an installed command: bin/sluice with START in place of a checkout's Python and
    lib. It refuses what Python cannot start with, before Python does so with 1.
    """
    with open("bin/sluice") as f:
        refusals = [line for line in f if line.startswith("[ ! -d /dev/")]
    assert refusals, "bin/sluice: refuses no directory"
    return COMMAND % "".join(refusals)


def copy_script(self, path, outfiles, updated_files):
    """Write bin/NAME to the wheel, and START with the umbrella command."""
    command = os.path.basename(path)
    out = os.path.join(self.build_dir, command)
    outfiles.append(out)
    updated_files.append(out)
    if command in PROGRAMS:
        shutil.copy(path, out)
        strip(out)
        return
    with open(out, "w") as f:
        f.write(script())
    if command == "sluice":
        out = os.path.join(self.build_dir, START)
        outfiles.append(out)
        updated_files.append(out)
        with open("lib/sluice/start.py") as source, open(out, "w") as f:
            f.write("#!python\n" + source.read())


def copy_package(self, run=build_py.run):
    """Copy the package to the build directory."""
    run(self)
    library = os.path.join(self.build_lib, LIBRARY)
    if os.path.exists(library):  # not where pip installs a link to the checkout
        strip(library)


def strip(path):
    """Remove the debug information, four fifths of a compiled file."""
    subprocess.run(["strip", "-S", path], check=True)


def make(*targets):
    """Run make for this interpreter. If pip itself runs under make, the settings of the outer make
    are dropped, because its jobs are not available here.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    subprocess.run(["make", *targets, f"PYTHON={sys.executable}"], check=True, env=env)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the wheel (PEP 517)."""
    for old in glob.glob("build/lib*") + glob.glob("build/scripts*") + glob.glob("build/bdist*"):
        shutil.rmtree(old)
    make("kernels", "hook", "man", "completion")
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


Distribution.has_ext_modules = lambda self: True
build_scripts._copy_script = copy_script
build_py.run = copy_package
