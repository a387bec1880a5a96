"""Problems with several workloads: an evaluation of each, one after the other, and one result of all.

Each workload has a process of its own, so a candidate cannot carry anything from one to the next. The first one that is
not CORRECT ends the evaluation, and its result is that of the whole. Several fixed cases are workloads while they are
timed. Each evaluation checks all of them, so that a candidate which is right for one case only is not even timed for it.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.spec import EvalSpec
from .results import verdict

#: Evaluates one workload. Returns its result, and names and values (JSON) of all workloads of the problem.
EvaluateOne = Callable[[EvalSpec], Awaitable[tuple[pb.EvalResult, Sequence[tuple[str, str]]]]]

#: Fields that a workload's result takes over.
_KEPT = (
    "speedup_interval",
    "end_to_end_speedup_interval",
    "candidate_timing",
    "reference_timing",
    "candidate_end_to_end",
    "reference_end_to_end",
    "correctness",
    "roofline",
)


async def evaluate(spec: EvalSpec, evaluate_one: EvaluateOne) -> pb.EvalResult:
    """Evaluate the first workload, and the others if there are any. Raises what `evaluate_one` raises."""
    begin = time.monotonic()
    result, workloads = await evaluate_one(spec)
    if not workloads:
        return result
    results = [result]
    while results[-1].outcome == pb.EvalResult.CORRECT and len(results) < len(workloads):
        late = spec.timing.workloads_seconds is not None and time.monotonic() - begin > spec.timing.workloads_seconds
        timed = spec.timing.wanted and not late
        next_one = replace(
            spec, problem=replace(spec.problem, workload=len(results)), timing=replace(spec.timing, wanted=timed)
        )
        result, left = await evaluate_one(next_one)
        results.append(result)
        if late and not left:  # this evaluation has checked all cases, so the others need none of their own
            break
    return _together(results, workloads)


def _together(results: Sequence[pb.EvalResult], workloads: Sequence[tuple[str, str]]) -> pb.EvalResult:
    """Return one result: the last one's, with what was found for each, and with means if all were right.

    There may be fewer results than workloads if all are CORRECT. Then the last one holds for the rest.
    """
    whole = copy.deepcopy(results[-1])
    del whole.workloads[:]
    whole.workloads.extend(_one(result, name, value) for result, (name, value) in zip(results, workloads, strict=False))
    if results[-1].workloads:  # a case failed that is not the one of this evaluation
        del whole.workloads[-1]
        whole.workloads.extend(results[-1].workloads)
    del whole.stages[:]
    whole.stages.extend(span for result in results for span in result.stages)
    for field in ("candidate_timing", "reference_timing", "candidate_end_to_end", "reference_end_to_end", "roofline"):
        whole.ClearField(field)
    if whole.outcome != pb.EvalResult.CORRECT:
        if not results[-1].workloads:
            name, value = workloads[len(results) - 1]
            whole.message = verdict.workload_message(name or value, len(results), len(workloads), whole.message)
        return whole
    whole.workloads.extend(_one(results[-1], name, value) for name, value in workloads[len(results) :])
    whole.message = f"all outputs of {len(workloads)} workloads are right"
    whole.correctness.CopyFrom(all_correct([result.correctness for result in results]))
    known = {finding.id for finding in whole.findings}
    for result in results[:-1]:
        whole.findings.extend(found for found in result.findings if found.id not in known)
        known.update(found.id for found in result.findings)
    del whole.baselines[:]
    by_baseline = zip(*(result.baselines for result in results if result.baselines), strict=True)
    whole.baselines.extend(_baseline(found) for found in by_baseline)
    if coverages := [result.coverage for result in results if result.HasField("coverage")]:
        whole.coverage = sum(coverages) / len(coverages)
    whole.memory_use.CopyFrom(max((result.memory_use for result in results), key=lambda use: use.planned_bytes))
    whole.speedup, interval = _mean(results, "speedup")
    whole.end_to_end_speedup, end_to_end = _mean(results, "end_to_end_speedup")
    for field, found in (("speedup_interval", interval), ("end_to_end_speedup_interval", end_to_end)):
        whole.ClearField(field)  # type: ignore[arg-type]
        if found is not None:
            getattr(whole, field).CopyFrom(found)
    speedups = [result.speedup for result in results if result.speedup > 0]
    whole.workload_summary.CopyFrom(
        pb.WorkloadSummary(
            total=len(workloads),
            timed=sum(result.HasField("candidate_timing") for result in results),
            worst_speedup=min(speedups, default=0.0),
            mean_speedup=sum(speedups) / len(speedups) if speedups else 0.0,
            share_won=sum(speedup > 1 for speedup in speedups) / len(speedups) if speedups else 0.0,
        )
    )
    return whole


def _one(result: pb.EvalResult, name: str, value: str) -> pb.WorkloadResult:
    found = pb.WorkloadResult(
        workload=pb.Workload(name=name, value_json=value), outcome=result.outcome, message=result.message
    )
    for field in ("speedup", "end_to_end_speedup"):
        if getattr(result, field) > 0:
            setattr(found, field, getattr(result, field))
    for field in _KEPT:
        if result.HasField(field):  # type: ignore[arg-type]
            getattr(found, field).CopyFrom(getattr(result, field))
    found.baselines.extend(result.baselines)
    return found


def _baseline(found: Sequence[pb.BaselineResult]) -> pb.BaselineResult:
    """Return geometric means of the speedups beside one baseline; the first error if it has none."""
    whole = pb.BaselineResult(backend=found[0].backend, name=found[0].name)
    for field in ("speedup", "end_to_end_speedup"):
        mean, interval = _mean(found, field)
        if mean:
            setattr(whole, field, mean)
        if interval is not None:
            getattr(whole, f"{field}_interval").CopyFrom(interval)
    if not whole.HasField("speedup") and not whole.HasField("end_to_end_speedup"):
        whole.error = next((each.error for each in found if each.error), "")
    return whole


def all_correct(reports: Sequence[pb.CorrectnessReport]) -> pb.CorrectnessReport:
    """Return the sums of what was counted, and the extremes of what was measured."""
    whole = pb.CorrectnessReport()
    whole.CopyFrom(reports[0])
    for report in reports[1:]:
        for field in ("passed_trials", "total_trials", "timed_outputs_checked", "stress_trials"):
            setattr(whole, field, getattr(whole, field) + getattr(report, field))
        for field in ("max_abs_error", "max_error_ratio", "observed_precision", "parameters_perturbed"):
            setattr(whole, field, max(getattr(whole, field), getattr(report, field)))
        if report.HasField("matched_share"):
            whole.matched_share = min(whole.matched_share, report.matched_share)
        if report.HasField("deterministic") and not report.deterministic:
            whole.deterministic = False
    return whole


def _mean(
    results: Sequence[pb.EvalResult] | Sequence[pb.BaselineResult], field: str
) -> tuple[float, pb.Interval | None]:
    """Return the geometric mean of the speedups, 0 if there is none, and its interval if all have one.

    The intervals' half widths in the logarithm add up as those of independent measurements do. It says how well these
    workloads' mean is known, and nothing about other workloads.
    """
    timed = [result for result in results if getattr(result, field) > 0]
    if not timed:
        return 0.0, None
    logarithm = sum(math.log(getattr(result, field)) for result in timed) / len(timed)
    intervals = [getattr(result, f"{field}_interval") for result in timed]
    if not all(interval.low > 0 for interval in intervals):
        return math.exp(logarithm), None
    squares = sum((math.log(interval.high / interval.low) / 2) ** 2 for interval in intervals)
    half = math.sqrt(squares) / len(timed)
    return math.exp(logarithm), pb.Interval(low=math.exp(logarithm - half), high=math.exp(logarithm + half))
