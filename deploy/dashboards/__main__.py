"""`python -m deploy.dashboards`: write the JSON of every dashboard to deploy/compose/grafana/dashboards.

With `--check` nothing is written, and the exit status is 1 when a committed file is not what the source says.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import fleet, node, pipeline, training
from .reading import FOLDER


def generated() -> dict[str, str]:
    """The text of each dashboard by the name of its file."""
    boards = (fleet.BOARD, pipeline.BOARD, training.BOARD, node.BOARD)
    return {
        f"{board.uid}.json": json.dumps(board, cls=JSONEncoder, indent=1, sort_keys=True) + "\n" for board in boards
    }


def stale() -> list[str]:
    """What differs between the source and the committed files, a line each."""
    wanted = generated()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    notes = [f"{name} is not generated any more" for name in sorted(there.keys() - wanted.keys())]
    notes += [f"{name} is stale" for name, text in wanted.items() if there.get(name) != text]
    return notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is stale")
    if parser.parse_args(arguments).check:
        for note in (notes := stale()):
            print(f"{note}: run `make dashboards`", file=sys.stderr)
        return 1 if notes else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = generated()
    for path in FOLDER.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
