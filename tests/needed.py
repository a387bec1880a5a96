"""Programs that tests call. `.ci/run` installs them: if one is missing, a test fails in CI and is skipped elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def needs(*names: str, package: str = "") -> str:
    """Return the path of the first of these programs that exists, in Python's environment or on the PATH.

    If none exists, fail the test in CI and skip it elsewhere. `package` is the Debian package of the first program, if
    its name is different.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in names:
        if found := shutil.which(name, path=places):
            return found
    missing = f"{names[0]} is not installed (Debian, Ubuntu: apt-get install {package or names[0]})"
    (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
