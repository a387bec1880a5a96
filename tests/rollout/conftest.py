"""Lets the tests of this folder import the scheduler's harness and what lies beside them."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("scheduler", "e2e", "rollout"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))
