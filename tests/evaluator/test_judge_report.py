"""The report of a timing: two speedups, each from times of one regime, and never from times of two."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldyno.evaluator.judge import frames
from kerneldyno.evaluator.judge.results import verdict
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.results.times import Times
from kerneldyno.evaluator.judge.timing.device_time import Burst
from kerneldyno.evaluator.judge.timing.effort import plan
from kerneldyno.evaluator.judge.timing.end_to_end_time import PacedBurst
from kerneldyno.evaluator.judge.timing.measured import Measured, Visit
from kerneldyno.evaluator.judge.timing.report import report
from kerneldyno.evaluator.shared import messages
from kerneldyno.v1 import evaluation_pb2 as pb
from tests import sampling

pytestmark = pytest.mark.pure

QUEUED, CALLED = pb.TimingStats.REGIME_QUEUED_AHEAD, pb.TimingStats.REGIME_AS_CALLED
PACES = (2e-6, 2e-6)


def paced(per_call: float, calls: int = 4) -> PacedBurst:
    seconds = [5e-6 + per_call] * calls
    return PacedBurst(seconds, seconds, sum(seconds) + 70e-6 * (calls + 1))


def queued(device: float, calls: int = 4, *, overhead: float = 100e-6) -> Burst:
    return Burst(calls, 300e-6 + calls * (device + overhead), [device] * calls, launch_seconds=30e-6)


def visit(regime: pb.TimingStats.Regime.ValueType, device: float, end_to_end: float) -> Visit:
    return Visit(regime, paced(end_to_end), queued(device) if regime == QUEUED else None)


def measured(
    candidate: list[Visit],
    reference: list[Visit],
    regime: pb.TimingStats.Regime.ValueType,
    *,
    device: float = 100e-6,
    **changes: Any,
) -> Measured:
    return Measured(
        plan(1e-4, per_set=0.0, calls=100, longest=40, limit=60),
        regime,
        candidate=candidate,
        reference=reference,
        paced_nothing=[paced(0.0)],
        cold_nothing=[queued(0.0, calls) for calls in (2, 4, 8)],
        warm=[queued(device, calls, overhead=10e-6) for calls in (4, 16)] * 2,
        warm_nothing=[queued(0.0, calls, overhead=10e-6) for calls in (4, 16)] * 2,
        **changes,
    )


def set_in(found: Times) -> set[str]:
    return {field.name for field in dataclasses.fields(found) if getattr(found, field.name) is not None}


def reported(made: Measured) -> tuple[Times, Record]:
    record = Record()
    found = report(record, made, PACES, "cuda")
    result = verdict.correct(record.report(), record.passed, record.findings, found)
    assert messages.unpack(pb.EvalResult, frames.result("attempt", result)["result"]) == result
    return found, record


def test_times_are_those_of_the_rounds_that_the_ratio_is_made_of() -> None:
    """Some rounds have no device times. In half of the others, memory was badly placed."""
    alone = Visit(QUEUED, paced(3.6e-3), None)
    rounds = [3e-3, None, 3.9e-3, None, None, 3e-3, 3.9e-3, 3.9e-3, None, 3e-3]
    candidate = [visit(QUEUED, each, each + 50e-6) if each else alone for each in rounds]
    reference = [visit(QUEUED, 6.9e-3 - each, 6.95e-3 - each) if each else alone for each in rounds]
    made = measured(candidate, reference, QUEUED, device=3e-3)
    made.effort = plan(3e-3, per_set=0.0, calls=100, longest=40, limit=60)
    ratio = made.device_ratio()
    assert (ratio.rounds, ratio.reference_rounds) == ([0, 5, 9], [2, 6, 7])
    found, record = reported(made)
    assert record.findings == []
    assert found.speedup == pytest.approx(1, abs=0.001)
    for side in ("candidate", "reference"):
        assert getattr(found, f"{side}_timing").median_seconds == pytest.approx(3e-3)


def test_a_quick_end_to_end_time_is_not_doubted_for_what_the_hosts_noise_may_take_off() -> None:
    """An empty call cost more than usual, and this is subtracted from both sides: for both the device time counts."""
    for seen in (14e-6, 3e-6):
        calls = [visit(QUEUED, 25e-6, seen)] * 5
        found, record = reported(measured(calls, calls, QUEUED, device=25e-6))
        assert record.findings == []
        assert found.end_to_end_speedup == pytest.approx(1)
        assert found.candidate_end_to_end.median_seconds == pytest.approx(25e-6)


@pytest.mark.parametrize("device", [8e-6, 25e-6, 100e-6])
def test_who_says_that_a_call_is_done_before_it_is_has_no_end_to_end_time_below_that_of_the_device(
    device: float,
) -> None:
    """This holds for short calls, too: a time of almost zero would give a speedup of any size."""
    early, honest = [visit(QUEUED, device, 1e-9)] * 5, [visit(QUEUED, device, device + 10e-6)] * 5
    found, _ = reported(measured(early, honest, QUEUED, device=device))
    assert found.candidate_end_to_end.median_seconds >= device
    assert found.end_to_end_speedup is not None
    assert found.end_to_end_speedup <= (device + 10e-6) / device * 1.001


@pytest.mark.parametrize(("seen", "doubted"), [(20e-6, ["T01"]), (47e-6, [])])
def test_a_quick_time_that_neither_noise_nor_a_cache_explains_is_doubted(seen: float, doubted: list[str]) -> None:
    calls = [visit(QUEUED, 100e-6, seen)] * 5
    found, record = reported(measured(calls, calls, QUEUED))
    assert [finding.id for finding in record.findings] == doubted
    assert found.candidate_end_to_end.median_seconds == pytest.approx(100e-6)


def test_there_are_two_times_of_both_sides_and_two_speedups() -> None:
    rounds = 5
    found, record = reported(
        measured([visit(QUEUED, 100e-6, 150e-6)] * rounds, [visit(QUEUED, 200e-6, 900e-6)] * rounds, QUEUED)
    )
    assert found.speedup == pytest.approx(2.0)
    assert found.end_to_end_speedup == pytest.approx(6.0)
    for name in ("speedup", "end_to_end_speedup"):
        interval = getattr(found, f"{name}_interval")
        assert interval.low < getattr(found, name) < interval.high
    medians = [
        getattr(found, f"{side}_{time}").median_seconds
        for side in ("candidate", "reference")
        for time in ("timing", "end_to_end")
    ]
    assert medians == pytest.approx([100e-6, 150e-6, 200e-6, 900e-6])
    assert {getattr(found, f"{side}_timing").regime for side in ("candidate", "reference")} == {QUEUED}
    assert {getattr(found, f"{side}_end_to_end").regime for side in ("candidate", "reference")} == {CALLED}
    assert record.findings == []
    assert found.timing_effort.rounds == rounds


def test_what_cannot_be_queued_has_one_time() -> None:
    found, _ = reported(measured([visit(CALLED, 0, 150e-6)] * 3, [visit(CALLED, 0, 900e-6)] * 3, CALLED))
    assert found.speedup == found.end_to_end_speedup == pytest.approx(6.0)
    assert found.candidate_timing.median_seconds == found.candidate_end_to_end.median_seconds
    assert found.candidate_timing.clock == pb.TimingStats.CLOCK_EACH_CALL


def test_rounds_that_were_made_for_end_to_end_times_alone_count_for_these() -> None:
    later = [Visit(QUEUED, paced(300e-6), None)] * 6
    found, _ = reported(
        measured([visit(QUEUED, 100e-6, 150e-6)] * 3 + later, [visit(QUEUED, 200e-6, 150e-6)] * 3 + later, QUEUED)
    )
    assert found.speedup == pytest.approx(2.0)
    assert found.candidate_timing.samples == 12
    assert found.candidate_end_to_end.samples == 36


def test_without_a_reference_there_are_times_and_no_speedup() -> None:
    found, _ = reported(measured([visit(QUEUED, 100e-6, 150e-6)] * 3, [], QUEUED))
    assert {"candidate_timing", "candidate_end_to_end", "timing_effort"} <= set_in(found)
    assert not {"speedup", "end_to_end_speedup", "reference_timing"} & set_in(found)


def test_a_lie_about_device_times_costs_the_speedup() -> None:
    lying = [Visit(QUEUED, paced(150e-6), Burst(4, queued(100e-6).wall_seconds, [1e-5] * 4))] * 4
    found, record = reported(measured(lying, [visit(QUEUED, 200e-6, 900e-6)] * 4, QUEUED))
    assert found.speedup is not None
    assert found.speedup < 2.2
    assert [finding.id for finding in record.findings] in (["T01"], ["T16"])


def test_a_candidate_that_alone_cannot_be_queued_is_told_what_that_is_worth() -> None:
    found, record = reported(
        measured([visit(CALLED, 0, 150e-6)] * 3, [visit(CALLED, 0, 900e-6)] * 3, CALLED, queued_reference=200e-6)
    )
    assert found.reference_timing is not None
    assert found.reference_timing.queued_seconds == 200e-6
    (finding,) = record.findings
    assert (finding.id, finding.severity) == ("T31", pb.Finding.SEVERITY_WARNING)
    assert "1.33 times" in finding.evidence


@settings(max_examples=sampling.examples(300))
@given(
    seed=st.integers(0, 10_000),
    sides=st.tuples(
        st.lists(st.sampled_from([QUEUED, CALLED]), min_size=1, max_size=6),
        st.lists(st.sampled_from([QUEUED, CALLED]), min_size=0, max_size=6),
    ),
    named=st.sampled_from([QUEUED, CALLED]),
)
def test_no_speedup_is_of_two_regimes(
    seed: int,
    sides: tuple[list[pb.TimingStats.Regime.ValueType], list[pb.TimingStats.Regime.ValueType]],
    named: pb.TimingStats.Regime.ValueType,
) -> None:
    rng = random.Random(seed)
    rounds = min(map(len, sides)) or len(sides[0])
    candidate, reference = (
        [visit(regime, rng.uniform(5e-5, 2e-4), rng.uniform(2e-4, 9e-4)) for regime in side[:rounds]] for side in sides
    )
    made = measured(candidate, reference, named, device=1e-4)
    seen = {each.regime for each in (*candidate, *reference)}
    if seen == {named}:
        found, _ = reported(made)
        assert {getattr(found, field).regime for field in set_in(found) if field.endswith("_timing")} == {named}
        assert {getattr(found, field).regime for field in set_in(found) if field.endswith("_end_to_end")} == {CALLED}
        return
    with pytest.raises(Finished) as finished:
        reported(made)
    result = finished.value.result
    assert result.outcome == pb.EvalResult.INFRASTRUCTURE_ERROR
    assert result.infrastructure_error.cause == "MIXED_REGIMES"
    assert result.speedup == 0
