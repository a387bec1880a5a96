"""Tests of the policy loss: each region by hand, comparison with loops, gradients, metrics."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kerneldyno.training.errors import MaskError, OptionError, ShapeError, TrainingError
from kerneldyno.training.losses import Aggregation, aggregate, dual_clip
from tests import sampling
from tests.training import loops

pytestmark = pytest.mark.pure

MODES = get_args(Aggregation)


def one(ratio: float, advantage: float, **options: Any) -> tuple[float, float, dict[str, float]]:
    """Return (loss, d loss / d log_prob, metrics) of a single token."""
    log_prob = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.0]], dtype=torch.float64)
    loss, metrics = dual_clip(log_prob, old, torch.tensor([[advantage]]).double(), torch.ones(1, 1).bool(), **options)
    loss.backward()
    assert log_prob.grad is not None
    return loss.item(), log_prob.grad.item(), metrics


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, None),  # on policy: the gradient is -A
        (1.2, 2.0, -2.4, -2.4, None),
        (1.5, 2.0, -2.56, 0.0, "clip_fraction"),  # upper clip at 1.28
        (0.5, 2.0, -1.0, -1.0, None),  # a low ratio with A > 0 is not clipped
        (0.5, -2.0, 1.6, 0.0, "clip_fraction"),  # lower clip at 0.8
        (1.5, -2.0, 3.0, 3.0, None),
        (4.0, -2.0, 6.0, 0.0, "clip_fraction_dual"),  # second clip at 3
    ],
)
def test_regions(ratio: float, advantage: float, loss: float, gradient: float, clipped: str | None) -> None:
    found, slope, metrics = one(ratio, advantage)
    assert found == pytest.approx(loss)
    assert slope == pytest.approx(gradient)
    fractions = {name: metrics[name] for name in ("clip_fraction", "clip_fraction_dual")}
    assert fractions == {name: float(name == clipped) for name in fractions}


def test_without_the_second_clip() -> None:
    assert one(4.0, -2.0, clip_dual=None)[:2] == pytest.approx((8.0, 8.0))


def test_metrics() -> None:
    _, _, metrics = one(1.1, 1.0)
    assert metrics["kl"] == pytest.approx(-math.log(1.1))
    assert metrics["kl_k3"] == pytest.approx(0.1 - math.log(1.1))
    assert metrics["ratio_max"] == pytest.approx(1.1)


@st.composite
def cases(draw: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, length, seed = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(0, 10**6))
    source = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, length, generator=source, dtype=torch.float64) * 3
    new = old + torch.randn(rows, length, generator=source, dtype=torch.float64)
    advantages = torch.randn(rows, length, generator=source, dtype=torch.float64)
    mask = torch.rand(rows, length, generator=source) < draw(st.sampled_from([0.0, 0.6, 1.0]))
    return new, old, advantages, mask


@settings(max_examples=sampling.examples(100))
@given(cases(), st.sampled_from(MODES))
def test_against_loops(case: tuple[Tensor, Tensor, Tensor, Tensor], mode: str) -> None:
    found, _ = dual_clip(*case, aggregation=mode)
    expected = loops.dual_clip(*(tensor.tolist() for tensor in case), mode)  # type: ignore[arg-type, call-arg]
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradcheck(mode: str, weighted: bool) -> None:
    """Numerical and analytical derivatives agree; the ratios avoid the kinks, where there is no derivative."""
    source = torch.Generator().manual_seed(3)
    old = -torch.rand(3, 7, generator=source, dtype=torch.float64)
    ratios = torch.tensor([0.5, 0.9, 1.1, 1.5, 2.5, 4.0, 1.0], dtype=torch.float64).expand(3, 7)
    new = (old + ratios.log()).requires_grad_()
    advantages = torch.randn(3, 7, generator=source, dtype=torch.float64)
    mask = torch.rand(3, 7, generator=source) < 0.7
    weights = torch.rand(3, 7, generator=source, dtype=torch.float64) if weighted else None

    def loss(log_probs: Tensor) -> Tensor:
        return dual_clip(log_probs, old, advantages, mask, aggregation=mode, weights=weights, scale=2.0)[0]

    assert torch.autograd.gradcheck(loss, (new,))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_masked_has_no_value_and_no_gradient(mode: str) -> None:
    new = torch.tensor([[-1.0, math.nan, -math.inf], [math.nan, 3.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-1.0, -1.0, -math.inf], [math.nan, math.nan, -1.0]])
    gains = torch.tensor([[1.0, math.nan, math.inf], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[1, 0, 0], [0, 0, 0]])
    loss, metrics = dual_clip(new, old, gains, mask, aggregation=mode, weights=gains)
    loss.backward()
    assert new.grad is not None
    assert loss.isfinite()
    assert new.grad[0, 0] != 0
    assert new.grad.flatten()[1:].eq(0).all()
    assert all(map(math.isfinite, metrics.values()))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_zero_with_a_gradient_of_zero(mode: str) -> None:
    new = torch.randn(2, 3, requires_grad=True)
    loss, _ = dual_clip(new, torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(2, 3).bool(), aggregation=mode)
    loss.backward()
    assert loss.item() == 0
    assert new.grad is not None
    assert new.grad.eq(0).all()
    empty = torch.zeros(0, 3, requires_grad=True)
    dual_clip(empty, empty, empty, torch.zeros(0, 3).bool(), aggregation=mode)[0].backward()


def test_aggregations_by_hand() -> None:
    loss, mask = (
        torch.tensor([[1.0, 3.0, 9.0], [5.0, 9.0, 9.0], [9.0, 9.0, 9.0]]),
        torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]),
    )
    found = {mode: aggregate(loss, mask, mode).item() for mode in MODES}
    assert found == pytest.approx(
        {
            "token-mean": 3.0,
            "token-sum": 9.0,
            "seq-mean-token-sum": 4.5,
            "seq-mean-token-mean": 3.5,
            "seq-mean-token-sum-norm": 1.5,
        }
    )
    assert aggregate(loss, mask, scale=1000.0).item() == pytest.approx(0.0045)
    assert aggregate(loss, mask, "seq-mean-token-sum-norm", scale=10.0).item() == pytest.approx(0.45)


@pytest.mark.parametrize("mode", MODES)
def test_parts_add_up_to_the_whole(mode: str) -> None:
    loss, mask = torch.randn(6, 5, dtype=torch.float64), torch.rand(6, 5) < 0.6
    mask[1] = False
    whole = aggregate(loss, mask, mode)
    totals = {"tokens": mask.sum().item(), "rows": mask.any(dim=1).sum().item()}
    parts = [aggregate(loss[part], mask[part], mode, **totals) for part in (slice(0, 2), slice(2, 3), slice(3, 6))]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)


def test_one_value_for_each_row() -> None:
    new, old, mask = torch.randn(3, 4), torch.randn(3, 4), torch.ones(3, 4).bool()
    gains = torch.tensor([1.0, -2.0, 0.5])
    expected = dual_clip(new, old, gains[:, None].expand(3, 4), mask)[0]
    assert dual_clip(new, old, gains, mask)[0] == expected
    assert dual_clip(new, old, gains[:, None], mask)[0] == expected


def test_narrow_log_probs_are_summed_wide() -> None:
    new = torch.full((1, 4096), -1.0, dtype=torch.bfloat16, requires_grad=True)
    loss, _ = dual_clip(new, new.detach(), torch.ones(1), torch.ones(1, 4096).bool())
    assert loss.dtype == torch.float32
    assert loss.item() == -4096
    loss.backward()
    assert new.grad is not None
    assert new.grad.dtype == torch.bfloat16


def test_advantages_and_old_policy_get_no_gradient() -> None:
    new, old, gains, weights = (torch.randn(2, 3, requires_grad=True) for _ in range(4))
    dual_clip(new, old, gains, torch.ones(2, 3).bool(), weights=weights)[0].backward()
    assert new.grad is not None
    assert old.grad is gains.grad is weights.grad is None


def test_refusals() -> None:
    x, mask = torch.zeros(2, 3), torch.ones(2, 3).bool()
    with pytest.raises(ShapeError, match="old_log_probs"):
        dual_clip(x, x[:1], x, mask)
    with pytest.raises(ShapeError, match="advantages"):
        dual_clip(x, x, x[:, :2], mask)
    with pytest.raises(ShapeError, match="weights"):
        dual_clip(x, x, x, mask, weights=torch.ones(3))
    with pytest.raises(MaskError):
        dual_clip(x, x, x, mask.float())
    with pytest.raises(OptionError, match="token-mean"):
        dual_clip(x, x, x, mask, aggregation="mean")
    bad: list[dict[str, Any]] = [
        {"clip_low": 1.0},
        {"clip_high": -0.1},
        {"clip_dual": 1.0},
        {"scale": 0.0},
        {"rows": -1.0},
    ]
    for options in bad:
        with pytest.raises(TrainingError):
            dual_clip(x, x, x, mask, **options)
