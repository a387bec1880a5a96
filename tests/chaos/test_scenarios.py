"""Some rows of the fault matrix, small enough for every run of the tests. They check what must never happen.

`make chaos` measures times and rates, on a machine that does nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import modules
from tests.chaos.scenario import Plan
from tests.chaos.scenarios import identity, kills, poison, storage

pytestmark = pytest.mark.slow

IN_SCOPE = {*range(1, 16), *range(20, 25), *range(26, 30), 31, *range(33, 42)}
SCALE = 0.02


@pytest.mark.parametrize("scenario", [identity, kills, poison, storage], ids=lambda module: module.__name__)
async def test_promises_are_kept(scenario: object, tmp_path: Path) -> None:
    figures = await scenario.run(Plan(scale=SCALE, seed=1, directory=tmp_path))  # type: ignore[attr-defined]
    assert figures
    missed = [figure for figure in figures if not figure.passed and not figure.measured]
    assert not missed, "\n".join(f"{figure.what}: {figure.figure}, not {figure.target}" for figure in missed)


def test_every_row_that_is_the_schedulers_has_a_scenario() -> None:
    assert sorted(row for module in modules() for row in module.ROWS) == sorted(IN_SCOPE)
