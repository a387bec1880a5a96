"""Tests of adaptive sampling: refusals, when a prompt has enough, balanced groups, gain on a simulated policy."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldyno.training.adaptive import AdaptiveRule, AdaptiveSampler, balanced
from kerneldyno.training.advantages import trloo
from kerneldyno.training.errors import TrainingError
from tests import sampling

pytestmark = pytest.mark.pure


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 1}, "size=1"),
        ({"per_round": 0}, "per_round=0"),
        ({"most": 7}, "most=7"),
        ({"successes": -1}, "successes=-1"),
        ({"successes": 0, "failures": 0}, "successes=0, failures=0"),
        ({"successes": 20, "failures": 20}, "together 1..most=32"),
        ({"budget": 0}, "budget=0"),
        ({"threshold": math.nan}, "threshold is NaN"),
    ],
)
def test_rules_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        AdaptiveRule(**options)


def test_what_was_not_asked_for_is_refused() -> None:
    with pytest.raises(TrainingError, match="prompts=0"):
        AdaptiveSampler(0)
    sampler = AdaptiveSampler(2, AdaptiveRule(per_round=2))
    with pytest.raises(TrainingError, match="no samples of prompt 0 were asked for"):
        sampler.add(0, [1.0])
    assert sampler.ask() == {0: 2, 1: 2}
    with pytest.raises(TrainingError, match="3 scores for 2 samples"):
        sampler.add(0, [1.0, 0.0, 0.0])
    with pytest.raises(TrainingError, match="NaN or infinite"):
        sampler.add(0, [1.0, math.inf])
    with pytest.raises(TrainingError, match="samples of 2 prompts are missing: add them before asking"):
        sampler.ask()
    with pytest.raises(TrainingError, match="before taking"):
        sampler.take(chance())
    with pytest.raises(TrainingError, match="size=1"):
        balanced([1.0, 0.0], 1, generator=chance())


def test_a_prompt_goes_on_until_it_has_both_kinds() -> None:
    sampler = AdaptiveSampler(3, AdaptiveRule(size=4, per_round=2, most=6))
    assert sampler.ask() == {0: 2, 1: 2, 2: 2}
    sampler.add(2, [0.0, 0.0])
    sampler.add(0, [1.0, 0.0])
    sampler.add(1, [None, None])
    assert sampler.ask() == {1: 2, 2: 2}
    sampler.add(1, [0.4, None])
    sampler.add(2, [0.0, 2.0])
    assert sampler.ask() == {1: 2}
    sampler.add(1, [0.5, 0.6])
    assert sampler.ask() == {}
    assert sampler.sampled == 12
    pools = sampler.take(chance())
    assert [pool.stop for pool in pools] == ["enough", "most", "enough"]
    assert [pool.has_signal for pool in pools] == [True, True, True]  # prompt 1: successes whose scores differ
    assert pools[1].kept == [2, 4, 5]
    assert pools[2].mean == 0.5


def test_the_budget_goes_to_those_with_fewer_samples_first() -> None:
    sampler = AdaptiveSampler(3, AdaptiveRule(size=2, per_round=3, budget=10, most=100))
    assert sampler.ask() == {0: 3, 1: 3, 2: 3}
    for prompt in range(3):
        sampler.add(prompt, [0.0] * 3)
    assert sampler.ask() == {0: 1}
    sampler.add(0, [0.0])
    assert sampler.ask() == {}
    assert [pool.stop for pool in sampler.take(chance())] == ["budget"] * 3
    small = AdaptiveSampler(3, AdaptiveRule(size=2, per_round=2, budget=2))
    assert small.ask() == {0: 2}
    small.add(0, [1.0, 0.0])
    assert small.ask() == {}
    empty = small.take(chance())[1]
    assert (empty.scores, empty.kept, empty.mean, empty.has_signal) == ([], [], None, False)


def test_variants_of_the_paper() -> None:
    """One variant stops after one success, the other after half a group of successes and half a group of failures."""
    one = AdaptiveSampler(1, AdaptiveRule(size=4, per_round=1, successes=1, failures=0))
    half = AdaptiveSampler(1, AdaptiveRule(size=4, per_round=1, successes=2, failures=2))
    for sampler, rounds in ((one, 3), (half, 6)):
        for score in (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0):
            if sampler.ask():
                sampler.add(0, [score])
        assert sampler.sampled == rounds


@settings(max_examples=sampling.examples(100))
@given(st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), max_size=20), st.integers(2, 9), st.integers(0, 99))
def test_balanced_groups(scores: list[float | None], size: int, seed: int) -> None:
    kept, weights = balanced(scores, size, generator=chance(seed))
    known = [index for index, score in enumerate(scores) if score is not None]
    assert kept == sorted(set(kept))
    assert set(kept) <= set(known)
    assert len(kept) == min(size, len(known))
    kinds = {index: (scores[index] or 0.0) > 0 for index in known}
    right, wrong = sum(kinds.values()), len(known) - sum(kinds.values())
    chosen = sum(kinds[index] for index in kept)
    for mine, other, limit in ((chosen, wrong, size // 2), (len(kept) - chosen, right, size - size // 2)):
        assert mine >= min(limit, len(kept) - other) or mine == (right if other == wrong else wrong)
    if right and wrong and size >= 2:
        assert 0 < chosen < len(kept)
    assert (kept, weights) == balanced(scores, size, generator=chance(seed))
    if kept and chosen not in (0, len(kept)):
        share = math.fsum(w for index, w in zip(kept, weights, strict=True) if kinds[index]) / len(kept)
        assert share == pytest.approx(right / len(known)), "weighted, a group has the pool's share of successes"


def test_every_sample_of_a_kind_is_kept_equally_often() -> None:
    scores = [1.0] * 6 + [0.0] * 2
    counts = Counter(index for seed in range(3000) for index in balanced(scores, 4, generator=chance(seed))[0])
    assert counts[6] == counts[7] == 3000
    assert all(abs(counts[index] / 3000 - 1 / 3) < 0.04 for index in range(6))


def test_the_baseline_is_of_the_whole_pool() -> None:
    """As the module documents: the estimator sees the whole pool, and the kept rows are taken afterwards."""
    scores = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    kept, _ = balanced(scores, 4, generator=chance())
    pool = torch.tensor(scores, dtype=torch.float64)[:, None]
    advantages = trloo(pool, torch.ones(8, 1).bool(), torch.zeros(8).long())[kept, 0]
    assert sorted(advantages.tolist()) == pytest.approx([-2 / 7, -2 / 7, 6 / 7, 6 / 7])


#: Success rates of a policy early in training: more hard prompts than easy ones.
RATES = (0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 0.7, 0.95)


@pytest.mark.parametrize(("size", "per_round", "gain"), [(8, 1, 0.12), (8, 2, 0.08), (8, 4, 0.04), (16, 4, 0.18)])
def test_what_it_changes_under_a_fixed_budget(size: int, per_round: int, gain: float) -> None:
    """With as many samples as uniform sampling, it gives more groups that have an advantage other than 0."""
    source, success = chance(1), RATES * 50
    prompts = len(success)

    def play(prompt: int, count: int) -> list[float]:
        return torch.bernoulli(torch.full((count,), success[prompt]), generator=source).tolist()

    uniform = sum(len(set(play(prompt, size))) > 1 for prompt in range(prompts)) / prompts
    expected = sum(1 - p**size - (1 - p) ** size for p in success) / prompts
    assert uniform == pytest.approx(expected, abs=0.03)

    sampler = AdaptiveSampler(prompts, AdaptiveRule(size=size, per_round=per_round, most=64, budget=size * prompts))
    while counts := sampler.ask():
        for prompt, count in counts.items():
            sampler.add(prompt, play(prompt, count))
    pools = sampler.take(chance(2))
    adaptive = sum(pool.has_signal for pool in pools) / prompts
    assert sampler.sampled <= size * prompts
    kept = sum(len(pool.kept) for pool in pools) / prompts
    print(
        f"budget {size}, rounds of {per_round}: uniform {uniform:.3f} ({expected:.3f} expected), adaptive {adaptive:.3f}, "
        f"{sampler.sampled / prompts:.1f} samples a prompt, {kept:.1f} kept"
    )
    assert adaptive > uniform + gain


def test_rounds_as_large_as_the_budget_change_nothing() -> None:
    sampler = AdaptiveSampler(3, AdaptiveRule(size=8, per_round=8, budget=24))
    assert sampler.ask() == {0: 8, 1: 8, 2: 8}
    for prompt in range(3):
        sampler.add(prompt, [0.0] * 8)
    assert sampler.ask() == {}


def direction(rewards: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the expected gradient by the logits of a policy of three actions: of adaptive sampling, and the true one.

    All sequences of actions are enumerated; the probabilities of the actions after a stop sum to 1. Whole pools are
    kept, so only the stopping makes a difference.
    """
    policy = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    scores = torch.eye(3, dtype=torch.float64) - policy
    expected = torch.zeros(3, dtype=torch.float64)
    rule = AdaptiveRule(size=4, per_round=1, most=4)
    for actions in itertools.product(range(3), repeat=rule.most):
        sampler = AdaptiveSampler(1, rule)
        while sampler.ask():
            sampler.add(0, [rewards[actions[sampler.sampled]]])
        (pool,) = sampler.take(chance())
        size = len(pool.scores)
        returns = torch.tensor([[rewards[action]] for action in actions[:size]], dtype=torch.float64)
        advantages = trloo(returns, torch.ones(size, 1).bool(), torch.zeros(size).long())[:, 0]
        gradient = sum(advantages[index] * scores[actions[index]] for index in pool.kept)
        expected += policy[list(actions)].prod() * gradient
    true = (policy * torch.tensor(rewards, dtype=torch.float64)) @ scores
    return expected, true


def test_with_two_rewards_the_direction_stays() -> None:
    expected, true = direction((1.0, 0.0, 0.0))
    assert torch.cosine_similarity(expected, true, dim=0) == pytest.approx(1.0, abs=1e-12)
    assert (expected - 4 * true).abs().max() > 1e-2, "and the size does not"


def test_with_three_rewards_it_does_not() -> None:
    expected, true = direction((1.0, 0.0, 0.4))
    assert 0.8 < float(torch.cosine_similarity(expected, true, dim=0)) < 1 - 1e-5
