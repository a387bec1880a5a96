"""Properties that hold for every batch (order of rows, padding, masking, shifts), and comparisons with plain loops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kerneldyno.training.advantages import ESTIMATORS, optimal_baseline, to_tokens, trloo
from kerneldyno.training.masks import align, turn_index, turn_mask, turns_of
from kerneldyno.training.returns import multi_turn_returns
from tests import sampling
from tests.training import loops


@dataclass
class Case:
    values: Tensor
    mask: Tensor
    group: Tensor


@st.composite
def cases(draw: Any) -> Case:
    """Draw a table with holes anywhere, groups of any size with odd ids, and garbage where it is masked."""
    rows, turns = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    number = st.integers(-8, 8).map(lambda eighth: eighth / 8)
    values = torch.tensor([[draw(number) for _ in range(turns)] for _ in range(rows)], dtype=torch.float64)
    mask = torch.tensor([[draw(st.booleans()) for _ in range(turns)] for _ in range(rows)])
    group = torch.tensor([draw(st.sampled_from([-5, 0, 3, 10**12])) for _ in range(rows)])
    return Case(torch.where(mask, values, draw(st.sampled_from([math.nan, math.inf, 99.0]))), mask, group)


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
examples = settings(max_examples=sampling.examples(60))


@examples
@given(cases(), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_returns_against_loops(case: Case, gamma: float) -> None:
    expected = loops.returns(case.values.tolist(), case.mask.tolist(), gamma)
    near(multi_turn_returns(case.values, case.mask, gamma), torch.tensor(expected, dtype=torch.float64))


@examples
@given(cases())
def test_trloo_against_loops(case: Case) -> None:
    expected = loops.trloo(case.values.tolist(), case.mask.tolist(), case.group.tolist())
    near(trloo(case.values, case.mask, case.group), torch.tensor(expected, dtype=torch.float64))


@examples
@given(cases(), st.lists(st.sampled_from([0.0, 1.0, 2.0, 50.0]), min_size=32, max_size=32), st.booleans())
def test_optimal_baseline_against_loops(case: Case, drawn: list[float], leave_one_out: bool) -> None:
    rows, turns = case.values.shape
    weights = torch.tensor(drawn[: rows * turns], dtype=torch.float64).reshape(rows, turns)
    expected = loops.weighted_leave_one_out(
        case.values.tolist(), case.mask.tolist(), case.group.tolist(), weights.tolist(), leave_one_out=leave_one_out
    )
    found = optimal_baseline(case.values, case.mask, case.group, weights=weights, leave_one_out=leave_one_out)
    near(found, torch.tensor(expected, dtype=torch.float64))


@every_estimator
@examples
@given(case=cases(), source=st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(name: str, case: Case, source: Any) -> None:
    order = list(range(len(case.values)))
    source.shuffle(order)
    estimator = ESTIMATORS[name]
    near(
        estimator(case.values[order], case.mask[order], case.group[order]),
        estimator(case.values, case.mask, case.group)[order],
    )


@every_estimator
@examples
@given(case=cases(), left=st.integers(0, 2), right=st.integers(0, 2))
def test_padding_changes_nothing(name: str, case: Case, left: int, right: int) -> None:
    """Padding of any length on either side; `turn` gives the turn of each cell, because columns no longer do."""
    rows, turns = case.values.shape
    padded = torch.nn.functional.pad(case.values, (left, right), value=math.nan)
    mask = torch.nn.functional.pad(case.mask, (left, right))
    turn = torch.arange(-left, turns + right).expand(rows, -1)
    found = ESTIMATORS[name](padded, mask, case.group, turn=turn)
    near(found[:, left : left + turns], ESTIMATORS[name](case.values, case.mask, case.group))
    assert found[~mask].eq(0).all()


@every_estimator
@examples
@given(case=cases(), other=st.floats(-1e3, 1e3))
def test_what_is_masked_changes_nothing(name: str, case: Case, other: float) -> None:
    changed = torch.where(case.mask, case.values, other)
    estimator = ESTIMATORS[name]
    assert torch.equal(estimator(changed, case.mask, case.group), estimator(case.values, case.mask, case.group))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not name.startswith("reinforce")])
@examples
@given(case=cases(), shift=st.integers(-100, 100))
def test_a_constant_for_a_group_changes_nothing(name: str, case: Case, shift: int) -> None:
    """The baseline removes it wherever a group has other members."""
    estimator = ESTIMATORS[name]
    moved = torch.where((case.group == 0)[:, None], case.values + shift, case.values)
    near(
        estimator(moved, case.mask, case.group, singleton="zero"),
        estimator(case.values, case.mask, case.group, singleton="zero"),
    )


@pytest.mark.parametrize("name", ["trloo", "trloo_norm", "grpo", "turn_independent_grpo", "optimal_baseline"])
@examples
@given(case=cases())
def test_advantages_of_a_group_add_up_to_zero(name: str, case: Case) -> None:
    found = ESTIMATORS[name](case.values, case.mask, case.group, singleton="zero")
    for group in case.group.unique():
        near(found[case.group == group].sum(dim=0), torch.zeros(found.shape[1], dtype=torch.float64))


@every_estimator
@examples
@given(case=cases(), scale=st.sampled_from([0.5, 2.0, 10.0]))
def test_scaled_rewards_scale_advantages_unless_normalised(name: str, case: Case, scale: float) -> None:
    estimator = ESTIMATORS[name]
    if name in ("turn_independent_grpo", "reinforce_pp", "trloo_norm", "rloo_norm"):
        return
    near(estimator(case.values * scale, case.mask, case.group), estimator(case.values, case.mask, case.group) * scale)


@examples
@given(cases())
def test_alignment_from_rewards_to_advantages(case: Case) -> None:
    """Padding at the start of episodes, as in the release, and padding at the end give the same advantages in the same
    order."""
    exists = case.mask
    rewards = torch.where(exists, case.values, math.nan)
    kept = turn_mask(rewards, exists)
    start = trloo(multi_turn_returns(rewards, kept), kept, case.group, turn=turn_index(exists))
    packed, there = align(rewards, exists), align(exists, exists)
    counts = turn_mask(packed, there)
    assert torch.equal(counts[there], kept[exists])
    # gamma is 1 here: before `align` closes a hole in the middle of an episode, the hole counts as a step in time.
    end = trloo(multi_turn_returns(packed, counts), counts, case.group)
    near(end[there], start[exists])


@examples
@given(
    st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_turns_of_tokens_under_padding(rows: list[list[bool]], left: int, right: int) -> None:
    mask = torch.tensor(rows)
    padded = torch.nn.functional.pad(mask, (left, right))
    turns = turns_of(padded)
    assert torch.equal(turns[:, left : left + 6], turns_of(mask))
    assert torch.equal(turns >= 0, padded)
    table = torch.arange(len(rows) * 4, dtype=torch.float64).reshape(-1, 4) + 1
    spread = to_tokens(table, turns)
    for row in range(len(rows)):
        for token in range(padded.shape[1]):
            expected = table[row, turns[row, token]] if padded[row, token] else 0.0
            assert spread[row, token] == expected
