"""Speedups of several workloads: what is paid for them, and what a model and a person are told."""

from __future__ import annotations

import math

import pytest

from kerneldyno.report.wording import facts
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.scoring import anomalous, score
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1.reward_service_pb2 import RewardSpec

pytestmark = pytest.mark.pure

WORST, MEAN = RewardSpec.WORKLOAD_BASIS_WORST, RewardSpec.WORKLOAD_BASIS_MEAN
LOW = RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW


def workload(speedup: float, name: str = "", **fields: float) -> pb.WorkloadResult:
    timing = pb.TimingStats(median_seconds=1e-5 / speedup)
    return pb.WorkloadResult(
        workload=pb.Workload(name=name, value_json=f'{{"rows": {speedup:g}}}'),
        outcome=pb.EvalResult.CORRECT,
        speedup=speedup,
        speedup_interval=pb.Interval(low=0.9 * speedup, high=1.1 * speedup),
        candidate_timing=timing,
        candidate_end_to_end=timing,
        end_to_end_speedup=speedup / 2,
        reference_timing=pb.TimingStats(median_seconds=1e-5, **fields),
    )


def result(*workloads: pb.WorkloadResult) -> pb.EvalResult:
    speedups = [each.speedup for each in workloads if each.speedup]
    mean = math.exp(sum(map(math.log, speedups)) / len(speedups))
    return pb.EvalResult(
        outcome=pb.EvalResult.CORRECT,
        speedup=mean,
        speedup_interval=pb.Interval(low=mean, high=mean),
        workloads=workloads,
        workload_summary=pb.WorkloadSummary(
            total=len(workloads), timed=len(speedups), worst_speedup=min(speedups), share_won=0.5, mean_speedup=2.0
        ),
    )


def paid(found: pb.EvalResult, **fields: object) -> float:
    spec = RewardSpec(preset="kevin", **fields)  # type: ignore[arg-type]
    return score(found, spec)[1].paid_speedup


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 2.0),
        ({"workload_basis": WORST}, 0.5),
        ({"workload_basis": MEAN}, 4.25),
        ({"speedup_kind": pb.SPEEDUP_KIND_END_TO_END}, 1.0),
        ({"speedup_basis": LOW}, 1.8),
        ({"speedup_basis": LOW, "workload_basis": WORST}, 0.45),
    ],
)
def test_what_is_paid_for_several_workloads(fields: dict[str, object], expected: float) -> None:
    assert paid(result(workload(0.5), workload(8.0)), **fields) == pytest.approx(expected)


def test_workloads_that_were_not_timed_do_not_count() -> None:
    late = pb.WorkloadResult(outcome=pb.EvalResult.CORRECT)
    assert paid(result(workload(0.5), late), workload_basis=WORST) == pytest.approx(0.5)
    assert paid(result(workload(0.5), late)) == pytest.approx(0.5)


def test_no_workload_is_paid_beyond_its_queued_reference() -> None:
    # It takes 2 us as called; its reference could be queued ahead and takes 4 us then: twice at most.
    slow_reference = workload(5.0, queued_seconds=4e-6)
    assert paid(result(slow_reference, workload(2.0))) == pytest.approx(2.0)


def test_a_model_hears_where_it_is_slow() -> None:
    text = feedback(result(workload(4.0, "even"), workload(0.5, "odd")), limit=2000)
    assert text.startswith(
        "CORRECT: 1.41x the reference's speed by device time, geometric mean of 2 workloads; 1 of 2 are"
    )
    assert "the slowest has 0.50x." in text
    assert "By workload, slowest first: odd 0.50x (20 us a call); even 4.00x" in text


def test_not_every_one_of_many_workloads_is_listed() -> None:
    text = feedback(result(*[workload(1.0 + number) for number in range(20)]), limit=2000)
    assert "; 14 more are faster." in text


