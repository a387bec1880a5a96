"""Compute the reward of a verdict, as its RewardSpec declares it, term by term.

Infrastructure errors, broken references, problems too large for the devices and malformed requests have no reward at
all: they are not the policy's fault, and a reward of 0 would teach noise. The scheduler calls this for every turn, and
so does whoever scores recorded results again under another spec. Pure.
"""

from __future__ import annotations

import math
import statistics

from kerneldyno.rewards.presets import effective
from kerneldyno.rewards.speedups import counted_speedup, most_paid
from kerneldyno.rpc.validation import top_field
from kerneldyno.v1.evaluation_pb2 import EvalResult, SpeedupKind, WorkloadResult
from kerneldyno.v1.reward_service_pb2 import RewardParts, RewardSpec

#: Outcomes of a candidate that did not produce a complete answer.
_FAILURES = frozenset(
    {
        EvalResult.COMPILE_ERROR,
        EvalResult.RUNTIME_ERROR,
        EvalResult.TIMEOUT,
        EvalResult.OUT_OF_MEMORY,
    }
)
#: Fields that the policy writes: it is at fault if they make a turn INVALID. All other fields are the caller's.
_POLICY_FIELDS = frozenset({"kernel_code", "kernel_files", "build_flags", "response_text"})


def anomalous(result: EvalResult, spec: RewardSpec) -> bool:
    """Return True if the speedup of `result` must be measured again before it is paid.

    Raises:
        InvalidRequestError: `spec` is malformed.
    """
    whole = effective(spec)
    if result.outcome != EvalResult.CORRECT or not _pays_speed(whole):
        return False
    speedup = _basis(result, whole)
    return speedup is not None and speedup > whole.remeasure_above


def score(
    result: EvalResult, spec: RewardSpec, remeasured: EvalResult | None = None
) -> tuple[float | None, RewardParts]:
    """Return the reward of `result` and the terms of its sum.

    The speedup is the one that `spec.speedup_kind` names, else the one that counts for the evaluation. By device time
    it is at most the speedup of the reference when queued ahead, if the candidate cannot be queued ahead (finding T31).
    Coverage that was not measured pays nothing. Whether a second measurement is due is decided by `anomalous`, not
    here.

    Args:
        result: the first evaluation.
        spec: the reward; missing fields are filled in.
        remeasured: a second evaluation of the same CORRECT candidate. The smaller speedup and coverage are paid; if it
            is not CORRECT, its outcome alone counts.

    Returns:
        The reward, and its terms. The reward is None and every term 0 if nothing may be paid: INFRASTRUCTURE_ERROR,
        REFERENCE_ERROR, PROBLEM_TOO_LARGE, INVALID for a field that the policy did not write, an outcome that this
        release does not know, a speedup that is not a number, or a speedup by a time that the evaluator did not measure
        although it timed the candidate. A candidate that was not timed has no speedup.

    Raises:
        InvalidRequestError: `spec` is malformed.
    """
    whole = effective(spec)
    verdicts = [result] if remeasured is None or result.outcome != EvalResult.CORRECT else [result, remeasured]
    if verdicts[-1].outcome != EvalResult.CORRECT:
        return _fixed(verdicts[-1], whole)
    measured = [_basis(verdict, whole) for verdict in verdicts]
    if _pays_speed(whole) and None in measured:
        return None, RewardParts()
    speedups = [speedup or 0.0 for speedup in measured]
    if not all(0 <= speedup < math.inf for speedup in speedups):
        return None, RewardParts()
    return _correct(min(speedups), min(_coverages(verdicts, whole), default=0.0), whole)


def callers_fault(result: EvalResult) -> bool:
    """Return True if `result` is INVALID for a field that the caller wrote, not the policy; do not train on it."""
    violations = result.invalid.violations
    return result.outcome == EvalResult.INVALID and any(
        top_field(each.field) not in _POLICY_FIELDS for each in violations
    )


def _fixed(verdict: EvalResult, spec: RewardSpec) -> tuple[float | None, RewardParts]:
    if verdict.outcome == EvalResult.INCORRECT:
        reward = spec.incorrect_reward
    elif verdict.outcome == EvalResult.REJECTED:
        reward = spec.rejected_reward
    elif verdict.outcome in _FAILURES or (verdict.outcome == EvalResult.INVALID and not callers_fault(verdict)):
        reward = spec.failure_reward
    else:
        return None, RewardParts()
    return reward, RewardParts(fixed=reward)


def _correct(speedup: float, coverage: float, spec: RewardSpec) -> tuple[float | None, RewardParts]:
    counted = speedup if speedup >= spec.speedup_floor else 0.0
    paid = min(counted, spec.speedup_clip) if _pays_speed(spec) else 0.0
    parts = RewardParts(
        correctness=spec.correctness_weight,
        speedup=spec.speedup_weight * paid,
        coverage=spec.coverage_weight * coverage,
        tier=_bonus(counted, spec),
        paid_speedup=paid,
        paid_coverage=coverage,
    )
    reward = parts.correctness + parts.speedup + parts.coverage + parts.tier
    return (reward, parts) if math.isfinite(reward) else (None, RewardParts())


def _pays_speed(spec: RewardSpec) -> bool:
    return spec.speedup_weight != 0 or len(spec.tiers) > 0


def _basis(result: EvalResult, spec: RewardSpec) -> float | None:
    """Return the speedup that the spec uses: 0 for a candidate without timing, None if that time was not measured."""
    kind = spec.speedup_kind or result.speedup_kind
    if not result.workloads:
        return _one(result, kind, spec)
    found = [_one(each, kind, spec) for each in result.workloads if each.HasField("candidate_timing")]
    speedups = [speedup for speedup in found if speedup is not None]
    if len(speedups) < len(found):
        return None
    if spec.workload_basis == RewardSpec.WORKLOAD_BASIS_WORST:
        return min(speedups, default=0.0)
    if spec.workload_basis == RewardSpec.WORKLOAD_BASIS_MEAN:
        return statistics.fmean(speedups) if speedups else 0.0
    return statistics.geometric_mean(speedups) if speedups and min(speedups) > 0 else 0.0


def _one(result: EvalResult | WorkloadResult, kind: SpeedupKind.ValueType, spec: RewardSpec) -> float | None:
    """Return the speedup of a result, or of one workload."""
    counted = counted_speedup(result, kind)
    if counted.unmeasured:
        return None
    speedup = counted.value
    if spec.speedup_basis == RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW:
        speedup = counted.interval.low if counted.interval is not None else 0.0
    return min(speedup, most_paid(result, counted))


def _bonus(speedup: float, spec: RewardSpec) -> float:
    """Return the bonus of the highest tier reached. The clip does not apply: a tier may lie above it."""
    return next((tier.bonus for tier in reversed(spec.tiers) if speedup >= tier.min_speedup), 0.0)


def _coverages(verdicts: list[EvalResult], spec: RewardSpec) -> list[float]:
    """Return the coverage of each profiled verdict, if coverage is paid. The candidate's process reports the numbers."""
    if spec.coverage_weight == 0:
        return []
    measured = [_coverage(verdict, spec) for verdict in verdicts if verdict.HasField("profile")]
    return [min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0 for share in measured]


def _coverage(result: EvalResult, spec: RewardSpec) -> float:
    if spec.coverage_basis == RewardSpec.COVERAGE_BASIS_LAUNCHES:
        return result.profile.launch_coverage
    if spec.coverage_basis == RewardSpec.COVERAGE_BASIS_KERNELGYM:
        return result.profile.kernelgym_coverage
    return result.profile.device_time_coverage
