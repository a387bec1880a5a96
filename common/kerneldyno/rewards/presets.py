"""Presets of a RewardSpec, the completion of a spec that leaves fields out, and the limits of each field.

The presets reproduce published rewards; docs/rewards.md gives the source of each constant. A spec is completed once,
where it enters: by the scheduler when it arrives on a stream, or by whoever scores recorded results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.rpc.validation import MAX_VIOLATIONS, Violation
from kerneldyno.v1.evaluation_pb2 import SpeedupKind
from kerneldyno.v1.reward_service_pb2 import RewardSpec, SpeedupTier

DEFAULT_PRESET = "drkernel"
MAX_TIERS = 20
MAX_FEEDBACK_CHARS = 20_000
#: Largest absolute value of a weight, bonus or fixed reward: sums stay exact enough, and larger values have no use.
MAX_WEIGHT = 1e6

#: Speedups above this are measured twice: one timing in some thousands is far too good, and a policy would learn to
#: hope for it.
_REMEASURE_ABOVE = 3.0
_FEEDBACK_CHARS = 2_000

_WEIGHTS = (
    "correctness_weight",
    "speedup_weight",
    "coverage_weight",
    "incorrect_reward",
    "failure_reward",
    "rejected_reward",
)
#: Fields for which "not set" differs from 0.
_OPTIONAL = (*_WEIGHTS, "speedup_clip", "speedup_floor", "remeasure_above", "feedback_chars")

#: Fields that all presets share.
_COMMON: dict[str, Any] = {
    "speedup_floor": 0.0,
    "speedup_basis": RewardSpec.SPEEDUP_BASIS_MEDIAN,
    "workload_basis": RewardSpec.WORKLOAD_BASIS_GEOMETRIC_MEAN,
    "incorrect_reward": 0.0,
    "failure_reward": 0.0,
    "rejected_reward": 0.0,
    "remeasure_above": _REMEASURE_ABOVE,
    "feedback_chars": _FEEDBACK_CHARS,
}


def _preset(name: str, **fields: Any) -> RewardSpec:
    return RewardSpec(preset=name, **{**_COMMON, **fields})


#: Every preset, complete. Copy a spec before you change it; `spec` and `effective` return copies.
PRESETS: Mapping[str, RewardSpec] = MappingProxyType(
    {
        # Dr. Kernel as released, at half the paper's scale, except for coverage: the release's number includes host
        # time, so the paper's definition is used instead (COVERAGE_BASIS_KERNELGYM pays by the release's number).
        "drkernel": _preset(
            "drkernel",
            correctness_weight=0.5,
            speedup_weight=0.5,
            speedup_clip=3.0,
            coverage_weight=0.5,
            coverage_basis=RewardSpec.COVERAGE_BASIS_DEVICE_TIME,
        ),
        # Dr. Kernel as in the paper, equations 1, 7 and 8.
        "drkernel_paper": _preset(
            "drkernel_paper",
            correctness_weight=1.0,
            speedup_weight=1.0,
            speedup_clip=3.0,
            coverage_weight=1.0,
            coverage_basis=RewardSpec.COVERAGE_BASIS_DEVICE_TIME,
        ),
        # The form of Kevin: a little for being correct, plus the speedup itself.
        "kevin": _preset(
            "kevin",
            correctness_weight=0.3,
            speedup_weight=1.0,
            speedup_clip=math.inf,
            coverage_weight=0.0,
            coverage_basis=RewardSpec.COVERAGE_BASIS_DEVICE_TIME,
        ),
        # Steps instead of a slope, and a reward below 0 for each way to fail. The tier at 0 is for correct but slow.
        "tiers": _preset(
            "tiers",
            correctness_weight=0.0,
            speedup_weight=0.0,
            speedup_clip=math.inf,
            coverage_weight=0.0,
            coverage_basis=RewardSpec.COVERAGE_BASIS_DEVICE_TIME,
            tiers=[
                SpeedupTier(min_speedup=0.0, bonus=-0.1),
                SpeedupTier(min_speedup=1.0, bonus=0.2),
                SpeedupTier(min_speedup=1.2, bonus=0.4),
                SpeedupTier(min_speedup=1.5, bonus=0.6),
                SpeedupTier(min_speedup=2.0, bonus=0.8),
                SpeedupTier(min_speedup=3.0, bonus=1.0),
            ],
            incorrect_reward=-0.3,
            failure_reward=-0.5,
            rejected_reward=-1.0,
        ),
    }
)


def spec(preset_or_spec: str | RewardSpec) -> RewardSpec:
    """Return the complete spec for a preset's name, or for a spec that leaves fields out.

    Raises:
        InvalidRequestError: as for `effective`.
        TypeError: it is neither.
    """
    if not isinstance(preset_or_spec, (str, RewardSpec)):
        raise TypeError(f"a reward must be a preset's name or a RewardSpec, not {type(preset_or_spec).__name__}")
    return effective(RewardSpec(preset=preset_or_spec) if isinstance(preset_or_spec, str) else preset_or_spec)


def effective(spec: RewardSpec) -> RewardSpec:
    """Return a copy of `spec` in which every field that was not given has the preset's value.

    If no tiers are given, the preset's tiers apply; tiers that are given replace all of them.

    Raises:
        InvalidRequestError: the preset is unknown or a value is out of range; `violations` names each, for example
            `reward.speedup_clip`.
    """
    found: list[Violation] = []
    for violation in _violations(spec):
        found.append(violation)
        if len(found) == MAX_VIOLATIONS:
            break
    if found:
        raise InvalidRequestError(violations=found)
    whole = RewardSpec()
    whole.CopyFrom(PRESETS[spec.preset or DEFAULT_PRESET])
    for name in _OPTIONAL:
        if spec.HasField(name):  # type: ignore[arg-type]
            setattr(whole, name, getattr(spec, name))
    whole.speedup_basis = spec.speedup_basis or whole.speedup_basis
    whole.workload_basis = spec.workload_basis or whole.workload_basis
    whole.speedup_kind = spec.speedup_kind or whole.speedup_kind  # presets leave it unset: the evaluation decides
    whole.coverage_basis = spec.coverage_basis or whole.coverage_basis
    if spec.tiers:
        del whole.tiers[:]
        whole.tiers.extend(spec.tiers)
    return whole


def _violations(spec: RewardSpec) -> Iterator[Violation]:
    if spec.preset and spec.preset not in PRESETS:
        yield Violation("reward.preset", f"{spec.preset[:100]!r} is not known; choose one of {', '.join(PRESETS)}")
    for name in _WEIGHTS:
        if spec.HasField(name):  # type: ignore[arg-type]
            yield from _size(f"reward.{name}", getattr(spec, name))
    if spec.HasField("speedup_clip") and not spec.speedup_clip > 0:
        yield Violation("reward.speedup_clip", f"is {spec.speedup_clip}; it must be greater than 0 (inf: no limit)")
    if spec.HasField("speedup_floor") and not 0 <= spec.speedup_floor < math.inf:
        yield Violation("reward.speedup_floor", f"is {spec.speedup_floor}; it must be finite and not negative")
    if spec.speedup_basis not in RewardSpec.SpeedupBasis.values():
        yield Violation("reward.speedup_basis", f"{spec.speedup_basis} is not a known SpeedupBasis")
    if spec.workload_basis not in RewardSpec.WorkloadBasis.values():
        yield Violation("reward.workload_basis", f"{spec.workload_basis} is not a known WorkloadBasis")
    if spec.speedup_kind not in SpeedupKind.values():
        known = ", ".join(SpeedupKind.keys()[1:])
        yield Violation("reward.speedup_kind", f"{spec.speedup_kind} is not a known SpeedupKind; choose one of {known}")
    if spec.coverage_basis not in RewardSpec.CoverageBasis.values():
        yield Violation("reward.coverage_basis", f"{spec.coverage_basis} is not a known CoverageBasis")
    yield from _tiers(spec)
    if spec.HasField("remeasure_above") and not spec.remeasure_above >= 0:
        yield Violation("reward.remeasure_above", f"is {spec.remeasure_above}; it must not be negative (inf: never)")
    if spec.HasField("feedback_chars") and not 0 <= spec.feedback_chars <= MAX_FEEDBACK_CHARS:
        yield Violation("reward.feedback_chars", f"is {spec.feedback_chars}; allowed are 0 to {MAX_FEEDBACK_CHARS}")


def _tiers(spec: RewardSpec) -> Iterator[Violation]:
    if len(spec.tiers) > MAX_TIERS:
        yield Violation("reward.tiers", f"has {len(spec.tiers)} entries; at most {MAX_TIERS} are allowed")
        return
    before = -math.inf
    for index, tier in enumerate(spec.tiers):
        field = f"reward.tiers[{index}]"
        if not 0 <= tier.min_speedup < math.inf:
            yield Violation(f"{field}.min_speedup", f"is {tier.min_speedup}; it must be finite and not negative")
        elif not tier.min_speedup > before:
            yield Violation(
                f"{field}.min_speedup", f"is {tier.min_speedup}; it must be greater than the previous tier's, {before}"
            )
        else:
            before = tier.min_speedup
        yield from _size(f"{field}.bonus", tier.bonus)


def _size(field: str, value: float) -> Iterator[Violation]:
    if not abs(value) <= MAX_WEIGHT:
        yield Violation(field, f"is {value}; it must be between {-MAX_WEIGHT:g} and {MAX_WEIGHT:g}")
