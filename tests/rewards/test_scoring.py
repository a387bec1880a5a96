"""Tests of the reward, term by term: every outcome and preset, second measurements, and invalid numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.rewards.presets import PRESETS, effective
from kerneldyno.rewards.scoring import anomalous, score
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardParts, RewardSpec, SpeedupTier
from tests.rewards.reward_results import RESULTS, both_times, result

pytestmark = pytest.mark.pure

FAILURES = ("COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY", "INVALID")


def test_every_outcome_has_a_sample() -> None:
    assert set(RESULTS) == set(EvalResult.Outcome.keys()) - {"OUTCOME_UNSPECIFIED"}


@pytest.mark.parametrize(
    ("preset", "parts"),
    [
        (
            "drkernel",
            {"correctness": 0.5, "speedup": 0.75, "coverage": 0.2, "paid_speedup": 1.5, "paid_coverage": 0.4},
        ),
        (
            "drkernel_paper",
            {"correctness": 1, "speedup": 1.5, "coverage": 0.4, "paid_speedup": 1.5, "paid_coverage": 0.4},
        ),
        ("kevin", {"correctness": 0.3, "speedup": 1.5, "paid_speedup": 1.5}),
        ("tiers", {"tier": 0.6, "paid_speedup": 1.5}),
    ],
)
def test_correct(preset: str, parts: dict[str, float]) -> None:
    reward, got = score(result("CORRECT"), PRESETS[preset])
    assert got == RewardParts(**parts)
    assert reward == pytest.approx(sum(parts.get(name, 0) for name in ("correctness", "speedup", "coverage", "tier")))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("outcome", RESULTS)
def test_other_outcomes_have_a_fixed_reward_or_none(preset: str, outcome: str) -> None:
    if outcome == "CORRECT":
        return
    # A speedup and a profile from before the failure pay nothing.
    reward, parts = score(result(outcome, speedup=9.0, profile=RESULTS["CORRECT"]["profile"]), PRESETS[preset])
    whole = PRESETS[preset]
    fixed = dict.fromkeys(FAILURES, whole.failure_reward) | {
        "INCORRECT": whole.incorrect_reward,
        "REJECTED": whole.rejected_reward,
    }
    assert reward == fixed.get(outcome)
    assert parts == RewardParts(fixed=fixed.get(outcome, 0.0))


@pytest.mark.parametrize("outcome", ["INFRASTRUCTURE_ERROR", "REFERENCE_ERROR", "PROBLEM_TOO_LARGE"])
def test_infrastructure_and_references_have_no_reward_whatever_the_spec(outcome: str) -> None:
    spec = RewardSpec(failure_reward=-1, incorrect_reward=-1, rejected_reward=-1)
    assert score(result(outcome), spec) == (None, RewardParts())


@pytest.mark.parametrize("field", ["num_warmup", "reference_code", "id", "turn", ""])
def test_a_policy_does_not_pay_for_what_its_trainer_wrote(field: str) -> None:
    spec = RewardSpec(failure_reward=-1)
    own = {"field": "kernel_code", "description": "too large"}
    for violations in ([{"field": field, "description": "bad"}], [own, {"field": field, "description": "bad"}]):
        assert score(result("INVALID", invalid={"violations": violations}), spec) == (None, RewardParts())
    for field_of_the_policy in (
        "kernel_code",
        "response_text",
        "kernel_files[3].path",
        "kernel_files",
        "build_flags.cpp",
    ):
        violations = [{"field": field_of_the_policy, "description": "bad"}]
        assert score(result("INVALID", invalid={"violations": violations}), spec)[0] == -1


def test_outcomes_of_another_release_have_no_reward() -> None:
    assert score(EvalResult(), RewardSpec()) == (None, RewardParts())
    assert score(EvalResult(outcome=77), RewardSpec(preset="tiers")) == (None, RewardParts())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speedup", "paid"), [(0.0, 0.0), (0.79, 0.0), (0.8, 0.8), (1.0, 1.0), (2.5, 2.5), (2.51, 2.5), (1e9, 2.5)]
)
def test_clip_and_floor(speedup: float, paid: float) -> None:
    spec = RewardSpec(speedup_clip=2.5, speedup_floor=0.8, coverage_weight=0)
    reward, parts = score(result("CORRECT", speedup=speedup), spec)
    assert (reward, parts.paid_speedup, parts.speedup) == (0.5 + 0.5 * paid, paid, 0.5 * paid)


@pytest.mark.parametrize(
    ("speedup", "reward"),
    [(0.0, -0.1), (0.99, -0.1), (1.0, 0.2), (1.19, 0.2), (1.2, 0.4), (1.5, 0.6), (2.0, 0.8), (3.0, 1.0), (99.0, 1.0)],
)
def test_tiers(speedup: float, reward: float) -> None:
    assert score(result("CORRECT", speedup=speedup), PRESETS["tiers"])[0] == reward


def test_a_speedup_that_nothing_is_paid_for_is_not_told_as_paid() -> None:
    parts = score(result("CORRECT"), RewardSpec(speedup_weight=0, coverage_weight=0))[1]
    assert parts == RewardParts(correctness=0.5)


def test_tiers_see_the_floor_and_not_the_clip() -> None:
    spec = RewardSpec(
        speedup_clip=2, speedup_floor=0.5, coverage_weight=0, tiers=[SpeedupTier(min_speedup=0.4, bonus=7)]
    )
    assert score(result("CORRECT", speedup=0.45), spec)[0] == 0.5
    spec.tiers.add(min_speedup=4, bonus=9)
    assert score(result("CORRECT", speedup=5), spec)[0] == 0.5 + 0.5 * 2 + 9


def test_speedup_basis() -> None:
    spec = RewardSpec(preset="kevin", speedup_basis=RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW)
    assert score(result("CORRECT"), spec)[0] == pytest.approx(0.3 + 1.4)
    assert score(result("CORRECT", speedup_interval=None), spec)[0] == 0.3, "nothing is certain"
    untimed = result("CORRECT", speedup=0, speedup_interval=None, candidate_timing=None, reference_timing=None)
    assert score(untimed, RewardSpec(preset="kevin"))[0] == 0.3


@pytest.mark.parametrize(
    ("basis", "share"),
    [
        (RewardSpec.COVERAGE_BASIS_DEVICE_TIME, 0.4),
        (RewardSpec.COVERAGE_BASIS_LAUNCHES, 0.25),
        (RewardSpec.COVERAGE_BASIS_KERNELGYM, 0.1),
    ],
)
def test_coverage_basis(basis: RewardSpec.CoverageBasis.ValueType, share: float) -> None:
    parts = score(result("CORRECT"), RewardSpec(coverage_weight=2, coverage_basis=basis))[1]
    assert (parts.paid_coverage, parts.coverage) == (share, 2 * share)


@pytest.mark.parametrize(
    ("told", "paid"), [("NaN", 0), ("Infinity", 0), ("-Infinity", 0), (-3, 0), (1.5, 1), (0.5, 0.5)]
)
def test_coverage_that_a_candidate_made_up_stays_a_share(told: Any, paid: float) -> None:
    profile = {**RESULTS["CORRECT"]["profile"], "device_time_coverage": told}
    assert score(result("CORRECT", profile=profile), RewardSpec())[1].paid_coverage == paid


def test_coverage_that_was_not_measured_pays_nothing() -> None:
    reward, parts = score(result("CORRECT", profile=None, coverage=None), RewardSpec())
    assert (reward, parts.coverage, parts.paid_coverage) == (0.5 + 0.75, 0, 0)


@pytest.mark.parametrize("speedup", ["NaN", "Infinity", -1.0])
def test_a_speedup_that_is_no_number_is_not_paid(speedup: Any) -> None:
    broken = result("CORRECT", speedup=speedup)
    assert score(broken, RewardSpec()) == (None, RewardParts())
    assert score(result("CORRECT"), RewardSpec(), broken) == (None, RewardParts())
    assert score(broken, RewardSpec(), result("CORRECT")) == (None, RewardParts())


def test_a_time_that_was_asked_for_and_not_measured_pays_nothing_and_never_the_other_time() -> None:
    older, spec = result("CORRECT"), RewardSpec(speedup_kind=SPEEDUP_KIND_END_TO_END)
    assert score(older, spec) == (None, RewardParts())
    assert not anomalous(result("CORRECT", speedup=9.0), spec)
    said = result("CORRECT", speedup_kind="SPEEDUP_KIND_END_TO_END")
    assert score(said, RewardSpec(preset="tiers")) == (None, RewardParts())
    for first, second in ((older, both_times()), (both_times(), older)):
        assert score(first, spec, second) == (None, RewardParts()), "nor where one of two lacks it"
    low = RewardSpec(speedup_kind=SPEEDUP_KIND_END_TO_END, speedup_basis=RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW)
    assert score(older, low) == (None, RewardParts())
    plain = RewardSpec(speedup_kind=SPEEDUP_KIND_END_TO_END, speedup_weight=0, coverage_weight=0)
    assert score(older, plain)[0] == 0.5, "a spec that pays nothing for speed does not miss it"
    assert score(said, RewardSpec(speedup_kind=SPEEDUP_KIND_DEVICE))[1].paid_speedup == 1.5


def test_what_was_not_timed_at_all_is_paid_as_ever() -> None:
    untimed = result("CORRECT", speedup=0, speedup_interval=None, candidate_timing=None, reference_timing=None)
    for kind in (SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END):
        assert score(untimed, RewardSpec(preset="kevin", speedup_kind=kind))[0] == 0.3
        assert score(untimed, RewardSpec(preset="tiers", speedup_kind=kind))[0] == -0.1


@pytest.mark.parametrize("speedup", ["NaN", "Infinity", -1.0])
def test_an_end_to_end_speedup_that_is_no_number_is_not_paid(speedup: Any) -> None:
    broken = both_times(end_to_end_speedup=speedup)
    assert score(broken, RewardSpec(speedup_kind=SPEEDUP_KIND_END_TO_END)) == (None, RewardParts())
    assert score(broken, RewardSpec())[1].paid_speedup == 1.5


def test_a_candidate_that_cannot_be_queued_ahead_is_paid_no_more_than_beside_the_queued_reference() -> None:
    """Finding T31: 40 us is 3x against 120 us as called, but 1.25x against 50 us of a reference queued ahead."""
    waits = both_times(3.0, 3.0, regime="REGIME_AS_CALLED", queued_seconds=5e-5)
    assert score(waits, RewardSpec(preset="kevin"))[1].paid_speedup == pytest.approx(1.25)
    assert score(waits, PRESETS["tiers"])[0] == 0.4, "tiers see it as well"
    assert score(waits, RewardSpec(speedup_floor=1.3, coverage_weight=0))[0] == 0.5, "and the floor"
    low = RewardSpec(preset="kevin", speedup_basis=RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW)
    assert score(waits, low)[1].paid_speedup == pytest.approx(1.25)
    slow = both_times(1.1, 1.1, regime="REGIME_AS_CALLED", queued_seconds=5e-5)
    assert score(slow, RewardSpec(preset="kevin"))[1].paid_speedup == 1.1, "it is a limit, not the speedup"
    ended = RewardSpec(preset="kevin", speedup_kind=SPEEDUP_KIND_END_TO_END)
    assert score(waits, ended)[1].paid_speedup == 3.0, "end to end both wait"
    fast = both_times(9.0, 9.0, regime="REGIME_AS_CALLED", queued_seconds=5e-5)
    assert not anomalous(fast, RewardSpec()), "what is not paid need not be measured again"
    assert anomalous(fast, RewardSpec(speedup_kind=SPEEDUP_KIND_END_TO_END))
    assert score(both_times(9.0), RewardSpec(remeasure_above=math.inf), waits)[1].paid_speedup == pytest.approx(1.25)


def test_the_speedup_that_counts_is_the_evaluations_unless_the_spec_says() -> None:
    ended = both_times(speedup_kind="SPEEDUP_KIND_END_TO_END")
    for verdict, spec, paid in (
        (both_times(), RewardSpec(preset="kevin"), 1.5),
        (ended, RewardSpec(preset="kevin"), 3.0),
        (both_times(), RewardSpec(preset="kevin", speedup_kind=SPEEDUP_KIND_END_TO_END), 3.0),
        (ended, RewardSpec(preset="kevin", speedup_kind=SPEEDUP_KIND_DEVICE), 1.5),
        (both_times(speedup_kind=None), RewardSpec(preset="kevin"), 1.5),
    ):
        assert score(verdict, spec)[1].paid_speedup == paid
    assert score(ended, PRESETS["tiers"])[0] == 1.0
    low = RewardSpec(preset="kevin", speedup_basis=RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW)
    assert score(ended, low)[1].paid_speedup == 2.9
    assert score(ended, RewardSpec(speedup_clip=2))[1].paid_speedup == 2.0
    assert anomalous(both_times(end_to_end=3.5, speedup_kind="SPEEDUP_KIND_END_TO_END"), RewardSpec())
    assert not anomalous(both_times(end_to_end=3.5), RewardSpec())
    again = both_times(9.0, 2.0, speedup_kind="SPEEDUP_KIND_END_TO_END")
    assert score(ended, RewardSpec(preset="kevin"), again)[1].paid_speedup == 2.0, "the smaller one of that time"


def test_a_sum_that_overflows_is_not_paid() -> None:
    spec = RewardSpec(preset="kevin", speedup_weight=1e6)
    assert score(result("CORRECT", speedup=1.7e308), spec) == (None, RewardParts())


@pytest.mark.parametrize(
    ("changes", "spec", "again"),
    [
        ({"speedup": 3.0}, RewardSpec(), False),
        ({"speedup": 3.01}, RewardSpec(), True),
        ({"speedup": "Infinity"}, RewardSpec(), True),
        ({"speedup": 1e9}, RewardSpec(remeasure_above=math.inf), False),
        ({"speedup": 1e-3}, RewardSpec(remeasure_above=0), True),
        ({"speedup": 9.0}, RewardSpec(speedup_weight=0), False),
        ({"speedup": 9.0}, RewardSpec(preset="tiers"), True),
        ({"speedup": 9.0}, RewardSpec(speedup_basis=RewardSpec.SPEEDUP_BASIS_INTERVAL_LOW), False),
    ],
)
def test_anomalous(changes: dict[str, Any], spec: RewardSpec, again: bool) -> None:
    assert anomalous(result("CORRECT", **changes), spec) is again
    assert not anomalous(result("INCORRECT", **changes), spec)


def test_the_smaller_of_two_is_paid() -> None:
    first, second = result("CORRECT", speedup=2.8), result("CORRECT", speedup=1.2)
    assert score(first, RewardSpec(), second)[1].paid_speedup == 1.2
    assert score(second, RewardSpec(), first)[1].paid_speedup == 1.2
    lower = {**RESULTS["CORRECT"]["profile"], "device_time_coverage": 0.05}
    assert score(first, RewardSpec(), result("CORRECT", profile=lower))[1].paid_coverage == 0.05
    assert score(first, RewardSpec(), result("CORRECT", profile=None))[1].paid_coverage == 0.4


@pytest.mark.parametrize("outcome", RESULTS)
def test_outcome_of_the_second_counts(outcome: str) -> None:
    spec = PRESETS["tiers"]
    first, second = result("CORRECT", speedup=9.0), result(outcome)
    if outcome == "CORRECT":
        assert score(first, spec, second)[0] == 0.6
    else:
        assert score(first, spec, second) == score(second, spec)
        assert score(second, spec, first) == score(second, spec), "nothing rescues a first one that failed"


def test_a_malformed_spec_is_named() -> None:
    for call in (score, anomalous):
        with pytest.raises(InvalidRequestError, match=r"reward\.speedup_clip"):
            call(result("CORRECT"), RewardSpec(speedup_clip=0))


def test_nothing_is_changed() -> None:
    first, second, spec = result("CORRECT"), result("CORRECT", speedup=1), RewardSpec(preset="kevin")
    before = [message.SerializeToString(deterministic=True) for message in (first, second, spec)]
    score(first, spec, second)
    assert before == [message.SerializeToString(deterministic=True) for message in (first, second, spec)]


_weights = st.floats(-10, 10)
_specs = st.builds(
    RewardSpec,
    preset=st.sampled_from(list(PRESETS)),
    correctness_weight=_weights,
    speedup_weight=_weights,
    coverage_weight=_weights,
    speedup_clip=st.floats(0.1, 10),
    speedup_floor=st.floats(0, 3),
    incorrect_reward=_weights,
    failure_reward=_weights,
    rejected_reward=_weights,
    tiers=st.lists(st.floats(0, 8), max_size=5, unique=True).map(
        lambda speedups: [SpeedupTier(min_speedup=at, bonus=at - 3) for at in sorted(speedups)]
    ),
)
_speedups = st.floats(0, 1e6)


@given(_specs, st.sampled_from(sorted(RESULTS)), _speedups, st.none() | st.floats(0, 1), st.none() | _speedups)
def test_rewards_lie_in_the_documented_range(
    spec: RewardSpec, outcome: str, speedup: float, coverage: float | None, again: float | None
) -> None:
    profile = None if coverage is None else {"kernelgym_coverage": coverage, "device_time_coverage": coverage}
    first = result(outcome, speedup=speedup, profile=profile)
    second = None if again is None else result("CORRECT", speedup=again, profile=profile)
    reward, parts = score(first, spec, second)
    whole = effective(spec)
    if reward is None:
        assert outcome in ("INFRASTRUCTURE_ERROR", "REFERENCE_ERROR", "PROBLEM_TOO_LARGE")
    elif outcome != "CORRECT":
        assert reward in (whole.incorrect_reward, whole.failure_reward, whole.rejected_reward)
    else:
        terms = [(whole.speedup_weight * whole.speedup_clip, 0.0), (whole.coverage_weight, 0.0)]
        terms.append((0.0, *(tier.bonus for tier in whole.tiers)))
        low = whole.correctness_weight + sum(min(term) for term in terms)
        high = whole.correctness_weight + sum(max(term) for term in terms)
        assert low - 1e-9 <= reward <= high + 1e-9
        assert parts.paid_speedup <= min(whole.speedup_clip, speedup if again is None else min(speedup, again))
        assert 0 <= parts.paid_coverage <= 1
        assert reward == parts.correctness + parts.speedup + parts.coverage + parts.tier + parts.fixed


@given(_speedups, _speedups)
def test_faster_never_pays_less_under_the_presets(one: float, other: float) -> None:
    slow, fast = sorted((one, other))
    for preset in PRESETS.values():
        low, high = (score(result("CORRECT", speedup=speedup), preset)[0] for speedup in (slow, fast))
        assert low is not None
        assert high is not None
        assert low <= high
        assert low > max(preset.incorrect_reward, preset.failure_reward, preset.rejected_reward)
