"""The sizing page: its table follows from its formula, and the figures that it cites are those of the benchmarks."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZING, BENCHMARKS = ((DOCS / name).read_text() for name in ("sizing.md", "benchmarks.md"))
HEADROOM, SMALL, LARGE = 1.3, 200, 18


def hosts(turns: int, minutes: int, rate: float) -> int:
    return math.ceil(HEADROOM * turns / (rate * minutes))


def test_the_table_follows_from_the_formula() -> None:
    assert f"hosts = ceil({HEADROOM} x V x u / (r x s x T))" in SIZING
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", SIZING, re.MULTILINE)
    assert len(rows) == 5
    for turns, minutes, small, large in (map(int, row) for row in rows):
        assert (small, large) == (hosts(turns, minutes, SMALL), hosts(turns, minutes, LARGE)), (turns, minutes)


def test_the_figures_are_those_of_the_benchmarks() -> None:
    shared = {1: "1", 2: "1.42", 4: "1.70"}
    for devices, over_one in shared.items():
        assert re.search(rf"^\| {devices}\D.*\| {re.escape(over_one)} \|", BENCHMARKS, re.MULTILINE)
    problems, seconds = re.findall(r"\| (\d+) of 125 \| (\d+) s \|", BENCHMARKS)[-1]
    assert f"{problems} problems in {seconds} s" in SIZING
    assert round(60 * int(problems) / int(seconds)) == LARGE
    for figure in ("`037e5c2` | 233, 225", "185, 179, 182", "made 298 a minute"):
        assert figure in BENCHMARKS
    leases = [float(lease) for lease in re.findall(r"\| (1\.\d\d) s, [\d.]+ s", BENCHMARKS)]
    assert (round(min(leases), 1), round(max(leases), 1)) == (1.3, 1.7)
    for figure in ("46.9 GB", "0.84", "1.28", "18.2 GB", "64 GB at the most"):
        assert figure in BENCHMARKS
