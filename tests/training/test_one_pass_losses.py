"""Tests of `policy_gradient`, `bypass` and `pure`: refusals, by hand, against loops, unbiased where documented."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kerneldyno.training import mismatch
from kerneldyno.training.errors import MaskError, NotFiniteError, OptionError, ShapeError, TrainingError
from kerneldyno.training.losses import bypass, dual_clip, policy_gradient, pure
from kerneldyno.training.mismatch import Rule
from tests import sampling
from tests.training import loops

pytestmark = pytest.mark.pure

#: Rejects nothing.
EVERYTHING = Rule(level=None, veto=None)
MODES = pytest.mark.parametrize("mode", [bypass, pure])


def batch(seed: int, spread: float = 1e-3, rows: int = 6, length: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (log_probs with gradient, rollout, advantages of rows, mask) in float64; every second row is padded."""
    source = torch.Generator().manual_seed(seed)
    rollout = -torch.rand(rows, length, generator=source, dtype=torch.float64) - 0.1
    log_probs = rollout + spread * torch.randn(rows, length, generator=source, dtype=torch.float64)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[::2, -2:] = False
    advantages = torch.randn(rows, generator=source, dtype=torch.float64)
    return log_probs.requires_grad_(), rollout, advantages, mask


def gradient(loss: Tensor, log_probs: Tensor) -> Tensor:
    return torch.autograd.grad(loss, log_probs, retain_graph=True)[0]


@MODES
def test_weights_are_refused_with_the_reason(mode: Any) -> None:
    log_probs, rollout, advantages, mask = batch(0)
    with pytest.raises(TrainingError, match="weights"):
        mode(log_probs, rollout, advantages, mask, weights=torch.ones_like(rollout))


@MODES
def test_what_does_not_fit_is_refused(mode: Any) -> None:
    log_probs, rollout, advantages, mask = batch(0)
    with pytest.raises(ShapeError, match="rollout"):
        mode(log_probs, rollout[:, :2], advantages, mask)
    with pytest.raises(MaskError):
        mode(log_probs, rollout, advantages, mask.double())
    with pytest.raises(ShapeError, match="advantages"):
        mode(log_probs, rollout, advantages[:2], mask)
    with pytest.raises(NotFiniteError):
        mode(log_probs, rollout * math.nan, advantages, mask)
    with pytest.raises(OptionError, match="aggregation"):
        mode(log_probs, rollout, advantages, mask, aggregation="mean")


def test_pure_refuses_levels_and_caps_that_are_none() -> None:
    log_probs, rollout, advantages, mask = batch(0)
    with pytest.raises(OptionError, match="level='row' is unknown"):
        pure(log_probs, rollout, advantages, mask, level="row")  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="cap=0"):
        pure(log_probs, rollout, advantages, mask, level="token", cap=0)


def test_policy_gradient_refuses() -> None:
    log_probs, _, advantages, mask = batch(0)
    with pytest.raises(ShapeError, match=r"log_probs has shape \(5,\)"):
        policy_gradient(log_probs[0], advantages, mask[0])
    with pytest.raises(ShapeError, match="weights"):
        policy_gradient(log_probs, advantages, mask, weights=torch.ones(6, 4))
    impossible = log_probs.detach().clone()
    impossible[1, 1] = -math.inf
    with pytest.raises(NotFiniteError, match="log_probs"):
        policy_gradient(impossible, advantages, mask)
    impossible[0, -1] = math.nan  # masked
    impossible[1, 1] = -1.0
    assert policy_gradient(impossible, advantages, mask)[0].isfinite()


def test_policy_gradient_by_hand() -> None:
    log_probs = torch.tensor([[-1.0, -2.0], [-3.0, math.nan]], requires_grad=True)
    mask = torch.tensor([[1, 1], [1, 0]])
    loss, figures = policy_gradient(
        log_probs, torch.tensor([2.0, -1.0]), mask, weights=torch.tensor([0.5, 4.0]), aggregation="token-sum"
    )
    assert loss.item() == 0.5 * 2 * 3 - 4 * 3
    assert gradient(loss, log_probs).tolist() == [[-1.0, -1.0], [4.0, 0.0]]
    assert figures == {"weight_mean": pytest.approx(5 / 3), "weight_max": 4.0}
    nothing, figures = policy_gradient(log_probs, torch.zeros(2), torch.zeros(2, 2).bool())
    assert (nothing.item(), figures["weight_max"]) == (0.0, 0.0)


def test_bypass_is_dual_clip_around_the_rollout_policy_over_what_is_kept() -> None:
    """One row is out of bounds and another has a vetoed token; the loss is `dual_clip` over the other rows."""
    log_probs, rollout, advantages, mask = batch(1, spread=0.0)
    moved = log_probs.detach().clone()
    moved[1] += 0.01
    moved[3, 0] -= 10
    log_probs = moved.requires_grad_()
    loss, figures = bypass(log_probs, rollout, advantages, mask, scale=10.0)
    kept = mask.clone()
    kept[[1, 3]] = False
    expected, _ = dual_clip(log_probs, rollout, advantages, kept, scale=10.0)
    assert loss.item() == expected.item()
    assert torch.equal(gradient(loss, log_probs), gradient(expected, log_probs))
    assert figures["mrs/turn_masked_fraction"] == pytest.approx(2 / 6)
    assert {"clip_fraction", "mrs/veto_fraction"} <= set(figures)


