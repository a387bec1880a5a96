"""The judge waits until the device is as quick as it was when nobody else used it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import pytest

from kerneldyno.evaluator.devices.base import Device, Probe
from kerneldyno.evaluator.judge.timing import quiet
from kerneldyno.evaluator.judge.timing.quiet import Quiet

pytestmark = pytest.mark.alone


class Probed:
    """A device whose probes take these seconds and latencies, by the number of the probe."""

    def __init__(self, seconds: Callable[[int], float], latency: Callable[[int], float] = lambda _: 20e-6) -> None:
        self.probes = 0
        self._seconds, self._latency = seconds, latency

    def probe(self) -> Probe:
        self.probes += 1
        return Probe(self._seconds(self.probes), self._latency(self.probes))


def waits(seconds: Callable[[int], float], latency: Callable[[int], float] = lambda _: 20e-6) -> tuple[bool, int]:
    """Return whether the device becomes quiet, and how many probes that takes."""
    device = Probed(seconds, latency)
    judge = Quiet(cast("Device", device))
    before = device.probes
    return asyncio.run(judge.wait()), device.probes - before


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_PATIENCE", 0.05)
    monkeypatch.setattr(quiet, "_LONG_PATIENCE", 0.2)


def test_a_quiet_device_is_not_waited_for() -> None:
    assert waits(lambda at: 60e-6 * (1.02 if at % 2 else 1.0)) == (True, 1)


def test_a_probe_that_took_longer_by_chance_is_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_PAUSE", 10.0)
    assert waits(lambda at: 90e-6 if 5 < at < 8 else 60e-6) == (True, 3)


def test_a_device_that_wipes_what_was_given_back_is_waited_for_until_it_has() -> None:
    is_quiet, probes = waits(lambda at: 67e-6 if 5 < at < 20 else 60e-6)
    assert is_quiet
    assert 15 <= probes <= 21


def test_a_device_that_has_become_slower_for_good_is_so_quick_from_now_on() -> None:
    device = Probed(lambda at: 60e-6 if at <= 5 else 67e-6)
    judge = Quiet(cast("Device", device))
    assert asyncio.run(judge.wait())
    before = device.probes
    assert asyncio.run(judge.wait())
    assert device.probes == before + 1


def test_who_uses_the_device_more_with_every_wait_gains_no_more_than_with_one() -> None:
    """A stopped candidate's kernel slows everybody down by a quarter, and then by more."""
    seconds = [60e-6]
    device = Probed(lambda _: seconds[0])
    judge = Quiet(cast("Device", device))
    seconds[0] *= 1.25
    assert asyncio.run(judge.wait())
    for more in (1.045, 1.25):
        seconds[0] = 60e-6 * 1.25 * more
        assert not asyncio.run(judge.wait())
    seconds[0] = 61e-6
    assert asyncio.run(judge.wait())
    seconds[0] *= 1.25  # the slower speed was accepted once, and no longer counts after a quicker one
    before = device.probes
    assert asyncio.run(judge.wait())
    assert device.probes > before + 3


def test_a_device_that_somebody_uses_is_not_quiet() -> None:
    assert not waits(lambda at: 60e-6 if at <= 5 else 120e-6)[0]


def test_a_device_that_cannot_be_probed_is_taken_for_quiet() -> None:
    assert waits(lambda _: 0.0) == (True, 1)


def test_others_work_is_waited_for_though_the_probe_takes_no_longer_in_its_turn() -> None:
    quick = [20e-6, 45e-6, 25e-6]
    is_quiet, probes = waits(lambda _: 60e-6, lambda at: 300e-6 if 5 < at < 20 else quick[at % 3])
    assert is_quiet
    assert 15 <= probes <= 21
    assert not waits(lambda _: 60e-6, lambda at: 20e-6 if at <= 5 else 160e-6 + at % 7 * 400e-6)[0]


def test_a_host_that_delays_single_answers_is_not_waited_for() -> None:
    assert waits(lambda _: 60e-6, lambda at: 2e-3 if at % 3 else 40e-6) == (True, 3)


def test_a_judge_that_began_beside_others_work_learns_what_an_answer_takes() -> None:
    device = Probed(lambda _: 60e-6, lambda at: 300e-6 if at <= 5 else 20e-6)
    judge = Quiet(cast("Device", device))
    assert asyncio.run(judge.wait())
    busy = Probed(lambda _: 60e-6, lambda _: 300e-6)
    judge._device = cast("Device", busy)
    assert not asyncio.run(judge.wait())


def test_others_have_longer_to_finish_than_the_device_has_to_become_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of other devices that start and end may delay answers for a second. Nobody is accused of that."""
    monkeypatch.setattr(quiet, "_LONG_PATIENCE", 10.0)
    began = time.monotonic()
    is_quiet, _ = waits(lambda _: 60e-6, lambda at: 1e-3 if at > 5 and time.monotonic() < began + 0.2 else 20e-6)
    assert is_quiet
    assert time.monotonic() - began >= 0.2 > quiet._PATIENCE
