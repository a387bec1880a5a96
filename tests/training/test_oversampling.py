"""Tests of oversampling of groups: refusals, order, which groups were dropped and why, how many are asked for."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldyno.training.errors import GroupError, NotFiniteError, ShapeError, TrainingError
from kerneldyno.training.oversampling import Oversampler, select_groups
from tests import sampling

pytestmark = pytest.mark.pure

#: Groups 9 (scores differ), 2 (equal), 5 (one sample), 7 (differ), 4 (differ), in this order.
GROUP = torch.tensor([9, 9, 2, 2, 5, 7, 7, 4, 9, 4])
SCORES = torch.tensor([1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 2.0, 1.0, 1.0, 0.0])


def test_what_cannot_be_selected_from_is_refused() -> None:
    with pytest.raises(TrainingError, match="wanted=0"):
        select_groups(SCORES, GROUP, 0)
    with pytest.raises(TrainingError, match="min_size=0"):
        select_groups(SCORES, GROUP, 1, min_size=0)
    with pytest.raises(GroupError):
        select_groups(SCORES, GROUP[:3], 1)
    with pytest.raises(ShapeError):
        select_groups(SCORES, GROUP, 1, mask=torch.ones(3).bool())
    with pytest.raises(NotFiniteError):
        select_groups(SCORES / 0, GROUP, 1)


@pytest.mark.parametrize(
    "options", [{"wanted": 0}, {"factor": 0.9}, {"factor": math.inf}, {"most": 3}, {"threshold": -1.0}, {"min_size": 0}]
)
def test_an_oversampler_refuses_before_anything_is_sampled(options: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(options))):
        Oversampler(**({"wanted": 4} | options))


def test_an_oversampler_refuses_what_was_not_asked_for() -> None:
    sampler: Oversampler[None] = Oversampler(2, factor=1.0)
    with pytest.raises(TrainingError, match="group 0 was not asked for"):
        sampler.add(0, [1.0, 0.0], None)
    assert list(sampler.ask()) == [0, 1]
    with pytest.raises(TrainingError, match="2 groups of the last round are missing: add them before asking"):
        sampler.ask()
    with pytest.raises(TrainingError, match="before taking"):
        sampler.take()
    with pytest.raises(TrainingError, match="NaN or infinite; give None for a sample without a score"):
        sampler.add(0, [1.0, math.nan], None)
    sampler.add(0, [1.0, 0.0], None)
    with pytest.raises(TrainingError, match="added before"):
        sampler.add(0, [1.0, 0.0], None)


def test_the_first_good_groups_are_kept_in_order_of_their_first_episode() -> None:
    found = select_groups(SCORES, GROUP, 2)
    assert (found.kept, found.no_variance, found.too_small, found.surplus) == ([9, 7], [2], [5], [4])
    assert found.keep.tolist() == [one in (9, 7) for one in GROUP.tolist()]
    assert found.summary() == "2 of 5 groups kept; dropped: 1 with equal rewards, 1 too small, 1 surplus"
    every = select_groups(SCORES, GROUP, 9)
    assert (every.kept, every.surplus) == ([9, 7, 4], [])


def test_masked_episodes_are_no_members_and_are_not_kept() -> None:
    mask = torch.tensor([0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    found = select_groups(torch.where(mask.bool(), SCORES, math.nan), GROUP, 5, mask=mask)
    assert found.kept == [9, 7, 4]
    assert not found.keep[0]
    assert found.keep[1]


def test_nothing_to_select_from() -> None:
    found = select_groups(torch.zeros(0), torch.zeros(0).long(), 3)
    assert (found.keep.shape, found.kept, found.surplus) == ((0,), [], [])


def test_rounds_ask_for_what_is_missing_and_stop_when_there_is_enough() -> None:
    sampler: Oversampler[str] = Oversampler(4, factor=1.5)
    first = sampler.ask()
    assert list(first) == [0, 1, 2, 3, 4, 5]
    for number in reversed(first):  # groups may become ready in any order
        sampler.add(number, [1.0, 1.0] if number in (0, 2, 3) else [0.0, float(number)], f"group {number}")
    assert list(sampler.ask()) == [6, 7]  # 1, 4 and 5 are good, so one is missing: 1.5 times one, rounded up
    sampler.add(7, [0.0, 1.0], "group 7")
    sampler.add(6, [0.0, 1.0], "group 6")
    assert list(sampler.ask()) == []
    taken = sampler.take()
    assert taken.groups == ["group 1", "group 4", "group 5", "group 6"]
    assert (taken.no_variance, taken.too_small, taken.surplus, taken.missing) == ([0, 2, 3], [], [7], 0)
    assert taken.summary() == "4 of 8 groups kept; dropped: 3 with equal rewards, 0 too small, 1 surplus"


def test_the_limit_ends_it_and_what_is_missing_is_said() -> None:
    sampler: Oversampler[int] = Oversampler(2, factor=2.0, most=5, min_size=2)
    while numbers := sampler.ask():
        for number in numbers:
            sampler.add(number, [[], [None, 1.0], [0.5, 0.5], [None, None], [0.0, 1.0]][number], number)
    taken = sampler.take()
    assert (taken.groups, taken.missing) == ([4], 1)
    assert (taken.no_variance, taken.too_small) == ([2], [0, 1, 3])
    assert taken.summary().endswith("3 too small, 0 surplus; 1 fewer than wanted")


@settings(max_examples=sampling.examples(80))
@given(
    st.lists(st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), max_size=4), min_size=24, max_size=24),
    st.integers(1, 6),
    st.floats(1, 3),
    st.integers(0, 10**6),
)
def test_against_a_plain_loop(played: list[list[float | None]], wanted: int, factor: float, seed: int) -> None:
    """In any order of completion, the first good groups by number are kept, and the result accounts for all groups."""

    def good(scores: list[float | None]) -> bool:
        there = [score for score in scores if score is not None]
        return len(there) >= 2 and len(set(there)) > 1

    results = []
    for shuffled in (False, True):
        sampler: Oversampler[int] = Oversampler(wanted, factor=factor)
        asked = 0
        while numbers := list(sampler.ask()):
            if shuffled:
                random.Random(seed).shuffle(numbers)
            for number in numbers:
                sampler.add(number, played[number], number)
            asked += len(numbers)
        results.append(sampler.take())
        assert asked <= 4 * wanted
    assert results[0] == results[1]
    taken = results[0]
    expected = [number for number in range(asked) if good(played[number])]
    assert taken.groups == taken.kept == expected[:wanted]
    assert taken.surplus == expected[wanted:]
    assert sorted(taken.kept + taken.surplus + taken.no_variance + taken.too_small) == list(range(asked))
    assert taken.missing == 0 or asked == 4 * wanted


def test_dropping_groups_without_variance_keeps_the_direction() -> None:
    """One prompt, two arms: the mean gradient of the kept groups is the true one divided by their share."""
    p, samples = 0.9, 3
    outcomes = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * samples)
    probability = torch.where(outcomes > 0, p, 1 - p).prod(dim=1)
    group = torch.arange(len(outcomes)).repeat_interleave(samples)
    found = select_groups(outcomes.flatten(), group, len(outcomes))
    kept = found.keep.reshape(-1, samples)[:, 0]
    # Leave-one-out advantages, times d log pi / d logit of each sample.
    advantages = (outcomes - outcomes.mean(1, keepdim=True)) * samples / (samples - 1)
    gradient = (advantages * (outcomes - p)).mean(1)
    share = float(probability[kept].sum())
    assert share == pytest.approx(1 - p**samples - (1 - p) ** samples)
    mean = float((probability * gradient)[kept].sum()) / share
    assert mean == pytest.approx(p * (1 - p) / share, rel=1e-5)
