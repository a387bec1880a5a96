"""The reference as a candidate: when that is wanted, what is learnt from it, and that it passes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from judge_harness import Judge, candidate, request
from kerneldyno.evaluator.judge import twin
from kerneldyno.evaluator.judge.baseline import PAUSE, Baseline
from kerneldyno.evaluator.judge.timing import SHORTEST, Burst
from kerneldyno.evaluator.spec import EvalSpec
from kerneldyno.evaluator.toolkits import Problem, toolkits

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return [64]
"""


def spec(**changes: Any) -> EvalSpec:
    return EvalSpec.from_json(request("", reference_code=REFERENCE, **changes))


def problem() -> Problem:
    return toolkits()["kernelbench"].build(spec(), torch.device("cpu"), 7)


def burst(seconds: float, launch: float = 1e-6) -> Burst:
    return Burst(2, 2 * seconds, [seconds] * 2, launch_seconds=launch)


EAGER = "LAUNCH_MODE_EAGER"


def result(candidate: float, reference: float, clock: str = "CLOCK_DEVICE_EVENTS", mode: str = EAGER) -> dict[str, Any]:
    return {
        "outcome": "CORRECT",
        "candidate_timing": {"median_seconds": candidate, "clock": clock, "launch_mode": mode},
        "reference_timing": {"median_seconds": reference, "launch_mode": EAGER},
    }


def ask(baseline: Baseline, results: Iterator[dict[str, Any]]) -> float | None:
    async def evaluate() -> dict[str, Any]:
        return next(results)

    return asyncio.run(twin.median(baseline, evaluate))


@pytest.mark.parametrize(
    ("bursts", "wanted"),
    [([burst(10e-6)], True), ([burst(20e-6)], False), ([burst(10e-6, launch=0.0)], False), ([], False)],
    ids=["short", "long", "waits for the device", "not timed"],
)
def test_it_is_wanted_for_short_references(bursts: list[Burst], wanted: bool) -> None:
    assert twin.is_wanted(problem(), bursts) is wanted


def test_who_is_no_candidate_is_not_asked_to_be_one() -> None:
    compiled = problem()
    compiled.as_candidate = ""  # as of references that are compiled, and of toolkits that do not say
    assert not twin.is_wanted(compiled, [burst(10e-6)])


def test_what_it_takes_in_a_runner_is_found_out_once() -> None:
    baseline = Baseline()
    assert ask(baseline, iter([result(4.8e-6, 5e-6), result(4.6e-6, 5e-6)])) == pytest.approx(4.7e-6)
    assert ask(baseline, iter([])) == pytest.approx(4.7e-6)


def test_of_a_reference_that_was_forgotten_it_is_found_out_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = Baseline()
    ask(baseline, iter([result(4.8e-6, 5e-6)] * 2))
    baseline.forget_reference()
    assert ask(baseline, iter([])) == pytest.approx(4.8e-6)
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + PAUSE + 1)
    assert ask(baseline, iter([result(4.9e-6, 5e-6)] * 2)) == pytest.approx(4.9e-6)


def test_what_was_launched_says_nothing_of_what_is_replayed() -> None:
    baseline = Baseline()
    ask(baseline, iter([result(4.8e-6, 5e-6)] * 2))
    baseline.expect(replayed=True)
    assert ask(baseline, iter([result(3.8e-6, 4e-6)] * 2)) == pytest.approx(3.8e-6)


def test_who_comes_meanwhile_waits_for_it() -> None:
    async def all_of_them() -> tuple[list[float | None], int]:
        baseline, calls = Baseline(), 0

        async def evaluate() -> dict[str, Any]:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            return result(4e-6, 5e-6)

        return await asyncio.gather(*(twin.median(baseline, evaluate) for _ in range(5))), calls

    medians, calls = asyncio.run(all_of_them())
    assert medians == pytest.approx([4e-6] * 5)
    assert calls == 2


