"""Tests of masks: void turns, turn numbers with padding on either side, and turns found in a response mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kerneldyno.training.errors import MaskError, OptionError, ShapeError
from kerneldyno.training.masks import align, turn_index, turn_mask, turns_of

pytestmark = pytest.mark.pure


def bits(mask: Tensor) -> list[list[int]]:
    return mask.int().tolist()


def test_void_turns_regress_after_a_success() -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.5, 2.0], [2.0, -1.0, 0.1], [-1.0, 0.0, -2.0]])
    exists = torch.ones(5, 3).bool()
    assert bits(turn_mask(rewards, exists)) == [[1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert turn_mask(rewards, exists, void_turns=False).all()


def test_void_turns_with_padding_at_the_start() -> None:
    rewards = torch.tensor([[math.nan, 1.0, 0.0], [math.nan, math.nan, 0.0]])
    assert bits(turn_mask(rewards, torch.tensor([[0, 1, 1], [0, 0, 1]]))) == [[0, 1, 0], [0, 0, 1]]


def test_a_success_that_is_padding_voids_nothing() -> None:
    assert bits(turn_mask(torch.tensor([[5.0, 0.0]]), torch.tensor([[0, 1]]))) == [[0, 1]]


def test_failed_episodes_count_for_nothing_and_need_no_rewards() -> None:
    rewards = torch.tensor([[math.nan, 1.0], [1.0, 1.0]])
    assert bits(turn_mask(rewards, torch.ones(2, 2).bool(), failed=torch.tensor([True, False]))) == [[0, 0], [1, 1]]


def test_turn_index_on_either_side() -> None:
    exists = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    assert turn_index(exists).tolist() == [[0, 1, -1], [-1, 0, 1], [-1, -1, -1]]


def test_align_keeps_the_order() -> None:
    table = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 9.0], [9.0, 4.0, 9.0]])
    exists = torch.tensor([[0, 1, 1], [1, 0, 0], [0, 1, 0]])
    moved, there = align(table, exists, "right"), align(exists, exists, "right")
    assert bits(there) == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert moved[there.bool()].tolist() == [1.0, 2.0, 3.0, 4.0]
    back = align(moved, there, "left")
    assert bits(align(there, there, "left")) == [[0, 1, 1], [0, 0, 1], [0, 0, 1]]
    assert back[0, 1:].tolist() == [1.0, 2.0]
    with pytest.raises(OptionError, match="'left', 'right'"):
        align(table, exists, "middle")  # type: ignore[arg-type]


def test_turns_are_runs_of_ones() -> None:
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    assert turns_of(mask).tolist() == [
        [0, 0, -1, 1, -1, -1],
        [-1, -1, 0, -1, 1, 1],
        [-1] * 6,
        [0] * 6,
    ]
    assert turns_of(mask.bool()).dtype == torch.int64


def test_turns_refuses() -> None:
    with pytest.raises(ShapeError):
        turns_of(torch.ones(4).bool())
    with pytest.raises(MaskError):
        turns_of(torch.ones(4, 4))
    assert turns_of(torch.ones(0, 4).bool()).shape == (0, 4)
    assert turns_of(torch.ones(4, 0).bool()).shape == (4, 0)
