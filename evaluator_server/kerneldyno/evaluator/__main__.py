"""Runs the server of one node: `python -m kerneldyno.evaluator`; see `server/main.py`."""

from __future__ import annotations

import sys

from .server.main import main

if __name__ == "__main__":
    sys.exit(main())
