"""Tests of returns: by hand, and the effect of padding and masked turns."""

from __future__ import annotations

import pytest
import torch

from kerneldyno.training.errors import MaskError, NotFiniteError, ShapeError, TrainingError
from kerneldyno.training.returns import multi_turn_returns

pytestmark = pytest.mark.pure

REWARDS = torch.tensor([[1.0, 0.0, 4.0], [2.0, 2.0, 2.0]])
ALL = torch.ones(2, 3, dtype=torch.bool)


def test_by_hand() -> None:
    assert multi_turn_returns(REWARDS, ALL).tolist() == [[5.0, 4.0, 4.0], [6.0, 4.0, 2.0]]
    assert multi_turn_returns(REWARDS, ALL, 0.5).tolist() == [[2.0, 2.0, 4.0], [3.5, 3.0, 2.0]]
    assert torch.equal(multi_turn_returns(REWARDS, ALL, 0.0), REWARDS)


def test_padding_on_either_side_gives_the_same_returns() -> None:
    nan = float("nan")
    right = multi_turn_returns(
        torch.tensor([[1.0, 2.0, nan, nan]]), torch.tensor([[True, True, False, False]]), gamma=0.9
    )
    left = multi_turn_returns(torch.tensor([[nan, nan, 1.0, 2.0]]), torch.tensor([[0, 0, 1, 1]]), gamma=0.9)
    assert torch.equal(right[:, :2], left[:, 2:])
    assert right[0, 2:].tolist() == [0.0, 0.0]
    assert left[0, :2].tolist() == [0.0, 0.0]


def test_masked_turn_earns_nothing_but_time_passes() -> None:
    mask = torch.tensor([[True, False, True], [True, True, True]])
    assert multi_turn_returns(REWARDS, mask, 0.5)[0].tolist() == [2.0, 0.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
def test_narrow_types_are_summed_wide(dtype: torch.dtype) -> None:
    many = torch.ones(1, 600, dtype=dtype)  # bfloat16 cannot count beyond 256
    found = multi_turn_returns(many, torch.ones(1, 600, dtype=torch.bool))
    assert found.dtype == torch.float32
    assert found[0, 0] == 600


def test_float64_stays() -> None:
    assert multi_turn_returns(REWARDS.double(), ALL).dtype == torch.float64


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"rewards has shape \(3,\)"):
        multi_turn_returns(REWARDS[0], ALL[0])
    with pytest.raises(ShapeError, match="mask has shape"):
        multi_turn_returns(REWARDS, ALL[:1])
    with pytest.raises(MaskError, match=r"pass mask\.bool\(\)"):
        multi_turn_returns(REWARDS, ALL.float())
    with pytest.raises(NotFiniteError, match="leave it out of the mask"):
        multi_turn_returns(torch.tensor([[1.0, float("nan"), 0.0], [0.0, 0.0, 0.0]]), ALL)
    with pytest.raises(NotFiniteError):
        multi_turn_returns(torch.tensor([[float("inf"), 0.0, 0.0], [0.0, 0.0, 0.0]]), ALL)
    for gamma in (-0.1, 1.1, float("nan")):
        with pytest.raises(TrainingError, match="gamma"):
            multi_turn_returns(REWARDS, ALL, gamma)


def test_nothing_is_not_an_error() -> None:
    assert multi_turn_returns(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool)).shape == (0, 3)
    assert multi_turn_returns(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)
