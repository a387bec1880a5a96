"""Times do not count if the device was slower while a candidate was timed, and is not slower after its end."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.devices.base import Device, Probe
from kerneldyno.evaluator.judge.context import JudgeContext
from kerneldyno.evaluator.judge.lane import Lane
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.judge.timing import quiet
from kerneldyno.evaluator.judge.timing.quiet import Quiet
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

QUICK = 60e-6


class Used:
    """A device whose probe takes `seconds`, and which answers within `latency`."""

    seconds, latency = QUICK, 20e-6

    def probe(self) -> Probe:
        return Probe(self.seconds, self.latency)

    def clear(self) -> None:
        pass


class Timed:
    """A fake runner, its candidate, and the session that times it.

    The probe takes `slower` times as long during the timing, and `ended` times as long after the candidate's end.
    Infinity stands for a device that others keep busy.
    """

    parked = has_candidate = overdue = False
    case = None

    def __init__(self, device: Used, judge: Quiet, slower: float, ended: float) -> None:
        self._device, self._quiet, self._slower, self._ended = device, judge, slower, ended
        self.runner = self

    def enter(self, stage: str) -> None:
        pass

    def resume(self) -> None:
        pass

    async def measure(self) -> str:
        for factor in (1.0, self._slower):
            self._device.seconds = QUICK * factor
            assert await self._quiet.wait()
        return "measured"

    async def discard(self, runner: object, *, overdue: bool) -> Any:
        if math.isinf(self._ended):
            self._device.latency = 1e-3
        else:
            self._device.seconds = QUICK * self._ended
        return SimpleNamespace(logs="")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("before", "slower", "ended", "judged", "outcome"),
    [
        (1.0, 1.0, 1.0, "CORRECT", "CORRECT"),
        (1.0, 1.25, 1.0, "CORRECT", "INFRASTRUCTURE_ERROR"),
        (1.0, 1.25, 1.04, "CORRECT", "INFRASTRUCTURE_ERROR"),
        (1.0, 1.25, 1.25, "CORRECT", "CORRECT"),  # it has become warm
        (1.0, 1.25, math.inf, "CORRECT", "INFRASTRUCTURE_ERROR"),  # unknown, because the device is busy
        (1.0, 1.04, 1.0, "CORRECT", "CORRECT"),
        (
            1.29,
            1.25,
            1.0,
            "CORRECT",
            "INFRASTRUCTURE_ERROR",
        ),  # quick in between, and then slower again, but less than before
        (1.0, 1.25, 1.0, "INCORRECT", "INCORRECT"),  # times do not matter
    ],
)
async def test_times_of_a_device_that_recovers_when_the_candidate_has_ended_do_not_count(
    monkeypatch: pytest.MonkeyPatch, before: float, slower: float, ended: float, judged: str, outcome: str
) -> None:
    monkeypatch.setattr(quiet, "_PATIENCE", 0.02)
    monkeypatch.setattr(quiet, "_LONG_PATIENCE", 0.02)
    device = Used()
    judge = Quiet(cast(Device, device))
    device.seconds = QUICK * before
    assert await judge.wait()
    timed = Timed(device, judge, slower, ended)
    pool = SimpleNamespace(lease=Lease([]), discard=timed.discard)

    async def quieten(_: object) -> None:
        """Nothing runs that could be ended."""

    problems = SimpleNamespace(quieten=quieten)
    built: Any = SimpleNamespace(problem=SimpleNamespace(taken=contextlib.nullcontext))
    context = SimpleNamespace(device=device, pool=pool, quiet=judge, problems=problems, busy_seconds=0.0)
    lane = Lane(cast(JudgeContext, context), cast(EvalSpec, None), lambda _: None, cast(Any, None))

    async def run(_: object) -> Any:
        lane._candidate = cast(Any, timed)
        assert await lane._measure(cast(Any, timed), cast(Any, timed), built) == cast(Any, "measured")
        return pb.EvalResult(outcome=pb.EvalResult.Outcome.Value(judged))

    monkeypatch.setattr(lane, "_run", run)
    result = await lane.evaluate()
    assert pb.EvalResult.Outcome.Name(result.outcome) == outcome
    if outcome == "INFRASTRUCTURE_ERROR":
        assert result.infrastructure_error.retryable
        assert result.infrastructure_error.cause == "DEVICE_BUSY"
