"""What benchmarks run attacks in: the function answers, and what it does stays inside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from contained import Contained, Ended

# Python 3.12 warns of forks in processes with threads; the child here only runs what these tests give it.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def run(function: Callable[[], Any], seconds: float = 20) -> Ended:
    contained = Contained(function, seconds)
    while (ended := contained.poll()) is None:
        pass
    return ended


def test_an_answer_comes_back() -> None:
    assert run(lambda: {"uid": os.getuid()}) == Ended({"uid": 65534}, "answered", "")


def test_nothing_outside_can_be_written(tmp_path: Path) -> None:
    def attack() -> str:
        (tmp_path / "escaped").write_text("")
        return "written"

    ended = run(attack)
    assert ended.answer is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "how"), [(lambda: os._exit(3), "exited with status 3"), (os.abort, "killed by signal 6")]
)
def test_how_it_ended_is_told(function: Callable[[], Any], how: str) -> None:
    assert run(function).how == how


def test_what_hangs_is_killed() -> None:
    assert run(lambda: os.read(os.pipe()[0], 1), 0.5).how == "hung"
