"""Tests of the filters: groups without a signal are dropped, with the reason."""

from __future__ import annotations

import math

import pytest
import torch

from kerneldyno.training.errors import GroupError, NotFiniteError, TrainingError
from kerneldyno.training.filters import last_turn, zero_variance

pytestmark = pytest.mark.pure


def test_flat_and_small_groups_are_dropped_with_their_reason() -> None:
    group = torch.tensor([9, 9, 9, 4, 4, 4, 2, 2, 1])
    scores = torch.tensor([1.0, 1.0, 1.0, 0.0, 2.0, 0.0, 0.0, 5.0, 7.0])
    found = zero_variance(scores, group, min_size=3)
    assert found.keep.tolist() == [False] * 3 + [True] * 3 + [False] * 3
    assert (found.kept, found.no_variance, found.too_small) == ([4], [9], [1, 2])


def test_threshold() -> None:
    scores, group = torch.tensor([0.0, 0.0019, 0.0, 0.0021]), torch.tensor([0, 0, 1, 1])  # std: half the difference
    found = zero_variance(scores, group)
    assert (found.kept, found.no_variance) == ([1], [0])


def test_masked_episodes_are_no_members() -> None:
    scores, group = torch.tensor([1.0, 1.0, math.nan, 3.0, 4.0]), torch.tensor([0, 0, 0, 1, 1])
    found = zero_variance(scores, group, mask=torch.tensor([1, 1, 0, 1, 0]))
    assert not found.keep.any()
    assert (found.no_variance, found.too_small) == ([0], [1])


def test_a_masked_episode_of_a_kept_group_is_not_kept() -> None:
    scores, group = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0, 0, 0])
    found = zero_variance(scores, group, mask=torch.tensor([1, 1, 0]), min_size=1)
    assert found.keep.tolist() == [True, True, False]
    assert (found.kept, found.no_variance, found.too_small) == ([0], [], [])


def test_last_turn_under_either_padding() -> None:
    rewards = torch.tensor([[1.0, 2.0, math.nan], [math.nan, 3.0, 4.0], [math.nan] * 3])
    assert last_turn(rewards, torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]])).tolist() == [2.0, 4.0, 0.0]


def test_nothing_and_refusals() -> None:
    found = zero_variance(torch.zeros(0), torch.zeros(0).long())
    assert (found.keep.tolist(), found.kept) == ([], [])
    assert last_turn(torch.zeros(2, 0), torch.zeros(2, 0).bool()).tolist() == [0.0, 0.0]
    with pytest.raises(NotFiniteError, match="scores"):
        zero_variance(torch.tensor([math.nan]), torch.tensor([0]))
    with pytest.raises(GroupError):
        zero_variance(torch.zeros(2), torch.zeros(3).long())
    with pytest.raises(TrainingError, match="min_size"):
        zero_variance(torch.zeros(2), torch.zeros(2).long(), min_size=0)
