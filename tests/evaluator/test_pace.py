"""The pace of a process, measured on a fake device: a queue, a clock, and a host that is sometimes interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import pytest
import torch

from kerneldyno.evaluator.devices.pace import measure

pytestmark = pytest.mark.alone

HERTZ = 1.98e9


class Queue:
    """A queue of work: the host's clock, and the time at which the device will have done all work, in seconds."""

    def __init__(self, launching: Iterator[float], gap: float = 1e-6) -> None:
        self.launching = launching
        self.gap = gap
        self.host = self.device = 0.0

    def launch(self, seconds: float) -> float:
        """Queue work of this duration, in addition to the overhead of all work. Return when it will be done."""
        self.host += next(self.launching)
        self.device = max(self.device, self.host) + self.gap + seconds
        return self.device


class Event:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def record(self) -> None:
        self.at = self.queue.launch(0.0)

    def query(self) -> bool:
        return self.at <= self.queue.host

    def synchronize(self) -> None:
        self.queue.host = max(self.queue.host, self.at)

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3


@pytest.fixture
def imitate(monkeypatch: pytest.MonkeyPatch) -> type[Queue]:
    class Imitated(Queue):
        def __init__(self, launching: Iterator[float], gap: float = 1e-6) -> None:
            super().__init__(launching, gap)
            monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(self))
            monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.launch(cycles / HERTZ))

    return Imitated


def clock() -> float:
    found = measure(torch.device("cpu"))
    assert found is not None
    return found.hertz


def test_what_lies_around_work_is_no_part_of_the_clock(imitate: type[Queue]) -> None:
    imitate(repeat(1e-6), 1e-6)
    quick = clock()
    imitate(repeat(1e-6), 10e-6)
    assert clock() == pytest.approx(quick, rel=0.001) == pytest.approx(HERTZ, rel=0.02)


def test_a_host_that_stands_still_now_and_then_changes_nothing(imitate: type[Queue]) -> None:
    imitate(repeat(1e-6))
    quiet = clock()
    stopped = [1e-6, 10e-3] + 5 * [1e-6]  # an interruption makes the shorter wait seem longer
    for times in (1, 4):
        imitate(chain(times * stopped, repeat(1e-6)))
        assert clock() == pytest.approx(quiet, rel=0.03)


def test_a_host_that_never_queues_in_time_has_no_pace(imitate: type[Queue]) -> None:
    imitate(repeat(5.0))
    assert measure(torch.device("cpu")) is None
