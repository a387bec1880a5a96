"""The processor that timing has to itself."""

from __future__ import annotations

import os

import pytest
from kerneldyno.evaluator.judge.processors import reserve_processor


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The processors that this process may use: an element for each time that they were set."""
    sets = [{0, 1, 2, 3, 8, 9, 10, 11}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: sets[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: sets.append(set(chosen)))
    return sets


def test_the_judge_keeps_off_the_processor_on_which_it_has_things_timed(available: list[set[int]]) -> None:
    assert reserve_processor("cuda:0") == 11
    assert available[-1] == {0, 1, 2, 3, 8, 9, 10}


def test_devices_of_one_host_have_processors_of_their_own(
    available: list[set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: None)  # each judge is a process
    assert {reserve_processor(f"cuda:{number}") for number in range(4)} == {8, 9, 10, 11}
    assert reserve_processor("cuda:4") == 11  # more devices than half of the processors: some share one


def test_with_one_processor_there_is_none_to_spare(available: list[set[int]]) -> None:
    available.append({3})
    assert reserve_processor("cpu:0") is None
    assert available[-1] == {3}