@pytest.mark.parametrize(
    "useless",
    [
        {"outcome": "RUNTIME_ERROR"},
        {"outcome": "INFRASTRUCTURE_ERROR"},
        result(4e-6, 5e-6, clock="CLOCK_JUDGE"),
        result(4e-6, 5e-6, mode="LAUNCH_MODE_CUDA_GRAPH"),
    ],
    ids=["fails", "nobody could", "no sharp clock", "launched otherwise"],
)
def test_what_says_nothing_is_not_asked_again_at_once(useless: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = Baseline()
    assert ask(baseline, iter([useless] * 2)) is None
    assert ask(baseline, iter([])) is None
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + PAUSE + 1)
    assert ask(baseline, iter([useless, result(4.9e-6, 5e-6)])) == pytest.approx(4.9e-6)


def test_no_failure_of_it_is_the_candidates() -> None:
    async def broken() -> dict[str, Any]:
        raise ValueError("a bug")

    assert asyncio.run(twin.median(Baseline(), broken)) is None


def test_whose_candidate_is_cancelled_leaves_it_to_the_next() -> None:
    async def cancelled() -> tuple[int, float | None]:
        baseline, ended = Baseline(), 0

        async def hang() -> dict[str, Any]:
            nonlocal ended
            try:
                await asyncio.sleep(60)
            finally:
                ended += 1
            return {}

        async def good() -> dict[str, Any]:
            return result(4e-6, 5e-6)

        for _ in range(4):
            first = asyncio.create_task(twin.median(baseline, hang))
            await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.wait({first})
            assert first.cancelled()
        return ended, await twin.median(baseline, good)

    assert asyncio.run(cancelled()) == (4, pytest.approx(4e-6))


def test_bursts_are_shifted_to_what_it_takes_in_a_runner() -> None:
    (shifted,) = twin.shifted([burst(5e-6)], 4.6e-6)
    assert shifted.device_seconds == pytest.approx([4.6e-6] * 2)
    assert shifted.launch_seconds == 1e-6
    lower = Burst(3, 15e-6, [1e-9, 5e-6, 6e-6], launch_seconds=1e-6)
    assert twin.shifted([lower], 4.6e-6)[0].device_seconds == pytest.approx([SHORTEST, 4.6e-6, 5.6e-6])


@pytest.mark.parametrize("seconds", [None, 3.9e-6, 6.1e-6])
def test_what_cannot_be_or_is_no_difference_between_processes_shifts_nothing(seconds: float | None) -> None:
    assert twin.shifted([burst(5e-6)], seconds) == [burst(5e-6)]
    assert twin.shifted([burst(14e-6)], 12.4e-6) == [burst(14e-6)]


def test_a_reference_passes_as_its_own_candidate(judge: Judge) -> None:
    made = twin.spec_of(spec(), problem())
    policy = {"backend": made.backend, "provenance_policy": made.provenance_policy}
    got = judge.evaluate(request(made.kernel_code, reference_code=REFERENCE, **policy))
    assert got["outcome"] == "CORRECT", got["message"]


@pytest.fixture
def eager() -> Iterator[Judge]:
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    with Judge(module="judge_of_twins", environment={"PYTHONPATH": path}) as running:
        assert running.ready["op"] == "ready", running.ready
        yield running


def ended(judge: Judge) -> int:
    """How many runners have ended, by statistics that are younger than this call."""
    for _ in range(2):  # the first may have been under way
        while (frame := judge._next())["op"] != "stats":
            pass
    return sum(map(int, frame["runner_exits"].values()))


def test_a_problem_has_its_twins_once_and_every_candidate_its_speedup(eager: Judge) -> None:
    runners = []
    for salt in ("one", "two"):
        before = ended(eager)
        got = eager.evaluate(request(candidate(prologue=f"# {salt}"), run_performance=True))
        assert got["outcome"] == "CORRECT", got["message"]
        reference, own = got["reference_timing"]["median_seconds"], got["candidate_timing"]["median_seconds"]
        assert got["speedup"] == pytest.approx(reference / own)
        assert got["speedup_interval"]["low"] < got["speedup"] < got["speedup_interval"]["high"]
        runners.append(ended(eager) - before)
    assert runners == [3, 1]
