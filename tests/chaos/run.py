"""Runs the fault matrix and writes the results: `python -m tests.chaos.run --all --report docs/reliability.md`.

`--scale 0.1` runs a tenth of each full figure. `--rows 1,2,6` runs some rows. The same `--seed` gives the same workload
and the same faults, as far as processes and clocks allow. The exit status is 1 if a figure misses its target.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import pkgutil
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType

from tests.chaos import scenarios
from tests.chaos.report import Outcome, write
from tests.chaos.scenario import Figure, Plan


def modules() -> list[ModuleType]:
    """Return all scenarios in the order of their rows."""
    found = [
        importlib.import_module(f"tests.chaos.scenarios.{one.name}") for one in pkgutil.iter_modules(scenarios.__path__)
    ]
    return sorted(found, key=lambda module: module.ROWS)


def main() -> int:
    """Run the rows that the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--rows", type=lambda text: {int(row) for row in text.split(",")}, help="rows of the matrix: 1,2,6"
    )
    what.add_argument("--all", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full figures (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="write the table to this file, keeping what it says by hand")
    parser.add_argument("--keep", action="store_true", help="keep logs, stores and histories, and say where")
    options = parser.parse_args()
    wanted = [module for module in modules() if options.all or options.rows & set(module.ROWS)]
    if not wanted:
        parser.error("no such row; there are " + ", ".join(str(row) for module in modules() for row in module.ROWS))
    outcomes = []
    for module in wanted:
        outcomes.append(_run(module, options))
        if options.report:
            write(options.report, outcomes[-1:], scale=options.scale, seed=options.seed)
    failed = [figure for outcome in outcomes for figure in outcome.figures if not figure.passed]
    print(f"\n{sum(len(o.figures) for o in outcomes)} figures, {len(failed)} miss their target")
    return 1 if failed else 0


def _run(module: ModuleType, options: argparse.Namespace) -> Outcome:
    rows = ", ".join(map(str, module.ROWS))
    print(f"rows {rows}: {module.TITLE}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{module.ROWS[0]}-"))
    start = time.monotonic()
    try:
        figures = asyncio.run(module.run(Plan(options.scale, options.seed, directory)))
    except Exception as error:
        traceback.print_exc()
        figures = [
            Figure(row, "", "the scenario ended", f"{type(error).__name__}: {error}", "", False) for row in module.ROWS
        ]
    for figure in figures:
        mark = "ok  " if figure.passed else "MISS"
        print(f"  {mark} {figure.row:>2}  {figure.what}: {figure.figure}  ({figure.target})", flush=True)
    if options.keep:
        print(f"  kept in {directory}")
    else:
        shutil.rmtree(directory)
    return Outcome(module.ROWS, module.TITLE, figures, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
