"""A judge that takes every reference for a short one."""

from __future__ import annotations

import sys

from kerneldyno.evaluator.judge import twin
from kerneldyno.evaluator.judge.__main__ import main

if __name__ == "__main__":
    twin.is_wanted = lambda problem, reference: bool(reference)
    sys.exit(main())
