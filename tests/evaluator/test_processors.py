"""The choice of the processor that timing has to itself."""

from __future__ import annotations

import os

import pytest

from kerneldyno.evaluator.judge.timing import processors
from kerneldyno.evaluator.judge.timing.processors import Processors
from kerneldyno.evaluator.shared import cores
from kerneldyno.evaluator.shared.cores import siblings

pytestmark = pytest.mark.pure


class Host:
    """A host's processors, of which some may be slow, and those on which the judge may run."""

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
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(host.available))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: host.move(chosen))
    monkeypatch.setattr(processors, "_loop", host.loop)
    monkeypatch.setattr(processors, "siblings", lambda processor: {processor})
    return host


def test_the_judge_keeps_off_the_processor_on_which_it_has_things_timed(host: Host) -> None:
    assert Processors((0, 1), roams=False).chosen == 11
    assert host.at == {0, 1, 2, 3, 8, 9, 10}


def test_and_off_the_core_that_it_is_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "siblings", lambda processor: {processor, (processor + 8) % 16})
    assert Processors((0, 1), roams=False).chosen == 11
    assert host.at == {0, 1, 2, 8, 9, 10}


def test_devices_of_one_server_have_processors_of_their_own(host: Host) -> None:
    judges = [Processors((number, 2), roams=True) for number in range(2)]
    assert [judge.chosen for judge in judges] == [11, 10]
    for slow in ({11, 10}, {11, 10, 9, 8}, {9, 8, 3, 2}):
        host.slow = slow
        assert judges[0].choose() in {11, 9, 3, 1} - slow
        assert judges[1].choose() in {10, 8, 2, 0} - slow


def test_where_there_are_many_devices_each_has_one_processor_for_good_and_some_share_it(host: Host) -> None:
    judges = [Processors((number, 6), roams=True) for number in range(6)]
    assert [judge.chosen for judge in judges] == [11, 10, 9, 8, 11, 10]
    host.slow = {11}
    assert judges[0].choose() == 11


def test_with_one_processor_there_is_none_to_spare(host: Host) -> None:
    host.available = host.at = {3}
    judge = Processors((0, 1), roams=True)
    assert judge.chosen is None
    assert judge.choose() is None
    assert host.at == {3}


def test_what_is_timed_moves_to_a_quick_processor_when_its_own_is_slow(host: Host) -> None:
    judge = Processors((0, 1), roams=True)
    assert judge.choose() == 11
    host.slow = {11, 10, 9}
    assert judge.choose() == 8
    assert host.at == host.available - {8}
    host.slow = {10, 9}
    assert judge.choose() == 8  # it stays while that one is quick
    host.slow = set(host.available)
    assert judge.choose() in host.available


def test_few_tries_do_not_always_find_the_same_ones(host: Host) -> None:
    judge = Processors((0, 1), roams=True)
    host.slow = {11, 10, 9}
    assert judge.choose(3) in host.slow
    assert judge.choose(1) == judge.chosen
    host.slow -= {judge.chosen or 0}
    assert judge.choose(2) == judge.chosen
    host.slow = {11, 10}
    while judge.chosen in host.slow:
        judge.choose(2)
    assert judge.choose(2) == judge.chosen


def test_a_processor_that_is_the_calls_own_device_stays(host: Host) -> None:
    judge = Processors((0, 1), roams=False)
    host.slow = {11}
    assert judge.choose() == 11


def test_processors_near_the_device_come_before_others(host: Host) -> None:
    near = Processors((0, 1), roams=True, near={0, 1, 2, 3, 4})
    assert near.chosen == 3
    host.slow = {0, 1, 2, 3}
    assert near.choose() in host.slow  # from another processor every launch would take longer
    assert host.at >= {8, 9, 10, 11}
    assert Processors((0, 1), roams=True, near={1}).chosen == 11  # one near processor leaves no choice


def test_a_processor_that_was_taken_away_is_not_chosen(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Processors((0, 1), roams=True)

    def move(_: int, chosen: set[int]) -> None:
        if 11 in chosen and len(chosen) == 1:
            raise OSError
        host.move(chosen)

    monkeypatch.setattr(os, "sched_setaffinity", move)
    assert judge.choose() == 10


def test_linux_says_which_processors_share_a_core() -> None:
    mine = min(os.sched_getaffinity(0))
    assert mine in (siblings(mine) or {mine})
    assert siblings(1 << 20) == set()


@pytest.mark.parametrize(("count", "taken"), [(1, {0, 8}), (2, {0, 8}), (3, {0, 1, 8, 9}), (99, set(range(16)))])
def test_work_that_is_kept_to_few_processors_is_kept_to_whole_cores(
    count: int, taken: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "siblings", lambda processor: {processor % 8, processor % 8 + 8})
    assert cores.first_of(range(16), count) == taken


def test_only_processors_that_this_process_may_use_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "siblings", lambda processor: {processor % 8, processor % 8 + 8})
    assert cores.first_of({3, 4, 11}, 2) == {3, 11}
    monkeypatch.setattr(cores, "siblings", lambda _: set())
    assert cores.first_of({3, 4, 11}, 2) == {3, 4}
