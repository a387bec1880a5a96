"""The tare: the difference that most runners show, and none where it cannot be found or believed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kerneldyno.evaluator.judge import tare
from kerneldyno.evaluator.spec import EvalSpec


def found(*results: dict[str, Any]) -> float:
    answers = iter(results)

    async def evaluate(spec: EvalSpec) -> dict[str, Any]:
        assert spec.reference_code.replace("Model", "ModelNew") == spec.kernel_code
        assert spec.run_performance
        return next(answers)

    return asyncio.run(tare.find(evaluate))


def timed(reference: float, candidate: float) -> dict[str, Any]:
    times = {"reference_timing": reference, "candidate_timing": candidate}
    return {"speedup": reference / candidate} | {name: {"median_seconds": value} for name, value in times.items()}


def test_it_is_what_most_runners_show() -> None:
    assert found(timed(4.2e-6, 4.0e-6), timed(4.2e-6, 3.95e-6), timed(4.9e-6, 4.0e-6)) == pytest.approx(0.25e-6)


def test_what_no_two_processes_differ_by_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    assert found(*[timed(9e-6, 4e-6)] * 3) == 0.0
    assert "not believed" in caplog.text


def test_without_runners_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert found(timed(4.2e-6, 4e-6), {"message": "no runner could be started"}, timed(4.2e-6, 4e-6)) == 0.0
    assert "no runner could be started" in caplog.text
