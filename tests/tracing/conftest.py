"""Lets the tests of this folder import the harnesses of others."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("tracing", "scheduler", "e2e", "client"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))
