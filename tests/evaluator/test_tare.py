"""The tare: what it is made of, when it is smoothed and when not, and that nothing is taken off without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from kerneldyno.evaluator.devices.base import Gate
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.tare import Tare
from kerneldyno.evaluator.spec import EvalSpec


class Open(Gate):
    """A gate that never holds anything back."""

    def wait(self, value: int) -> None: ...

    def finish(self, value: int) -> None: ...

    def open(self, value: int) -> None: ...

    def force(self, value: int) -> None: ...

    def is_finished(self, value: int) -> bool:
        return True

    def beside(self) -> nullcontext[None]:
        return nullcontext()


class Gated(CpuDevice):
    def own_gate(self) -> Gate:
        return Open()


def calibrated(runners: Sequence[float]) -> Tare:
    tare, answers = Tare(Gated()), iter(runners)

    async def evaluate(spec: EvalSpec) -> dict[str, Any]:
        assert spec.reference_code.replace("Model", "ModelNew") == spec.kernel_code
        return {"candidate_timing": {"median_seconds": next(answers)}}

    asyncio.run(tare.calibrate(evaluate))
    return tare


def levels(tare: Tare, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> Iterator[float]:
    found = iter(seconds)
    monkeypatch.setattr(tare, "_level", lambda: next(found))
    return (tare.now() for _ in seconds)


def test_what_a_call_takes_longer_here_than_in_most_runners_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    tare = calibrated([3.9e-6, 4.0e-6, 4.6e-6])
    assert list(levels(tare, monkeypatch, 4.2e-6, 4.0e-6)) == pytest.approx([0.2e-6, 0.1e-6])


def test_noise_is_smoothed_and_a_jump_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tare = calibrated([4.0e-6] * 3)
    seen = list(levels(tare, monkeypatch, 4.2e-6, 4.3e-6, 4.1e-6, 4.9e-6, 5.0e-6))
    assert seen == pytest.approx([0.2e-6, 0.25e-6, 0.2e-6, 0.9e-6, 0.95e-6])


def test_what_no_two_processes_differ_by_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(levels(calibrated([4.0e-6] * 3), monkeypatch, 9.0e-6)) == [0.0]


def test_it_measures_by_the_loop_that_times_references() -> None:
    tare = calibrated([0.0] * 3)
    assert 0 < tare._level() < 0.1


def test_nothing_is_taken_off_where_calls_are_never_queued_ahead_or_runners_failed() -> None:
    async def never(spec: EvalSpec) -> dict[str, Any]:
        raise AssertionError("nothing to find out")

    plain = Tare(CpuDevice())
    asyncio.run(plain.calibrate(never))
    assert plain.now() == 0.0

    async def failing(spec: EvalSpec) -> dict[str, Any]:
        return {"message": "no runner could be started"}

    broken = Tare(Gated())
    asyncio.run(broken.calibrate(failing))
    assert broken.now() == 0.0
