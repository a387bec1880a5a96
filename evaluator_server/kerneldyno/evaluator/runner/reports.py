"""Files that a tool leaves in the scratch, where the candidate may have put anything in their place.

A pipe that nobody writes to, or a link to an endless device, must not hold up whoever reads the report.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Most bytes of a file that are read.
_MOST_BYTES = 8 << 20


def is_file(path: Path) -> bool:
    """Return True if there is an ordinary file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def text(path: Path) -> str:
    """Return the beginning of an ordinary file as text; "" if there is none."""
    if not is_file(path):
        return ""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
