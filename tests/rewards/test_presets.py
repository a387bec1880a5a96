"""Tests of presets: they are complete, they fill the gaps of a spec, and every number out of range is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kerneldyno.rewards.presets import PRESETS, effective, spec
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END, SPEEDUP_KIND_UNSPECIFIED
from kerneldyno.v1.reward_service_pb2 import RewardSpec, SpeedupTier

pytestmark = pytest.mark.pure


def fields_of(spec: RewardSpec) -> list[str]:
    with pytest.raises(InvalidRequestError) as caught:
        effective(spec)
    assert all(violation.description for violation in caught.value.violations)
    return [violation.field for violation in caught.value.violations]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_whole_and_valid(name: str) -> None:
    preset = PRESETS[name]
    assert preset.preset == name
    for field in RewardSpec.DESCRIPTOR.fields:
        if field.has_presence:
            assert preset.HasField(field.name), field.name  # type: ignore[arg-type]
    assert preset.speedup_basis != RewardSpec.SPEEDUP_BASIS_UNSPECIFIED
    assert preset.coverage_basis != RewardSpec.COVERAGE_BASIS_UNSPECIFIED
    assert effective(preset) == preset == spec(name) == effective(RewardSpec(preset=name))
    assert spec(name) is not preset, "a copy, so that nobody changes the preset"


#: Weights of correctness, speedup, coverage; clip and floor; rewards if incorrect, failed, rejected; basis of coverage.
CONSTANTS = {
    "drkernel": (0.5, 0.5, 0.5, 3, 0, 0, 0, 0, RewardSpec.COVERAGE_BASIS_DEVICE_TIME),
    "drkernel_paper": (1, 1, 1, 3, 0, 0, 0, 0, RewardSpec.COVERAGE_BASIS_DEVICE_TIME),
    "kevin": (0.3, 1, 0, math.inf, 0, 0, 0, 0, RewardSpec.COVERAGE_BASIS_DEVICE_TIME),
    "tiers": (0, 0, 0, math.inf, 0, -0.3, -0.5, -1, RewardSpec.COVERAGE_BASIS_DEVICE_TIME),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_constants(name: str) -> None:
    preset = PRESETS[name]
    assert CONSTANTS[name] == (
        preset.correctness_weight,
        preset.speedup_weight,
        preset.coverage_weight,
        preset.speedup_clip,
        preset.speedup_floor,
        preset.incorrect_reward,
        preset.failure_reward,
        preset.rejected_reward,
        preset.coverage_basis,
    )
    tiers = [(tier.min_speedup, tier.bonus) for tier in preset.tiers]
    assert tiers == ([(0, -0.1), (1, 0.2), (1.2, 0.4), (1.5, 0.6), (2, 0.8), (3, 1)] if name == "tiers" else [])
    assert (preset.remeasure_above, preset.feedback_chars) == (3.0, 2000)
    assert preset.speedup_basis == RewardSpec.SPEEDUP_BASIS_MEDIAN
    assert set(PRESETS) == set(CONSTANTS)


def test_what_is_not_given_comes_from_the_preset() -> None:
    assert effective(RewardSpec()) == PRESETS["drkernel"] == spec("")
    given = RewardSpec(preset="kevin", correctness_weight=0.0, speedup_clip=5.0, feedback_chars=0)
    got = effective(given)
    assert (got.correctness_weight, got.speedup_clip, got.feedback_chars) == (0.0, 5.0, 0), "0 is not a gap"
    assert (got.speedup_weight, got.remeasure_above) == (1.0, 3.0)
    assert given == RewardSpec(preset="kevin", correctness_weight=0.0, speedup_clip=5.0, feedback_chars=0), "untouched"
    assert effective(got) == got


def test_tiers_replace_all_of_the_presets() -> None:
    tiers = [SpeedupTier(min_speedup=1.01, bonus=0.5)]
    assert list(effective(RewardSpec(preset="tiers", tiers=tiers)).tiers) == tiers
    assert effective(RewardSpec(preset="tiers", failure_reward=0)).tiers == PRESETS["tiers"].tiers


def tier(speedup: float, bonus: float = 0.0) -> dict[str, Any]:
    return {"tiers": [SpeedupTier(min_speedup=1.0, bonus=0.1), SpeedupTier(min_speedup=speedup, bonus=bonus)]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"preset": "dr.kernel"}, "reward.preset"),
        *(
            ({name: value}, f"reward.{name}")
            for name in ("correctness_weight", "speedup_weight", "coverage_weight")
            for value in (math.nan, math.inf, -math.inf, 1e7)
        ),
        *(
            ({name: value}, f"reward.{name}")
            for name in ("incorrect_reward", "failure_reward", "rejected_reward")
            for value in (math.nan, math.inf, -1e7)
        ),
        *(({"speedup_clip": value}, "reward.speedup_clip") for value in (0.0, -1.0, math.nan, -math.inf)),
        *(({"speedup_floor": value}, "reward.speedup_floor") for value in (-0.1, math.nan, math.inf)),
        ({"speedup_basis": 3}, "reward.speedup_basis"),
        ({"workload_basis": 4}, "reward.workload_basis"),
        ({"coverage_basis": 9}, "reward.coverage_basis"),
        *(({"speedup_kind": value}, "reward.speedup_kind") for value in (3, -1)),
        *(({"remeasure_above": value}, "reward.remeasure_above") for value in (-0.1, math.nan, -math.inf)),
        *(({"feedback_chars": value}, "reward.feedback_chars") for value in (-1, 20_001)),
        *((tier(value), "reward.tiers[1].min_speedup") for value in (1.0, 0.5, -1.0, math.nan, math.inf)),
        *((tier(2.0, value), "reward.tiers[1].bonus") for value in (math.nan, math.inf, 1e7)),
        ({"tiers": [SpeedupTier(min_speedup=at) for at in range(21)]}, "reward.tiers"),
    ],
    ids=str,
)
def test_out_of_range(fields: dict[str, Any], path: str) -> None:
    assert fields_of(RewardSpec(**fields)) == [path]


@pytest.mark.parametrize(
    "fields",
    [
        {"speedup_clip": math.inf, "remeasure_above": math.inf},
        {"remeasure_above": 0.0, "speedup_floor": 0.0, "speedup_clip": 1e-9},
        {"feedback_chars": 0},
        {"feedback_chars": 20_000},
        {"correctness_weight": -1e6, "rejected_reward": 1e6},
        {"speedup_basis": RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW, "coverage_basis": RewardSpec.COVERAGE_BASIS_LAUNCHES},
        {"speedup_kind": SPEEDUP_KIND_DEVICE},
        {"speedup_kind": SPEEDUP_KIND_END_TO_END},
        {"tiers": [SpeedupTier(min_speedup=at) for at in range(20)]},
    ],
    ids=str,
)
def test_within_range(fields: dict[str, Any]) -> None:
    whole = effective(RewardSpec(**fields))
    for name, value in fields.items():
        assert getattr(whole, name) == value


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_leaves_it_to_the_evaluation_which_speedup_counts(preset: str) -> None:
    assert effective(RewardSpec(preset=preset)).speedup_kind == SPEEDUP_KIND_UNSPECIFIED


def test_every_violation_is_named_at_most_twenty() -> None:
    assert fields_of(RewardSpec(speedup_clip=0, feedback_chars=-1, preset="x")) == [
        "reward.preset",
        "reward.speedup_clip",
        "reward.feedback_chars",
    ]
    bad = [SpeedupTier(min_speedup=math.nan, bonus=math.nan)] * 20
    assert len(fields_of(RewardSpec(tiers=bad))) == 20
    with pytest.raises(InvalidRequestError, match=r"choose one of drkernel, drkernel_paper, kevin, tiers"):
        spec("nope")


@pytest.mark.parametrize("nonsense", [None, 1, {"preset": "kevin"}])
def test_what_is_no_reward_is_a_type_error(nonsense: Any) -> None:
    with pytest.raises(TypeError, match="a preset's name or a RewardSpec"):
        spec(nonsense)
