"""The processor that timing has to itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kerneldyno.evaluator.judge import processors
from kerneldyno.evaluator.judge.processors import Processors


class Host:
    """Processors of which some are slower than others, and where the judge is."""

    def __init__(self) -> None:
        self.available = {0, 1, 2, 3, 8, 9, 10, 11}
        self.at = set(self.available)
        self.slow: set[int] = set()

    def move(self, chosen: set[int]) -> None:
        self.at = set(chosen)

    def loop(self) -> float:
        assert len(self.at) == 1
        return 90e-6 if self.at & self.slow else 48e-6


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(host.available))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: host.move(chosen))
    monkeypatch.setattr(processors, "_loop", host.loop)
    monkeypatch.setattr(processors, "_siblings", lambda processor: {processor})
    made: list[Processors] = []
    set_up = Processors.__init__

    def noted(self: Processors, *arguments: Any, **keywords: Any) -> None:
        set_up(self, *arguments, **keywords)
        made.append(self)

    monkeypatch.setattr(Processors, "__init__", noted)
    monkeypatch.setattr(processors, "_CLAIM", f"\0kerneldyno/test/{os.getpid()}/{{}}")
    yield host
    for judge in made:
        judge.close()


def test_the_judge_keeps_off_the_processor_on_which_it_has_things_timed(host: Host) -> None:
    assert Processors("cuda:0", roams=False).chosen == 11
    assert host.at == {0, 1, 2, 3, 8, 9, 10}


def test_and_off_the_core_that_it_is_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_siblings", lambda processor: {processor, (processor + 8) % 16})
    assert Processors("cuda:0", roams=False).chosen == 11
    assert host.at == {0, 1, 2, 8, 9, 10}


def test_devices_of_one_host_have_processors_of_their_own(host: Host) -> None:
    judges = [Processors(f"cuda:{number}", roams=True) for number in range(4)]
    assert {judge.chosen for judge in judges} == {8, 9, 10, 11}
    host.slow = {11}
    assert judges[0].choose() == 0  # 8, 9 and 10 are quick, and the others'
    assert Processors("cuda:4", roams=True).chosen == 11  # more devices than half of the processors: some share one


def test_with_one_processor_there_is_none_to_spare(host: Host) -> None:
    host.available = host.at = {3}
    judge = Processors("cpu:0", roams=True)
    assert judge.chosen is None
    assert judge.choose() is None
    assert host.at == {3}


def test_what_is_timed_moves_to_a_quick_processor_when_its_own_is_slow(host: Host) -> None:
    judge = Processors("cuda:0", roams=True)
    assert judge.choose() == 11
    host.slow = {11, 0, 1}
    assert judge.choose() == 2
    assert host.at == host.available - {2}
    host.slow = {0, 1}
    assert judge.choose() == 2  # nothing moves without need
    host.slow = set(host.available)
    assert judge.choose() in host.available


def test_a_processor_that_is_the_calls_own_device_stays(host: Host) -> None:
    judge = Processors("cpu:0", roams=False)
    host.slow = {11}
    assert judge.choose() == 11


def test_processors_near_the_device_come_before_others(host: Host) -> None:
    near = Processors("cuda:0", roams=True, near={0, 1, 2, 3, 4})
    assert near.chosen == 3
    host.slow = {0, 1, 2, 3}
    assert near.choose() in host.slow  # a detour to the device costs every launch
    assert host.at >= {8, 9, 10, 11}
    assert Processors("cuda:0", roams=True, near={1}).chosen == 11  # no choice


def test_a_processor_that_was_taken_away_is_not_chosen(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Processors("cuda:0", roams=True)

    def move(_: int, chosen: set[int]) -> None:
        if 11 in chosen and len(chosen) == 1:
            raise OSError
        host.move(chosen)

    monkeypatch.setattr(os, "sched_setaffinity", move)
    assert judge.choose() == 0


def test_linux_says_which_processors_share_a_core() -> None:
    mine = min(os.sched_getaffinity(0))
    assert mine in (processors._siblings(mine) or {mine})
    assert processors._siblings(1 << 20) == set()