@MODES
def test_the_mean_of_an_episode_is_over_all_its_rows(mode: Any) -> None:
    """Two turns differ by opposite amounts: each alone is rejected, together they are kept."""
    _, rollout, advantages, mask = batch(2, spread=0.0, rows=2)
    mask = torch.ones_like(mask)
    shifted = (rollout + torch.tensor([[0.01], [-0.01]])).requires_grad_()
    apart, _ = mode(shifted, rollout, advantages, mask)
    joined, _ = mode(shifted, rollout, advantages, mask, episodes=torch.tensor([4, 4]))
    assert gradient(apart, shifted).eq(0).all()
    assert gradient(joined, shifted).ne(0).all()


@pytest.mark.parametrize("seed", range(4))
def test_on_policy_all_modes_have_one_gradient(seed: int) -> None:
    log_probs, _, advantages, mask = batch(seed)
    rollout = log_probs.detach()
    usual, _ = dual_clip(log_probs, rollout, advantages, mask)
    for loss, _ in (bypass(log_probs, rollout, advantages, mask), pure(log_probs, rollout, advantages, mask)):
        torch.testing.assert_close(gradient(loss, log_probs), gradient(usual, log_probs))


@pytest.mark.parametrize("seed", range(4))
def test_weights_by_token_are_what_the_ratio_of_bypass_holds(seed: int) -> None:
    """d(r A) = r A d log pi, so both losses have the same gradient as long as no clip acts."""
    log_probs, rollout, advantages, mask = batch(seed, spread=0.03)
    one, figures = bypass(log_probs, rollout, advantages, mask, rule=EVERYTHING)
    other, _ = pure(log_probs, rollout, advantages, mask, rule=EVERYTHING, level="token", cap=1e6)
    assert figures["clip_fraction"] == figures["clip_fraction_dual"] == 0
    torch.testing.assert_close(gradient(one, log_probs), gradient(other, log_probs))


@settings(max_examples=sampling.examples(60))
@given(st.integers(0, 10**6), st.sampled_from(["token", "turn", "turn_geometric", "sequence", "geometric"]))
def test_pure_against_loops(seed: int, level: Any) -> None:
    log_probs, rollout, advantages, mask = batch(seed, spread=0.3)
    rule, cap = Rule(level, 1.3, 0.75, 0.5), 1.1
    rows, length = mask.shape
    turn_of = [[row if mask[row, token] else None for token in range(length)] for row in range(rows)]
    kept = loops.rejection(
        log_probs.tolist(), rollout.tolist(), turn_of, list(range(rows)),
        level=level, lower=0.75, upper=1.3, veto=0.5, veto_level="turn",
    )  # fmt: skip
    total, used, new, old = 0.0, 0, log_probs.tolist(), rollout.tolist()
    for row in range(rows):
        ratios = [new[row][t] - old[row][t] for t in range(length) if mask[row, t]]
        together = sum(ratios) / (len(ratios) if "geometric" in level else 1)
        for token in range(length):
            if kept[row][token]:
                ratio = new[row][token] - old[row][token] if level == "token" else together
                total -= min(math.exp(ratio), cap) * float(advantages[row]) * new[row][token]
        used += any(kept[row])
    loss, _ = pure(log_probs, rollout, advantages, mask, rule=rule, level=level, cap=cap)
    assert loss.item() == pytest.approx(total / max(used, 1), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_whole_sequence_weights_without_rejection_are_unbiased(seed: int) -> None:
    """The loss is over all sequences of two tokens of a bigram policy, weighted by another policy's probabilities."""
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 2, generator=source, dtype=torch.float64, requires_grad=True)
    other = logits.detach() + 0.5 * torch.randn(3, 2, generator=source, dtype=torch.float64)
    reward = torch.randn(4, generator=source, dtype=torch.float64)
    state = torch.tensor([[0, 1 + first] for first in (0, 1) for _ in (0, 1)])
    action = torch.tensor([[first, second] for first in (0, 1) for second in (0, 1)])

    def chosen(table: Tensor) -> Tensor:
        return table.log_softmax(-1)[state, action]

    objective = (chosen(logits).sum(1).exp() * reward).sum()
    truth = torch.autograd.grad(objective, logits)[0]
    often = chosen(other).sum(1).exp()
    found = {}
    for level in (None, "sequence"):
        loss, _ = pure(
            chosen(logits), chosen(other), reward * often, torch.ones(4, 2).bool(),
            rule=EVERYTHING, level=level, cap=1e6, aggregation="token-sum",
        )  # fmt: skip
        found[level] = -torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(found["sequence"], truth, rtol=0, atol=1e-10)
    assert (found[None] - truth).abs().max() > 1e-3, "rejection alone is biased where the policies differ"


def test_rejection_is_that_of_mismatch() -> None:
    log_probs, rollout, advantages, mask = batch(5, spread=2e-3)
    kept = mismatch.reject(log_probs.detach(), rollout, mask)
    assert 0 < kept.mask.sum() < mask.sum()
    for mode in (bypass, pure):
        loss, figures = mode(log_probs, rollout, advantages, mask)
        assert torch.equal(gradient(loss, log_probs) != 0, kept.mask)
        assert figures["mrs/masked_fraction"] == kept.metrics["masked_fraction"]
