"""A judge that takes every reference for a short one, and looks once what it takes in a runner."""

from __future__ import annotations

import sys

from kerneldyno.evaluator.judge import twin
from kerneldyno.evaluator.judge.__main__ import main

if __name__ == "__main__":
    twin.is_wanted = lambda spec, problem, reference: bool(reference)
    twin._ROUNDS = 1
    sys.exit(main())
