"""Comparison of kerneldyno.training with verl wherever both compute the same; tests print their largest difference.

    pytest tests/trainers/test_verl_agreement.py -rP

Every case is random in float32, with rows of different length and groups of different size. Where verl differs by
definition, the test names the difference.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

from kerneldyno.training import advantages, losses, mismatch
from kerneldyno.training.masks import to_tokens, turns_of
from kerneldyno.training.returns import multi_turn_returns

SEEDS = range(20)
ROWS, LENGTH = 24, 40


def report(what: str, differences: list[float], bound: float) -> None:
    """Print the largest difference, and fail if it is above `bound`, which allows for rounding."""
    print(f"{what:<42} largest difference {max(differences):.1e} in {len(differences)} batches")
    assert max(differences) <= bound


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return (ours - theirs).abs().max().item()


class Batch:
    """Rows of 1 to 3 turns with the environment's tokens between them, rewards on the last token of each turn."""

    def __init__(self, seed: int, turns: int = 3) -> None:
        source = np.random.default_rng(seed)
        self.mask = torch.zeros(ROWS, LENGTH, dtype=torch.long)
        self.token_rewards = torch.zeros(ROWS, LENGTH)
        self.rewards = torch.zeros(ROWS, turns)
        self.tokens = torch.zeros(ROWS, turns, dtype=torch.long)
        for row in range(ROWS):
            at = 0
            for turn in range(int(source.integers(1, turns + 1))):
                length = int(source.integers(1, 9))
                reward = float(source.normal())
                self.mask[row, at : at + length] = 1
                self.token_rewards[row, at + length - 1] = reward
                self.rewards[row, turn], self.tokens[row, turn] = reward, length
                at += length + int(source.integers(1, 4))
        self.exists = self.tokens > 0
        self.group = torch.from_numpy(source.integers(0, 7, ROWS))
        self.index = np.array([f"prompt-{group}" for group in self.group], dtype=object)
        normal = torch.Generator().manual_seed(seed)
        self.rollout = -torch.rand(ROWS, LENGTH, generator=normal) * 3
        spread = torch.rand(ROWS, 1, generator=normal) * 2e-3
        self.train = self.rollout + torch.randn(ROWS, LENGTH, generator=normal) * spread
        self.advantages = torch.randn(ROWS, LENGTH, generator=normal)


@pytest.mark.parametrize("normalize", [False, True])
def test_grpo(normalize: bool) -> None:
    """Rows have one turn. verl divides a group of one by 1 + eps, so the case with division leaves such groups out."""
    found = []
    for seed in SEEDS:
        batch = Batch(seed, turns=1)
        theirs, _ = core_algos.compute_grpo_outcome_advantage(
            batch.token_rewards, batch.mask, batch.index, norm_adv_by_std_in_grpo=normalize
        )
        table = advantages.grpo(batch.rewards, batch.exists, batch.group, normalize=normalize)
        ours = to_tokens(table, turns_of(batch.mask))
        alone = batch.group.bincount()[batch.group] == 1
        rows = ~alone if normalize else slice(None)
        found.append(difference(ours[rows], theirs[rows]))
    report(f"grpo, normalize={normalize}", found, 2e-6)


def test_rloo() -> None:
    """Rows are whole episodes of several turns; verl's score is the sum of a row."""
    found = []
    for seed in SEEDS:
        batch = Batch(seed)
        theirs, _ = core_algos.compute_rloo_outcome_advantage(batch.token_rewards, batch.mask, batch.index)
        returns = multi_turn_returns(batch.rewards, batch.exists)
        ours = to_tokens(advantages.rloo(returns, batch.exists, batch.group), turns_of(batch.mask))
        found.append(difference(ours, theirs))
    report("rloo", found, 2e-6)


def test_reinforce_pp() -> None:
    """Returns go across the environment's tokens and are whitened over the tokens of the batch."""
    found = []
    for seed in SEEDS:
        batch = Batch(seed)
        theirs, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(
            batch.token_rewards, batch.mask, config=SimpleNamespace(gamma=1.0)
        )
        returns = multi_turn_returns(batch.rewards, batch.exists)
        table = advantages.reinforce_pp(returns, batch.exists, batch.group, tokens=batch.tokens)
        found.append(difference(to_tokens(table, turns_of(batch.mask)), theirs))
    report("reinforce_plus_plus", found, 5e-6)


