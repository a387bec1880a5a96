"""`python -m kerneldyno.cli`: the command line, for installations without the `kerneldyno` script."""

from __future__ import annotations

from kerneldyno.cli import main

if __name__ == "__main__":
    main()
