"""A training step from rewards to a gradient on a GPU: same figures as on the CPU, and the same bits in every run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kerneldyno.training import advantages, coverage, filters, losses, masks, mismatch
from kerneldyno.training.returns import multi_turn_returns

pytestmark = pytest.mark.gpu

EPISODES, TURNS, LENGTH = 64, 3, 512


def batch() -> dict[str, Tensor]:
    """Return a batch with a row per turn and bfloat16 log-probabilities; some turns, rewards and tokens are missing."""
    source = torch.Generator().manual_seed(0)
    rows = EPISODES * TURNS
    exists = torch.rand(EPISODES, TURNS, generator=source) < 0.9
    rollout = -torch.rand(rows, LENGTH, generator=source)
    noise = torch.randn(rows, LENGTH, generator=source) * torch.rand(rows, 1, generator=source) * 0.05
    noise[::31, LENGTH // 2] = -12.0  # a ratio that the veto rejects
    return {
        "rewards": torch.rand(EPISODES, TURNS, generator=source).masked_fill(~exists, torch.nan),
        "exists": exists,
        "group": torch.arange(EPISODES) // 8,
        "coverage": torch.rand(EPISODES, TURNS, generator=source),
        "correct": torch.rand(EPISODES, TURNS, generator=source) < 0.7,
        "rollout": rollout.bfloat16(),
        "train": (rollout + noise).bfloat16(),
        "response": (torch.rand(rows, LENGTH, generator=source) < 0.8) & exists.reshape(-1, 1),
    }


def step(data: dict[str, Tensor], device: str) -> dict[str, Any]:
    """Run one training step up to the gradient and return its results by name."""
    on = {name: tensor.to(device) for name, tensor in data.items()}
    episodes = torch.arange(EPISODES, device=device).repeat_interleave(TURNS)
    turns = torch.arange(TURNS, device=device).repeat(EPISODES)
    kept = masks.turn_mask(on["rewards"], on["exists"])
    returns = multi_turn_returns(on["rewards"], kept)
    found: dict[str, Any] = {name: f(returns, kept, on["group"]) for name, f in advantages.ESTIMATORS.items()}
    rejected = mismatch.reject(on["train"], on["rollout"], on["response"], episodes=episodes)
    covered = coverage.reject(on["coverage"], on["correct"], kept, generator=torch.Generator().manual_seed(1))
    counts = rejected.mask & masks.to_tokens(covered & kept, turns, episodes)
    log_probs = on["train"].float().requires_grad_()
    loss, metrics = losses.dual_clip(
        log_probs,
        on["rollout"],
        masks.to_tokens(found["trloo"], turns, episodes),
        counts,
        weights=mismatch.importance_weights(on["train"], on["rollout"], on["response"], level="turn"),
    )
    loss.backward()
    scores = filters.last_turn(on["rewards"], on["exists"])
    found |= {"mask": counts, "loss": loss.detach(), "gradient": log_probs.grad, "loss_metrics": metrics}
    found |= {"rejection": rejected.metrics, "keep": filters.zero_variance(scores, on["group"]).keep}
    found["mismatch"] = mismatch.metrics(on["train"], on["rollout"], on["response"], episodes=episodes)
    return found


def test_the_figures_of_the_cpu() -> None:
    data = batch()
    here, there = step(data, "cpu"), step(data, "cuda")
    assert here["mask"].any()
    for name, expected in here.items():
        if isinstance(expected, Tensor):
            assert there[name].is_cuda
            torch.testing.assert_close(there[name].cpu(), expected, rtol=1e-5, atol=1e-6)
        else:
            assert there[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_same_bits_in_every_run() -> None:
    data = batch()
    first, again = step(data, "cuda"), step(data, "cuda")
    for name, expected in first.items():
        same = torch.equal(again[name], expected) if isinstance(expected, Tensor) else again[name] == expected
        assert same, name


def test_turns_within_rows() -> None:
    data = batch()
    train, rollout, response = (data[name].reshape(EPISODES, -1) for name in ("train", "rollout", "response"))
    turns = torch.arange(TURNS).repeat_interleave(LENGTH).expand(EPISODES, -1)
    rule = mismatch.Rule("turn_geometric", 1.001)
    here = mismatch.reject(train, rollout, response, rule, turns=turns)
    there = mismatch.reject(train.cuda(), rollout.cuda(), response.cuda(), rule, turns=turns.cuda())
    assert torch.equal(there.mask.cpu(), here.mask)
