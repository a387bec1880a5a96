"""The real evaluator server process with fake judges: `python fake_evaluator.py [--judge=FLAG ...] FLAGS`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from kerneldyno.evaluator.server import main as program
from kerneldyno.evaluator.server import settings
from kerneldyno.evaluator.server.cell import CellSettings
from kerneldyno.evaluator.server.settings import Settings

FAKE = (sys.executable, str(Path(__file__).with_name("fake_judge.py")))
JUDGE = [flag.removeprefix("--judge=") for flag in sys.argv[1:] if flag.startswith("--judge=")]
FLAGS = [flag for flag in sys.argv[1:] if not flag.startswith("--judge=")]


class FakeSettings(Settings):
    """Settings whose cells start fake judges."""

    def cells(self) -> list[CellSettings]:
        return [
            dataclasses.replace(cell, zygote_command=FAKE, judge_command=(*FAKE, *JUDGE))
            for cell in Settings.cells(self)
        ]


def load(flags: Sequence[str]) -> Settings:
    chosen = real_load(flags)
    return FakeSettings(**{field.name: getattr(chosen, field.name) for field in dataclasses.fields(chosen)})


real_load = settings.load
settings.load = load  # type: ignore[assignment]


def main() -> int:
    status = program.main(FLAGS)
    heavy = sorted(name for name in ("torch", "triton", "numpy") if name in sys.modules)
    assert not heavy, f"the server process imported {heavy}"
    return status


if __name__ == "__main__":
    sys.exit(main())
