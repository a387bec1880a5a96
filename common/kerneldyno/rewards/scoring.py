"""The reward of a verdict, as its RewardSpec declares it, term by term.

Infrastructure, broken references, problems too large for the devices and malformed requests have no reward at all: the
policy is not to blame, and a 0 there would teach noise. Called by the scheduler for every turn, and by whoever scores
recorded results again under another spec. Pure.
"""

from __future__ import annotations

import math

from kerneldyno.rewards.presets import effective
from kerneldyno.rewards.speedups import counted_speedup, most_paid
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardParts, RewardSpec

#: Outcomes that tell of a candidate which never ran to an answer.
_FAILURES = frozenset(
    {
        EvalResult.COMPILE_ERROR,
        EvalResult.RUNTIME_ERROR,
        EvalResult.TIMEOUT,
        EvalResult.OUT_OF_MEMORY,
    }
)
#: Fields for which the policy is to blame when they make a turn INVALID; all others are the caller's.
_THE_POLICYS = frozenset({"kernel_code", "response_text"})


def anomalous(result: EvalResult, spec: RewardSpec) -> bool:
    """Say whether the speedup of `result` must be measured again before it is paid.

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

    The speedup is the one that `spec.speedup_kind` names, else the one that counts for the evaluation. By device time it is
    at most what the reference reaches queued ahead, where the candidate cannot be (finding T31).

    The reward is None, and every part 0, when nothing may be paid: INFRASTRUCTURE_ERROR, REFERENCE_ERROR,
    PROBLEM_TOO_LARGE, INVALID for a field that the policy did not write, an outcome that this release does not know, a
    speedup that is no number, or one by a time that the evaluator did not measure though it timed the candidate. A
    candidate that was not timed has none. With `remeasured`, a second evaluation of the same CORRECT candidate, the smaller
    speedup and coverage are paid; when the second is not CORRECT, its outcome counts alone. Coverage that was not measured
    pays nothing. Whether a second measurement is due, `anomalous` says; this does not ask.

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
    """Say whether `result` is INVALID for a field that the caller wrote, not the policy: nothing may be learnt from it."""
    violations = result.invalid.violations
    return result.outcome == EvalResult.INVALID and any(each.field not in _THE_POLICYS for each in violations)


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
    """The speedup that the spec looks at: 0 for a candidate that was not timed, None for one not timed by that time."""
    counted = counted_speedup(result, spec.speedup_kind)
    if counted.unmeasured:
        return None
    speedup = counted.value
    if spec.speedup_basis == RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW:
        speedup = counted.interval.low if counted.interval is not None else 0.0
    return min(speedup, most_paid(result, counted))


def _bonus(speedup: float, spec: RewardSpec) -> float:
    """The bonus of the highest tier reached. The clip does not hold it down: a tier may lie above it."""
    return next((tier.bonus for tier in reversed(spec.tiers) if speedup >= tier.min_speedup), 0.0)


def _coverages(verdicts: list[EvalResult], spec: RewardSpec) -> list[float]:
    """The coverage of each verdict that was profiled, if coverage is paid. The numbers come from the candidate's process."""
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