def test_trloo_is_rloo_where_there_is_one_turn() -> None:
    found = []
    for seed in SEEDS:
        batch = Batch(seed, turns=1)
        theirs, _ = core_algos.compute_rloo_outcome_advantage(batch.token_rewards, batch.mask, batch.index)
        ours = to_tokens(advantages.trloo(batch.rewards, batch.exists, batch.group), turns_of(batch.mask))
        found.append(difference(ours, theirs))
    report("trloo, one turn, against rloo", found, 2e-6)


def test_optimal_baseline_of_whole_episodes() -> None:
    """verl's opo is this with one turn, lengths as weights, and the sample in its own baseline."""
    found = []
    for seed in SEEDS:
        batch = Batch(seed, turns=1)
        theirs, _ = core_algos.compute_opo_outcome_advantage(batch.token_rewards.clone(), batch.mask, batch.index)
        table = advantages.optimal_baseline(
            batch.rewards, batch.exists, batch.group, weights=batch.tokens, leave_one_out=False
        )
        found.append(difference(to_tokens(table, turns_of(batch.mask)), theirs))
    report("optimal_baseline, one turn, against opo", found, 2e-6)


def test_remax() -> None:
    found = []
    for seed in SEEDS:
        batch = Batch(seed)
        greedy = torch.randn(ROWS, generator=torch.Generator().manual_seed(seed))
        theirs, _ = core_algos.compute_remax_outcome_advantage(batch.token_rewards, greedy, batch.mask)
        returns = multi_turn_returns(batch.rewards, batch.exists)
        table = advantages.remax(returns, batch.exists, batch.group, greedy=greedy)
        ours = to_tokens(table, turns_of(batch.mask))
        found.append(difference(ours, theirs * batch.mask))  # verl also fills the tokens between turns
    report("remax", found, 2e-6)


@pytest.mark.parametrize("aggregation", get_args(losses.Aggregation))
@pytest.mark.parametrize("weighted", [False, True])
def test_policy_loss(aggregation: str, weighted: bool) -> None:
    """Value, gradient and metrics agree with verl's vanilla loss with both clips."""
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_mini_batch_size=ROWS, ppo_micro_batch_size_per_gpu=ROWS,
        clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_c=3.0,
    )  # fmt: skip
    found: dict[str, list[float]] = {"value": [], "gradient": [], "metrics": []}
    for seed in SEEDS:
        batch = Batch(seed)
        moved = batch.rollout + torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(seed)) * 0.7
        weights = batch.advantages.abs() if weighted else None
        results = []
        for name in ("verl", "ours"):
            log_probs = moved.clone().requires_grad_()
            if name == "verl":
                value, figures = core_algos.compute_policy_loss_vanilla(
                    batch.rollout, log_probs, batch.advantages, batch.mask, aggregation, config, weights
                )
            else:
                value, figures = losses.dual_clip(
                    log_probs, batch.rollout, batch.advantages, batch.mask, aggregation=aggregation, weights=weights
                )
            value.backward()
            assert log_probs.grad is not None
            results.append((value.detach(), log_probs.grad, figures))
        (theirs, slope, named), (ours, our_slope, metrics) = results
        found["value"].append(abs((ours - theirs) / theirs).item())
        found["gradient"].append(difference(our_slope, slope) / slope.abs().max().item())
        pairs = {"clip_fraction": "pg_clipfrac", "clip_fraction_dual": "pg_clipfrac_lower", "kl": "ppo_kl"}
        found["metrics"].append(max(abs(metrics[mine] - named[f"actor/{his}"]) for mine, his in pairs.items()))
    for what, differences in found.items():
        report(f"{aggregation}{', weights' if weighted else ''}: {what}", differences, 5e-6)


def rejected_by_verl(batch: Batch, options: str, thresholds: str) -> Tensor:
    mask, _ = rollout_corr_helper.compute_rollout_rejection_mask(
        batch.train - batch.rollout, batch.mask, options, thresholds
    )
    return mask.bool()


#: verl bounds -log r and we bound log r, so the same band has reciprocal bounds.
BAND = f"{1 / 1.001}_{1 / 0.999}"
#: 0.5 * log(1e-4)^2: the veto as a bound of verl's k2.
VETO = f"{0.5 * math.log(1e-4) ** 2}"


@pytest.mark.parametrize(
    ("rule", "option"),
    [
        (mismatch.Rule("geometric", 1.001, 0.999, veto=None), "seq_mean_k1"),
        (mismatch.Rule("sequence", 1.001, 0.999, veto=None), "seq_sum_k1"),
        (mismatch.Rule("token", 1.001, 0.999, veto=None), "token_k1"),
    ],
)
def test_rejection(rule: mismatch.Rule, option: str) -> None:
    """With one row per episode, both masks are identical and keep some tokens but not all."""
    kept, total = 0, 0
    for seed in SEEDS:
        batch = Batch(seed)
        ours = mismatch.reject(batch.train, batch.rollout, batch.mask, rule, turns=turns_of(batch.mask)).mask
        assert torch.equal(ours, rejected_by_verl(batch, option, BAND))
        kept, total = kept + int(ours.sum()), total + int(batch.mask.sum())
    print(f"{option:<42} identical masks in {len(SEEDS)} batches, {kept} of {total} tokens kept")
    assert 0 < kept < total


