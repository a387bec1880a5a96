"""Programs that tests call. `.ci/run` installs them: without one a test fails in CI, and elsewhere it is skipped."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def needs(*names: str, package: str = "") -> str:
    """The path of the first of these programs that there is, in Python's environment or on the PATH.

    `package` is Debian's, where that has not the name of the first.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in names:
        if found := shutil.which(name, path=places):
            return found
    missing = f"{names[0]} is not installed (Debian, Ubuntu: apt-get install {package or names[0]})"
    (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
