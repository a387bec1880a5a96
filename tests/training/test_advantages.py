"""Tests of the estimators by hand: groups of different size, masked members, a group of one, padding at the start,
refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kerneldyno.training.advantages import (
    ESTIMATORS,
    estimate,
    grpo,
    optimal_baseline,
    reinforce_pp,
    remax,
    rloo,
    rloo_norm,
    score_norms,
    to_tokens,
    trloo,
    trloo_norm,
)
from kerneldyno.training.errors import GroupError, MaskError, NotFiniteError, OptionError, ShapeError, TrainingError
from kerneldyno.training.masks import turn_index

pytestmark = pytest.mark.pure

#: Two prompts: 7 with three samples, 3 with two; the last turn of the third sample was not played.
RETURNS = torch.tensor([[3.0, 1.0], [6.0, 2.0], [9.0, 50.0], [1.0, 0.0], [2.0, 8.0]])
MASK = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]])
GROUP = torch.tensor([7, 7, 7, 3, 3])


def near(found: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-6)


def test_trloo_by_hand() -> None:
    near(trloo(RETURNS, MASK, GROUP), [[-4.5, -1.0], [0.0, 1.0], [4.5, 0.0], [-1.0, -8.0], [1.0, 8.0]])


def test_grpo_by_hand() -> None:
    near(grpo(RETURNS, MASK, GROUP), [[-3.0, -0.5], [0.0, 0.5], [3.0, 0.0], [-0.5, -4.0], [0.5, 4.0]])
    half = math.sqrt(0.5)
    near(
        grpo(RETURNS, MASK, GROUP, normalize=True, eps=1e-12),
        [[-1.0, -half], [0.0, half], [1.0, 0.0], [-half, -half], [half, half]],
    )


def test_a_group_without_variance_is_zero_not_nan() -> None:
    same = torch.full((3, 1), 2.0)
    mask, ids = torch.ones(3, 1).bool(), torch.zeros(3).long()
    assert grpo(same, mask, ids, normalize=True).tolist() == [[0.0], [0.0], [0.0]]
    with pytest.raises(TrainingError, match="above 0"):
        grpo(same, mask, ids, normalize=True, eps=0.0)
    assert trloo(same, mask, ids).tolist() == [[0.0], [0.0], [0.0]]


GROUPED = ["trloo", "trloo_norm", "grpo", "turn_independent_grpo", "rloo", "rloo_norm", "optimal_baseline"]


@pytest.mark.parametrize("name", GROUPED)
def test_group_of_one(name: str) -> None:
    mask = torch.tensor([[1, 1], [1, 0]])
    returns = torch.tensor([[3.0, 5.0], [1.0, math.nan]])
    ids = torch.tensor([0, 1]) if name.startswith("rloo") else torch.tensor([4, 4])
    alone = ESTIMATORS[name](returns, mask, ids)
    assert alone[0, 1] == (3.0 if name.startswith("rloo") else 5.0)
    assert alone[1, 1] == 0
    assert ESTIMATORS[name](returns, mask, ids, singleton="zero")[0, 1] == 0


def test_rloo_by_hand() -> None:
    near(rloo(RETURNS, MASK, GROUP), [[-4.5, -4.5], [0.0, 0.0], [4.5, 0.0], [-1.0, -1.0], [1.0, 1.0]])


def test_rloo_takes_the_first_turn_that_counts() -> None:
    returns = torch.tensor([[0.0, 4.0], [6.0, 1.0], [0.0, 0.0]])
    mask = torch.tensor([[0, 1], [1, 1], [0, 0]])
    near(rloo(returns, mask, torch.zeros(3).long()), [[0.0, -2.0], [2.0, 2.0], [0.0, 0.0]])


def test_reinforce_pp_is_white() -> None:
    found = reinforce_pp(RETURNS, MASK, GROUP)
    inside = found[MASK.bool()]
    assert inside.mean().abs() < 1e-6
    assert inside.std() == pytest.approx(1.0, abs=1e-6)
    assert found[2, 1] == 0


def test_reinforce_pp_weighs_by_tokens() -> None:
    returns, mask = torch.tensor([[1.0], [4.0]]), torch.ones(2, 1).bool()
    found = reinforce_pp(returns, mask, torch.zeros(2).long(), tokens=torch.tensor([[2], [1]]))
    deviation = math.sqrt((2 * 1 + 4) / 2)  # tokens 1, 1, 4: mean 2
    near(found, [[-1 / deviation], [2 / deviation]])
    assert reinforce_pp(returns[:1], mask[:1], torch.zeros(1).long()).tolist() == [[0.0]]


def test_normalised_leave_one_out_by_hand() -> None:
    half = math.sqrt(0.5)
    near(
        trloo_norm(RETURNS, MASK, GROUP, eps=1e-12),
        [[-1.5, -2 * half], [0.0, 2 * half], [1.5, 0.0], [-2 * half] * 2, [2 * half] * 2],
    )
    near(
        rloo_norm(RETURNS, MASK, GROUP, eps=1e-12),
        [[-1.5, -1.5], [0.0, 0.0], [1.5, 0.0], [-2 * half] * 2, [2 * half] * 2],
    )
    same = torch.full((3, 1), 2.0)
    assert trloo_norm(same, torch.ones(3, 1).bool(), torch.zeros(3).long()).tolist() == [[0.0]] * 3
    for estimator in (trloo_norm, rloo_norm):
        with pytest.raises(TrainingError, match="must be above 0"):
            estimator(RETURNS, MASK, GROUP, eps=0.0)


def test_remax_takes_the_greedy_return_away() -> None:
    greedy = torch.tensor([4.0, 4.0, 4.0, 1.0, 1.0])
    by_hand = [[-1.0, -3.0], [2.0, -2.0], [5.0, 0.0], [0.0, -1.0], [1.0, 7.0]]
    near(remax(RETURNS, MASK, GROUP, greedy=greedy), by_hand)
    near(remax(RETURNS, MASK, GROUP, greedy=greedy[:, None].expand(5, 2)), by_hand)
    near(estimate("remax", RETURNS, MASK, GROUP, gamma=0.0, greedy=greedy), by_hand)
    late = torch.tensor([[4.0, 1.0]] * 3 + [[1.0, 0.0]] * 2)
    assert remax(RETURNS, MASK, GROUP, greedy=late)[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0, 8.0]


def test_remax_refuses_a_baseline_that_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="greedy has shape"):
        remax(RETURNS, MASK, GROUP, greedy=torch.zeros(4))
    with pytest.raises(NotFiniteError, match="greedy"):
        remax(RETURNS, MASK, GROUP, greedy=torch.full((5,), math.nan))
    unused = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, math.nan], [0.0, 0.0], [0.0, 0.0]])
    assert remax(RETURNS, MASK, GROUP, greedy=unused).isfinite().all()  # that turn was not played


def test_optimal_baseline_by_hand() -> None:
    tokens = torch.tensor([[1, 1], [2, 3], [5, 99], [1, 4], [1, 4]])
    found = optimal_baseline(RETURNS, MASK, GROUP, weights=tokens)
    # First turn of prompt 7: returns 3, 6, 9 with weights 1, 2, 5; the others' weighted means are 57/7, 8 and 5.
    near(found, [[3 - 57 / 7, -1.0], [-2.0, 1.0], [4.0, 0.0], [-1.0, -8.0], [1.0, 8.0]])
    published = optimal_baseline(RETURNS, MASK, GROUP, weights=tokens, leave_one_out=False)
    near(published, [[-4.5, -0.75], [-1.5, 0.25], [1.5, 0.0], [-0.5, -4.0], [0.5, 4.0]])


def test_optimal_baseline_with_equal_weights_is_trloo_and_grpo() -> None:
    for weights in (None, torch.full((5,), 3.0), torch.zeros(5, 2)):
        near(optimal_baseline(RETURNS, MASK, GROUP, weights=weights), trloo(RETURNS, MASK, GROUP).tolist())
        mean = optimal_baseline(RETURNS, MASK, GROUP, weights=weights, leave_one_out=False)
        near(mean, grpo(RETURNS, MASK, GROUP).tolist())


def test_optimal_baseline_refuses_what_is_no_weight() -> None:
    with pytest.raises(ShapeError, match="weights has shape"):
        optimal_baseline(RETURNS, MASK, GROUP, weights=torch.ones(5, 3))
    with pytest.raises(TrainingError, match="below 0"):
        optimal_baseline(RETURNS, MASK, GROUP, weights=-torch.ones(5, 2))
    with pytest.raises(NotFiniteError, match="weights"):
        optimal_baseline(RETURNS, MASK, GROUP, weights=torch.full((5, 2), math.inf))


def test_score_norms_are_those_of_autograd() -> None:
    """They are the squared norms of the gradient by the logits of each token, summed over the tokens of a turn."""
    logits = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    written = torch.tensor([[0, 1, 2, 3], [5, 4, 3, 2]])
    turns = torch.tensor([[0, 0, -1, 1], [0, 1, 1, -1]])
    log_probs = logits.log_softmax(-1).gather(2, written[..., None])[..., 0]
    squares = logits.softmax(-1).square().sum(-1)
    found = score_norms(log_probs.detach(), squares.detach(), turns >= 0, turns=turns)
    gradient = torch.autograd.grad(log_probs.sum(), logits)[0].square().sum(-1)
    expected = [[gradient[0, :2].sum(), gradient[0, 3]], [gradient[1, 0], gradient[1, 1:3].sum()]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    rows = score_norms(log_probs.detach(), squares.detach(), turns >= 0)
    torch.testing.assert_close(rows[:, 0], found.sum(dim=1))


def test_score_norms_refuse_what_does_not_fit() -> None:
    good, mask = torch.full((2, 3), -1.0), torch.ones(2, 3).bool()
    with pytest.raises(ShapeError, match="sum_pi_squared"):
        score_norms(good, good[:1], mask)
    with pytest.raises(NotFiniteError, match="sum_pi_squared"):
        score_norms(good, good * math.nan, mask)
    assert score_norms(good, good * math.nan, torch.zeros(2, 3).bool()).tolist() == [[0.0], [0.0]]


def test_padding_at_the_start_groups_by_turn_not_by_column() -> None:
    """One sample has one turn, the other two; padding at the start puts their first turns into different columns."""
    exists = torch.tensor([[0, 1], [1, 1]])
    returns = torch.tensor([[math.nan, 4.0], [2.0, 9.0]])
    near(trloo(returns, exists, torch.zeros(2).long(), turn=turn_index(exists)), [[0.0, 2.0], [-2.0, 9.0]])


def test_estimate_goes_from_rewards() -> None:
    rewards = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    mask, ids = torch.ones(2, 2).bool(), torch.zeros(2).long()
    near(estimate("reinforce", rewards, mask, ids, gamma=0.5), [[2.0, 2.0], [3.0, 0.0]])
    near(estimate("turn_independent_grpo", rewards, mask, ids, normalize=False), [[-1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(OptionError, match="'trloo', 'trloo_norm', 'grpo'"):
        estimate("gae", rewards, mask, ids)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_refusals(name: str) -> None:
    estimator = ESTIMATORS[name]
    with pytest.raises(ShapeError):
        estimator(RETURNS, MASK[:, :1], GROUP)
    with pytest.raises(MaskError):
        estimator(RETURNS, MASK.float(), GROUP)
    with pytest.raises(NotFiniteError):
        estimator(RETURNS / 0, MASK, GROUP)
    if name.startswith("reinforce"):  # these ignore groups
        return
    with pytest.raises(GroupError, match="integer id"):
        estimator(RETURNS, MASK, GROUP.float())
    with pytest.raises(GroupError, match=r"expected \(5,\)"):
        estimator(RETURNS, MASK, GROUP[:3])
    with pytest.raises(OptionError, match="singleton"):
        estimator(RETURNS, MASK, GROUP, singleton="mean")
    if not name.startswith("rloo"):
        with pytest.raises(ShapeError, match="turn has shape"):
            estimator(RETURNS, MASK, GROUP, turn=torch.zeros(5, 3).long())
        with pytest.raises(TrainingError, match="within 0"):
            estimator(RETURNS, MASK, GROUP, turn=torch.full((5, 2), -1))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_is_not_an_error(name: str, shape: tuple[int, int]) -> None:
    found = ESTIMATORS[name](torch.zeros(shape), torch.zeros(shape).bool(), torch.zeros(shape[0]).long())
    assert found.shape == shape


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_masked_is_all_zero(name: str) -> None:
    found = ESTIMATORS[name](torch.full((4, 2), math.nan), torch.zeros(4, 2).bool(), torch.zeros(4).long())
    assert found.tolist() == [[0.0, 0.0]] * 4


def test_to_tokens_of_both_layouts() -> None:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    turns = torch.tensor([[-1, 0, 0, -1, 1], [0, -1, -1, -1, -1]])
    assert to_tokens(table, turns).tolist() == [[0, 1, 1, 0, 2], [3, 0, 0, 0, 0]]
    rows = to_tokens(table, torch.tensor([1, 0, -1]), episodes=torch.tensor([0, 1, 1]))
    assert rows.tolist() == [[2.0], [3.0], [0.0]]
    assert to_tokens(table > 1, turns).dtype == torch.bool


def test_to_tokens_refuses_what_the_table_does_not_have() -> None:
    table = torch.ones(2, 2)
    with pytest.raises(ShapeError, match="3 turns"):
        to_tokens(table, torch.tensor([[0, 2], [0, 1]]))
    with pytest.raises(ShapeError, match="2 rows"):
        to_tokens(table, torch.zeros(3, 5).long())
    with pytest.raises(MaskError):
        to_tokens(table, torch.zeros(2, 5))
