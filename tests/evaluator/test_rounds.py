"""Which rounds a timing adds: those for the less precise ratio, until both are precise enough."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.judge.runners.answers import SHORTEST
from kerneldyno.evaluator.judge.timing import effort, rounds
from kerneldyno.evaluator.judge.timing.device_time import Burst
from kerneldyno.evaluator.judge.timing.end_to_end_time import PacedBurst
from kerneldyno.evaluator.judge.timing.measured import Measured, Visit
from kerneldyno.evaluator.judge.timing.rounds import TimingSession
from kerneldyno.evaluator.shared.nvml import GpuState
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

PLENTY = {"queued": 90, "paced": 90}


def session(*, queued: bool = True, precision: float = 0.01) -> TimingSession:
    made = TimingSession.__new__(TimingSession)
    made._bursts = cast(Any, SimpleNamespace(regime=SimpleNamespace(queued=queued)))
    made._candidate = cast(Any, SimpleNamespace(spec=SimpleNamespace(timing=SimpleNamespace(precision=precision))))
    return made


def measured(device: float, host: float, *, per_call: float = 1e-3, queued: bool = True) -> Measured:
    """Return ten rounds whose device times vary by the share `device`, and whose end-to-end times vary by `host`."""
    rng = random.Random(5)
    planned = effort.plan(per_call, per_set=0.0, calls=100, longest=40, limit=60, queued=queued)
    made = Measured(planned, paced_nothing=[PacedBurst([0.0], [0.0], 0.0)])
    for visits in (made.candidate, made.reference):
        for _ in range(10):
            paced = [1.1 * per_call * rng.gauss(1, host)]
            burst = Burst(2, 0.0, [per_call * rng.gauss(1, device)] * 2) if queued else None
            visits.append(Visit("", PacedBurst(paced, paced, 0.0), burst))
    return made


@pytest.mark.parametrize(
    ("device", "host", "wanted"),
    [
        (0.0001, 0.0001, (False, False)),
        (0.05, 0.0001, (True, False)),
        (0.0001, 0.05, (False, True)),
        (0.05, 0.006, (True, True)),
        (0.005, 0.05, (False, True)),
    ],
)
def test_what_is_known_worse_comes_first(device: float, host: float, wanted: tuple[bool, bool]) -> None:
    assert session()._wanted(measured(device, host), PLENTY) == wanted


def test_where_calls_are_used_up_nothing_is_wanted_of_their_kind() -> None:
    noisy = measured(0.05, 0.05)
    assert session()._wanted(noisy, {"queued": 0, "paced": 90}) == (False, True)
    assert session()._wanted(noisy, {"queued": 90, "paced": 0}) == (True, False)


def test_device_times_tell_whether_it_matters_where_memory_lies() -> None:
    assert measured(0.05, 0.0001).memory_matters is True
    assert measured(0.0001, 0.0001).memory_matters is False
    assert measured(0.05, 0.05, queued=False).memory_matters is None
    hosts = measured(0.05, 0.0001)
    hosts.paced_nothing = [
        PacedBurst([-1e-3], [-1e-3], 0.0)
    ]  # from end to end a call takes twice what the device needs
    assert hosts.launch_bound
    assert hosts.memory_matters is False  # the host causes the variation of such device times


def test_rounds_for_end_to_end_times_alone_are_longer_unless_the_host_decides() -> None:
    made = session()
    made._bursts.longest = 40
    short, hosts = measured(0.0001, 0.05), measured(0.0001, 0.05)
    hosts.paced_nothing = [PacedBurst([-1e-3], [-1e-3], 0.0)]
    assert made._paced_alone(short) == 3 * short.effort.paced
    assert made._paced_alone(hosts) == 2 < hosts.effort.paced
    short.effort = dataclasses.replace(short.effort, cold=False)
    assert made._paced_alone(short) == short.effort.paced
    short.effort = hosts.effort
    made._bursts.longest = 1
    assert made._paced_alone(short) == 1


def test_calls_that_cannot_be_queued_have_one_time_only() -> None:
    assert session(queued=False)._wanted(measured(0, 0.05, queued=False), PLENTY) == (False, True)
    assert session(queued=False)._wanted(measured(0, 0.0001, queued=False), PLENTY) == (False, False)


def test_short_calls_end_when_rounds_differ_by_less_than_processes_and_nobody_waits_for_the_host() -> None:
    noise = 0.003
    assert session(precision=0.001)._wanted(measured(noise, 0.05, per_call=20e-6), PLENTY) == (False, False)
    assert session(precision=0.001)._wanted(measured(noise, 0.05, per_call=2e-3), PLENTY) == (False, True)
    assert session(precision=0.001)._wanted(measured(0.06, 0.05, per_call=20e-6), PLENTY) == (True, False)
    for per_call, wants_device in ((20e-6, False), (200e-6, True)):  # processes differ by less of a longer call
        assert session()._wanted(measured(0.01, 0.05, per_call=per_call), PLENTY) == (wants_device, False)


def test_short_calls_that_are_quicker_than_the_device_count_as_what_it_needs() -> None:
    """The candidate works only in every other paced call, because few outputs of these calls are compared."""
    cheating = measured(0.001, 0.01, per_call=100e-6)
    cheating.candidate = [
        dataclasses.replace(visit, paced=PacedBurst([5e-6, *visit.paced.seconds], [], 0.0))
        for visit in cheating.candidate
    ]
    found = cheating.paced_ratio(0.0)
    assert 1 < found.value < 1.12  # a call takes 110 us, the device needs 100
    cheating.effort = dataclasses.replace(cheating.effort, chased=True)
    assert cheating.least(cheating.candidate) == SHORTEST


@pytest.mark.parametrize(("per_call", "quick", "made"), [(1e-3, True, 3), (1e-3, False, 5), (20e-6, False, 3)])
async def test_bursts_of_nothing_are_made_again_on_a_host_that_is_slow_but_not_for_ever(
    per_call: float, quick: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow burst is dropped while there is time. If end-to-end times are not pursued, any burst is kept."""
    clock = iter(range(100))
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: 0.025 * next(clock)))

    async def nothing(*_: Any, **__: Any) -> PacedBurst:
        burst = PacedBurst([0.0], [0.0], 0.0)
        all_made.append(burst)
        return burst

    async def familiar(count: int) -> None:
        """Return no batch: nothing looks at it."""

    all_made: list[PacedBurst] = []
    timed = session()
    bursts = SimpleNamespace(
        regime=SimpleNamespace(replayed=False),
        nothing_like=tuple,
        supply=SimpleNamespace(familiar=familiar),
        paced_burst=nothing,
    )
    timed._bursts = cast(Any, bursts)
    kept: list[PacedBurst] = []
    timed._reference = cast(Any, SimpleNamespace(paced_nothing=lambda _: kept))
    timed._processors = cast(Any, SimpleNamespace(is_quick=lambda: quick))
    monkeypatch.setattr(TimingSession, "_place", nothing_to_do)
    monkeypatch.setattr(TimingSession, "_expect_quiet", nothing_to_do)
    planned = effort.plan(per_call, per_set=0.0, calls=100, longest=40, limit=60)
    assert await timed._paced_nothing(planned) == kept == all_made[-3:]
    assert len(all_made) == made


async def nothing_to_do(*_: Any) -> None:
    pass


def test_the_state_of_a_device_is_that_before_and_after_or_none() -> None:
    before = GpuState(1980, 3201, 40, 400.0, ("sw_power_cap",))
    after = GpuState(1700, 3200, 44, 500.0, ("hw_slowdown",))
    assert rounds._state(before, after) == pb.DeviceState(
        sm_clock_mhz_before=1980,
        sm_clock_mhz_after=1700,
        memory_clock_mhz=3200,
        temperature_celsius=44,
        power_watts=450.0,
        throttle_reasons=["hw_slowdown", "sw_power_cap"],
    )
    assert rounds._state(None, after) is None
    assert rounds._state(before, None) is None