def test_a_card_has_a_line_for_each_workload() -> None:
    late = pb.WorkloadResult(outcome=pb.EvalResult.CORRECT, workload=pb.Workload(name="late"))
    lines = dict(facts(result(workload(4.0, "even"), late)))
    assert lines["workload even"].endswith("; 2.5 us, the reference 10 us")
    assert lines["workload late"] == "CORRECT, not timed"
    assert lines["workloads"].startswith("1 of 2 timed: 50% faster than the reference, worst 4.00x")


def cases(*times: float, late: int = 0) -> pb.EvalResult:
    """Return the result of cases without a reference, timed so in seconds, and of some that were late."""
    found = [
        pb.WorkloadResult(
            workload=pb.Workload(name=f"case {number}"),
            outcome=pb.EvalResult.CORRECT,
            candidate_timing=pb.TimingStats(median_seconds=time),
            candidate_end_to_end=pb.TimingStats(median_seconds=2 * time),
        )
        for number, time in enumerate(times, 1)
    ]
    found += [pb.WorkloadResult(workload=pb.Workload(name="late"), outcome=pb.EvalResult.CORRECT)] * late
    summary = pb.WorkloadSummary(total=len(found), timed=len(times))
    return pb.EvalResult(outcome=pb.EvalResult.CORRECT, workloads=found, workload_summary=summary)


@pytest.mark.parametrize("basis", [*RewardSpec.WorkloadBasis.values()])
@pytest.mark.parametrize("kind", [pb.SPEEDUP_KIND_DEVICE, pb.SPEEDUP_KIND_END_TO_END])
@pytest.mark.parametrize("speedup_basis", [*RewardSpec.SpeedupBasis.values()])
def test_times_without_a_reference_pay_what_a_case_alone_pays(basis: int, kind: int, speedup_basis: int) -> None:
    one = cases(1e-6).workloads[0]
    alone = pb.EvalResult(
        outcome=pb.EvalResult.CORRECT,
        candidate_timing=one.candidate_timing,
        candidate_end_to_end=one.candidate_end_to_end,
    )
    fields = {"workload_basis": basis, "speedup_kind": kind, "speedup_basis": speedup_basis}
    spec = RewardSpec(preset="kevin", **fields)  # type: ignore[arg-type]
    assert score(cases(1e-6, 2e-6, late=1), spec) == score(alone, spec)
    assert not anomalous(cases(1e-6, 2e-6), spec)


def test_a_model_hears_the_times_of_cases() -> None:
    text = feedback(cases(2e-6, 5e-6, late=1), limit=2000)
    assert text.startswith("CORRECT: all outputs are right; 2 of 3 workloads timed, with no reference to compare with.")
    assert "By workload, slowest first: case 2 5 us a call; case 1 2 us a call." in text
    assert "0.00x" not in text


@pytest.mark.parametrize("outcome", [pb.EvalResult.INCORRECT, pb.EvalResult.RUNTIME_ERROR, pb.EvalResult.TIMEOUT])
def test_a_model_hears_which_workload_failed(outcome: pb.EvalResult.Outcome.ValueType) -> None:
    failed = pb.EvalResult(outcome=outcome)
    failed.workloads.extend(cases(1e-6).workloads)
    failed.workloads.add(workload=pb.Workload(name="odd\nsize"), outcome=outcome)
    first, second = feedback(failed, limit=2000).splitlines()[:2]
    assert first.startswith(pb.EvalResult.Outcome.Name(outcome))
    assert second == "This was workload odd size."


def test_a_model_hears_of_no_workload_if_it_is_not_at_fault() -> None:
    lost = pb.EvalResult(outcome=pb.EvalResult.INFRASTRUCTURE_ERROR)
    lost.workloads.add(workload=pb.Workload(name="odd"), outcome=lost.outcome)
    assert "odd" not in feedback(lost, limit=2000)


def test_a_card_has_times_without_a_reference() -> None:
    lines = dict(facts(cases(2e-6, 5e-6, late=1)))
    assert (lines["workload case 1"], lines["workload case 2"]) == ("2 us", "5 us")
    assert lines["workload late"] == "CORRECT, not timed"
    assert lines["workloads"] == "2 of 3 timed, with no reference to compare with"