def test_turns_as_rows_are_verls_sequences() -> None:
    """turn_geometric with a row per episode equals seq_mean_k1 with a row per turn."""
    rule = mismatch.Rule("turn_geometric", 1.001, 0.999, veto=None)
    for seed in SEEDS:
        batch = Batch(seed)
        turns = turns_of(batch.mask)
        ours = mismatch.reject(batch.train, batch.rollout, batch.mask, rule, turns=turns).mask
        theirs = torch.zeros_like(ours)
        for turn in range(3):
            part = Batch(seed)
            part.mask = (turns == turn).long()
            theirs |= rejected_by_verl(part, "seq_mean_k1", BAND)
        assert torch.equal(ours, theirs)
    print(f"{'turn_geometric, seq_mean_k1 of turn rows':<42} identical masks in {len(SEEDS)} batches")


def test_veto_is_the_lower_side_of_seq_max_k2() -> None:
    """verl's k2 also rejects r > 1e4, which the release's veto does not; on all else both agree."""
    low, high = 0, 0
    for seed in SEEDS:
        batch = Batch(seed)
        source = torch.Generator().manual_seed(seed)
        outliers = torch.rand(ROWS, LENGTH, generator=source)
        batch.train = batch.train - 10 * (outliers < 0.004) + 10 * (outliers > 0.996)
        below = ((batch.train - batch.rollout < math.log(1e-4)) & batch.mask.bool()).any(dim=1, keepdim=True)
        above = ((batch.train - batch.rollout > -math.log(1e-4)) & batch.mask.bool()).any(dim=1, keepdim=True)
        ours = mismatch.reject(batch.train, batch.rollout, batch.mask, mismatch.Rule(None)).mask
        theirs = rejected_by_verl(batch, "seq_max_k2", VETO)
        assert torch.equal(ours & ~above, theirs)
        assert torch.equal(ours, batch.mask.bool() & ~below)
        low, high = low + int(below.sum()), high + int((above & ~below).sum())
    print(f"{'veto 1e-4, seq_max_k2':<42} {low} rows rejected by both, {high} by verl alone (r > 1e4)")
    assert min(low, high) > 0


def test_the_papers_rule_in_verls_options() -> None:
    """Bounds and veto apply together, as in the plugin's preset."""
    for seed in SEEDS:
        batch = Batch(seed)
        batch.train[seed % ROWS, 0] -= 10
        ours = mismatch.reject(batch.train, batch.rollout, batch.mask, mismatch.PAPER).mask
        assert torch.equal(ours, rejected_by_verl(batch, "seq_mean_k1,seq_max_k2", f"{BAND},{VETO}"))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_weights(level: Any) -> None:
    found, capped = [], 0
    for seed in SEEDS:
        batch = Batch(seed)
        train = batch.rollout + (batch.train - batch.rollout) * 1000  # weights from nearly 0 to far above the cap
        theirs, _ = rollout_corr_helper.compute_rollout_correction_weights(
            train - batch.rollout, batch.mask, level, 2.0
        )
        ours = mismatch.importance_weights(train, batch.rollout, batch.mask, level=level)
        capped += int((ours == 2).sum())
        found.append(difference(ours, theirs))
    assert capped
    report(f"truncated weights, {level}", found, 1e-5)


def test_metrics() -> None:
    names = {
        "kl": "kl", "kl_k3": "k3_kl", "chi2_token": "chi2_token", "chi2_sequence": "chi2_seq",
        "ppl_train": "training_ppl", "ppl_rollout": "rollout_ppl", "ppl_ratio": "ppl_ratio",
    }  # fmt: skip
    found = []
    for seed in SEEDS:
        batch = Batch(seed)
        train = batch.rollout + (batch.train - batch.rollout) * 100
        theirs = rollout_corr_helper.compute_offpolicy_metrics(train, batch.rollout, batch.mask)
        ours = mismatch.metrics(train, batch.rollout, batch.mask)
        found.append(max(abs(ours[mine] - theirs[his]) / max(1, abs(theirs[his])) for mine, his in names.items()))
    report("metrics of the mismatch", found, 1e-5)
