"""Proof by enumeration: TRLOO's expected gradient is the true one, GRPO's is (1 - 1/N) times it.

The task has states: the second turn's state depends on the first turn's action, rewards are arbitrary, and the policy
is a softmax over a table of logits. The tests enumerate all outcomes of a group of N episodes with their probabilities,
compute the library's advantages for all of them at once, and compare the expected gradient with autograd's gradient of
J. There is no sampling: the comparison is to 1e-10 in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from kerneldyno.training.advantages import ESTIMATORS, grpo, optimal_baseline, reinforce, remax, rloo, trloo, trloo_norm
from kerneldyno.training.masks import turn_mask
from kerneldyno.training.returns import multi_turn_returns

pytestmark = pytest.mark.pure

ACTIONS = 2
STATES = 1 + ACTIONS  # the first turn has one state, the second turn one state per first action
Estimator = Callable[..., Tensor]


class Task:
    """A task of two turns with two actions each. With `early_end`, action 0 of the first turn ends the episode, so that
    groups of the second turn vary in size."""

    def __init__(self, seed: int, early_end: bool, gamma: float = 0.9) -> None:
        source = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(STATES, ACTIONS, generator=source, dtype=torch.float64, requires_grad=True)
        self.rewards = torch.randn(STATES, ACTIONS, generator=source, dtype=torch.float64) * 2 + 1
        self.gamma = gamma
        # All episodes, each as (first action, second action, whether the second turn is played).
        played = [(a, b, not (early_end and a == 0)) for a in range(ACTIONS) for b in range(ACTIONS)]
        self.episodes = sorted({(a, b if second else 0, second) for a, b, second in played})
        self.state = torch.tensor([[0, 1 + a] for a, _, _ in self.episodes])
        self.action = torch.tensor([[a, b] for a, b, _ in self.episodes])
        self.mask = torch.tensor([[True, second] for _, _, second in self.episodes])
        self.reward = torch.where(self.mask, self.rewards[self.state, self.action], 0)
        self.returns = multi_turn_returns(self.reward, self.mask, gamma)

    def log_prob(self) -> Tensor:
        """Return log pi of each turn of each episode, (episodes, 2); 0 where no turn was played."""
        return torch.where(self.mask, self.logits.log_softmax(dim=-1)[self.state, self.action], 0)

    def true_gradient(self) -> Tensor:
        """Return d/d logits of J = E[G_1], by autograd through the probabilities."""
        value = (self.log_prob().sum(dim=1).exp() * self.returns[:, 0]).sum()
        return torch.autograd.grad(value, self.logits)[0]

    def gradient_by_turn(self) -> list[Tensor]:
        """Return each turn's part of the policy gradient. Discounting begins at the turn itself, as in the
        estimators."""
        probability = self.log_prob().sum(dim=1).exp().detach()
        return [
            torch.autograd.grad((probability * self.log_prob()[:, turn] * self.returns[:, turn]).sum(), self.logits)[0]
            for turn in range(2)
        ]

    def expected_gradient(self, estimator: Estimator, samples: int) -> list[Tensor]:
        """Return E[sum_i A_i,t grad log pi_i,t / samples] over all groups of `samples` episodes, for each turn."""
        chosen = torch.cartesian_prod(*[torch.arange(len(self.episodes))] * samples).reshape(-1, samples)
        cases = len(chosen)
        flat = chosen.flatten()  # each case is a group, so one call computes all cases
        group = torch.arange(cases).repeat_interleave(samples)
        advantages = estimator(self.returns[flat], self.mask[flat], group).reshape(cases, samples, 2)
        probability = self.log_prob().sum(dim=1).exp().detach()[chosen].prod(dim=1)
        return [
            torch.autograd.grad(
                (probability[:, None] * advantages[..., turn] * self.log_prob()[chosen][..., turn]).sum() / samples,
                self.logits,
            )[0]
            for turn in range(2)
        ]


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("samples", [2, 3, 4])
def test_trloo_is_unbiased_and_grpo_is_not(seed: int, samples: int) -> None:
    task = Task(seed, early_end=False)
    truth = task.gradient_by_turn()
    trloo_found, grpo_found = (task.expected_gradient(f, samples) for f in (trloo, grpo))
    for turn in range(2):
        assert truth[turn].abs().max() > 1e-3  # otherwise the comparison would show nothing
        assert_near(trloo_found[turn], truth[turn])
        assert_near(grpo_found[turn], (1 - 1 / samples) * truth[turn])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("estimator", [trloo, reinforce])
def test_the_sum_over_turns_is_the_gradient_of_the_objective(seed: int, estimator: Estimator) -> None:
    task = Task(seed, early_end=True, gamma=1.0)
    assert_near(sum(task.gradient_by_turn()), task.true_gradient())  # type: ignore[arg-type]
    assert_near(sum(task.expected_gradient(estimator, 3)), task.true_gradient())  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_rloo_is_unbiased_for_whole_episodes(seed: int) -> None:
    task = Task(seed, early_end=True, gamma=1.0)
    assert_near(sum(task.expected_gradient(rloo, 3)), task.true_gradient())  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("samples", [2, 3, 4])
def test_group_sizes_that_vary(seed: int, samples: int) -> None:
    """Episodes that end early leave groups of random size, 0 to N, in the second turn.

    Given the size n of a group, each member is a draw from the same conditional distribution. So TRLOO stays unbiased
    (a group of one has a baseline of 0). GRPO multiplies the gradient of the second turn by the mean of 1 - 1/n (1 for
    n = 1), which is not the factor 1 - 1/N of the first turn.
    """
    task = Task(seed, early_end=True)
    truth = task.gradient_by_turn()
    assert_near(task.expected_gradient(trloo, samples)[1], truth[1])

    shrunk = task.expected_gradient(partial(grpo, singleton="return"), samples)[1]
    goes_on = float(task.log_prob().exp()[:, 0].detach()[task.mask[:, 1]][0])
    counts = torch.arange(1, samples + 1, dtype=torch.float64)
    others = torch.distributions.Binomial(samples - 1, torch.tensor(goes_on, dtype=torch.float64))
    weight = others.log_prob(counts - 1).exp()  # of each group size, given that this episode is in the group
    factor = torch.where(counts > 1, 1 - 1 / counts, 1)
    assert_near(shrunk, (weight * factor).sum() * truth[1])


@pytest.mark.parametrize("seed", range(4))
def test_prompts_with_different_numbers_of_samples(seed: int) -> None:
    """One batch has a prompt with N = 2 and one with N = 4: TRLOO has the true direction, GRPO has not."""
    tasks = Task(seed, early_end=False), Task(seed + 100, early_end=False)
    truth, trloo_found, grpo_found = (
        torch.cat([sum(part).flatten() for part in parts])  # type: ignore[union-attr]
        for parts in (
            [task.gradient_by_turn() for task in tasks],
            [task.expected_gradient(trloo, n) for task, n in zip(tasks, (2, 4), strict=True)],
            [task.expected_gradient(grpo, n) for task, n in zip(tasks, (2, 4), strict=True)],
        )
    )
    assert_near(trloo_found, truth)
    half = len(truth) // 2
    assert_near(grpo_found[:half], truth[:half] / 2)
    assert_near(grpo_found[half:], truth[half:] * 3 / 4)
    assert torch.cosine_similarity(grpo_found, truth, dim=0) < 1 - 1e-4


@pytest.mark.parametrize("singleton", ["return", "zero"])
def test_a_group_of_one_without_its_return_is_biased(singleton: str) -> None:
    task = Task(0, early_end=True)
    found = task.expected_gradient(partial(trloo, singleton=singleton), 2)[1]
    unbiased = torch.allclose(found, task.gradient_by_turn()[1], rtol=0, atol=1e-10)
    assert unbiased == (singleton == "return")


def test_dividing_by_the_deviation_is_biased() -> None:
    """GRPO with this division is not a multiple of the true gradient."""
    task = Task(1, early_end=False)
    found = sum(task.expected_gradient(partial(grpo, normalize=True), 3))
    assert isinstance(found, Tensor)
    assert torch.cosine_similarity(found.flatten(), sum(task.gradient_by_turn()).flatten(), dim=0) < 1 - 1e-4  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("leave_one_out", [True, False])
def test_the_optimal_baseline_is_unbiased_if_the_sample_is_left_out(seed: int, leave_one_out: bool) -> None:
    """The weights depend on what each sample did, as lengths of responses do."""
    task = Task(seed, early_end=True)
    lengths = torch.tensor([[1.0, 7.0], [4.0, 2.0], [9.0, 3.0], [5.0, 1.0]], dtype=torch.float64)

    def weighted(returns: Tensor, mask: Tensor, group: Tensor) -> Tensor:
        episode = (returns[:, None] == task.returns[None]).all(dim=2).to(torch.uint8).argmax(dim=1)
        return optimal_baseline(returns, mask, group, weights=lengths[episode], leave_one_out=leave_one_out)

    found, truth = task.expected_gradient(weighted, 3), task.gradient_by_turn()
    near = [torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in zip(found, truth, strict=True)]
    assert near == [leave_one_out] * 2


@pytest.mark.parametrize("seed", range(4))
def test_remax_is_unbiased_whatever_the_greedy_rollout_earned(seed: int) -> None:
    task = Task(seed, early_end=True)

    def against(returns: Tensor, mask: Tensor, group: Tensor) -> Tensor:
        return remax(returns, mask, group, greedy=returns.new_tensor([[3.0, -2.0]]).expand_as(returns))

    for samples in (1, 2):
        for found, truth in zip(task.expected_gradient(against, samples), task.gradient_by_turn(), strict=True):
            assert_near(found, truth)


def test_normalised_trloo_is_biased() -> None:
    task = Task(1, early_end=False)
    found = sum(task.expected_gradient(trloo_norm, 3))
    assert isinstance(found, Tensor)
    assert torch.cosine_similarity(found.flatten(), sum(task.gradient_by_turn()).flatten(), dim=0) < 1 - 1e-4  # type: ignore[union-attr]


def test_the_optimal_baseline_has_the_least_variance() -> None:
    """For the first turn of a task, the weighted mean is the b that minimizes E[|grad log pi|^2 (G - b)^2]."""
    task = Task(3, early_end=False)
    probability = task.log_prob().sum(dim=1).exp().detach()
    norms = torch.stack(
        [torch.autograd.grad(task.log_prob()[e, 0], task.logits)[0].square().sum() for e in range(len(probability))]
    )
    returns = task.returns[:, 0]

    def variance(baseline: Tensor) -> float:
        return float((probability * norms * (returns - baseline).square()).sum())

    # About 1000 rows, in which each episode occurs in proportion to its probability.
    copies = (probability * 1000).round().long()
    index = torch.arange(len(copies)).repeat_interleave(copies)
    one = torch.zeros(len(index)).long()
    ones = torch.ones(len(index), 1).bool()
    found = optimal_baseline(returns[index, None], ones, one, weights=norms[index, None], leave_one_out=False)
    best = returns[index[0]] - found[0, 0]
    mean = returns[index].mean()
    assert (best - mean).abs() > 1e-2
    assert variance(best) < variance(mean)
    for shift in (-0.1, 0.1):
        assert variance(best) < variance(best + shift)


def test_void_turns_bias_the_gradient() -> None:
    """Whether a turn is void depends on its own action, so masking removes a part of the expectation. Void turns have
    this cost."""
    task = Task(2, early_end=False, gamma=1.0)
    task.rewards = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    rewards = task.rewards[task.state, task.action]
    task.returns = multi_turn_returns(rewards, task.mask)
    whole = task.gradient_by_turn()
    task.mask = turn_mask(rewards, task.mask)
    task.returns = multi_turn_returns(rewards, task.mask)
    assert not task.mask.all()
    masked = task.expected_gradient(trloo, 3)
    assert (masked[1] - whole[1]).abs().max() > 1e-2


def test_every_estimator_is_known_here() -> None:
    """This list must name each new estimator as unbiased or biased."""
    unbiased = {"trloo", "rloo", "optimal_baseline", "reinforce"}
    biased = {"trloo_norm", "grpo", "turn_independent_grpo", "rloo_norm", "reinforce_pp"}
    assert set(ESTIMATORS) == unbiased | biased
