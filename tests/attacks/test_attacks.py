"""Attacks, one test for each file of this folder: none may gain anything, and none may leave anything behind."""

from __future__ import annotations

import os
import time

import psutil
import pytest
from corpus import JOBS, Entry, Run, select
from judge_harness import candidate, request

#: Where a candidate without walls could leave something: `find_news` looks for what it would be.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run", os.path.expanduser("~"))
_NOBODY = 65534


def find_news() -> set[str]:
    """Return files in shared places that a candidate made: nobody's own, or named as the attacks name theirs."""
    found = set()
    for place in _SHARED:
        with os.scandir(place) as entries:
            found |= {
                entry.path
                for entry in entries
                if "kerneldyno-escape" in entry.name or entry.stat(follow_symlinks=False).st_uid == _NOBODY
            }
    return found


@pytest.fixture(scope="module", autouse=True)
def before() -> set[str]:
    """What was there before any attack ran."""
    return find_news()


@pytest.mark.parametrize("entry", select("attacks"), ids=lambda entry: entry.name)
def test_attack_gains_nothing(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.result(entry)


def test_nothing_is_left(run: Run, before: set[str]) -> None:
    judge = run.judge
    result = judge.evaluate(request(candidate()))
    assert result["outcome"] == "CORRECT", result["message"]
    # What may live is the spare runners: each a warden's outer half, the warden, and the runner itself.
    deadline = time.monotonic() + 10
    while len(left := psutil.Process(judge.zygote.pid).children(recursive=True)) > 3 * JOBS:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert find_news() <= before
