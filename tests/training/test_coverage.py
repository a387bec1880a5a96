"""Tests of PR in each definition, and of PRS: probabilities by hand, reproducible draws, exceptions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kerneldyno.training.coverage import (
    PAPER,
    RELEASE,
    CoverageRule,
    keep_probability,
    profiling_ratio,
    profiling_reward,
    reject,
)
from kerneldyno.training.errors import MaskError, NotFiniteError, OptionError, ShapeError, TrainingError

pytestmark = pytest.mark.pure

#: Columns: a candidate's kernel, a library's kernel, the library's operator row.
DEVICE = torch.tensor([[60.0, 20.0, 20.0], [0.0, 0.0, 0.0]])
HOST = torch.tensor([[5.0, 0.0, 15.0], [0.0, 0.0, 0.0]])
OWN = torch.tensor([[1, 0, 0], [0, 0, 0]])
ALL = torch.ones(1, 5).bool()


def near(found: Tensor, expected: list[float]) -> None:
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_ratio_in_each_definition() -> None:
    near(profiling_ratio(DEVICE, OWN), [0.6, 0.0])
    near(profiling_ratio(DEVICE, OWN, host_us=HOST, definition="release"), [0.5, 0.0])
    near(profiling_ratio(DEVICE, OWN, definition="number"), [1 / 3, 0.0])


def test_padded_profiles() -> None:
    device = torch.tensor([60.0, 40.0, math.nan])
    found = profiling_ratio(device, torch.tensor([1, 0, 1]), valid=torch.tensor([1, 1, 0]))
    near(found, [0.6])
    near(profiling_ratio(device, torch.tensor([1, 0, 1]), valid=torch.tensor([1, 1, 0]), definition="number"), [0.5])


def test_everything_by_itself_reaches_one_in_the_paper_and_not_in_the_release() -> None:
    device, own = torch.tensor([10.0, 30.0]), torch.tensor([1, 1])
    near(profiling_ratio(device, own), [1.0])
    assert profiling_ratio(device, own, host_us=torch.tensor([5.0, 5.0]), definition="release") == pytest.approx(0.8)


def test_reward_is_for_correct_turns_only() -> None:
    near(profiling_reward(torch.tensor([0.8, 0.8, math.nan]), torch.tensor([1, 0, 0])), [0.4, 0.0, 0.0])
    near(profiling_reward(torch.tensor([0.8]), torch.tensor([1]), weight=1.0), [0.8])


def test_soft_and_hard() -> None:
    coverage = torch.tensor([[0.29, 0.3, 0.35, 0.4, 0.9]])
    near(keep_probability(coverage, ALL, ALL), [0.0, 0.0, 0.5, 1.0, 1.0])
    for softness in (None, 0.0):
        near(keep_probability(coverage, ALL, ALL, CoverageRule(softness=softness)), [0.0, 1.0, 1.0, 1.0, 1.0])


def test_the_threshold_itself_is_kept() -> None:
    hard = CoverageRule(softness=None, decimals=2)
    near(
        keep_probability(torch.tensor([[0.3, 0.304, 0.296, 0.294]]), ALL[:, :4], ALL[:, :4], hard), [1.0, 1.0, 1.0, 0.0]
    )


def test_release_rounds_and_paper_does_not() -> None:
    coverage = torch.tensor([[0.3049, 0.3951, 0.296]])
    one = torch.ones(1, 3).bool()
    near(keep_probability(coverage, one, one, RELEASE), [0.0, 1.0, 0.0])
    near(keep_probability(coverage, one, one, PAPER), [0.049, 0.951, 0.0])


def test_incorrect_turns_are_kept_in_the_release_and_dropped_by_the_words_of_the_paper() -> None:
    coverage, correct = torch.tensor([[0.0, 0.0, math.nan]]), torch.tensor([[1, 0, 0]])
    mask = torch.ones(1, 3).bool()
    near(keep_probability(coverage, correct, mask), [0.0, 1.0, 1.0])
    near(keep_probability(torch.zeros(1, 3), correct, mask, PAPER), [0.0, 0.0, 0.0])


def test_fast_turns_are_kept() -> None:
    coverage, correct = torch.zeros(1, 4), torch.tensor([[1, 1, 1, 0]])
    speedups = torch.tensor([[1.0, 1.5, math.nan, 9.0]])
    rule = CoverageRule(speedup_threshold=1.5)
    mask = torch.ones(1, 4).bool()
    near(keep_probability(coverage, correct, mask, rule, speedups=speedups), [0.0, 1.0, 0.0, 1.0])
    literal = CoverageRule(speedup_threshold=1.5, keep_incorrect=False)
    near(keep_probability(coverage, correct, mask, literal, speedups=speedups), [0.0, 1.0, 0.0, 0.0])


def test_geometric_takes_the_episode() -> None:
    coverage = torch.tensor([[0.2, 0.8, math.nan], [0.0, 0.9, 0.9]])
    mask, correct = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = keep_probability(coverage, correct, mask, CoverageRule(level="geometric", softness=0.2))
    assert found[0].tolist() == pytest.approx([0.5, 0.5, 0.0])  # sqrt(0.2 * 0.8) = 0.4
    assert found[1].tolist() == pytest.approx([0.0, 0.0, 1.0])


def test_masked_turns_are_never_kept_and_need_no_coverage() -> None:
    mask = torch.tensor([[0, 1]])
    kept = reject(torch.tensor([[math.nan, 1.0]]), torch.ones(1, 2).bool(), mask, generator=torch.Generator())
    assert kept.tolist() == [[False, True]]


def test_draws_have_the_probability_and_come_from_the_generator() -> None:
    shape = (200, 50)
    coverage, one = torch.full(shape, 0.33), torch.ones(shape).bool()
    first, again, other = (
        reject(coverage, one, one, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.float().mean() == pytest.approx(0.3, abs=0.02)  # 0.02 is 4 standard deviations of 10,000 draws


def test_certain_turns_do_not_depend_on_the_draw() -> None:
    coverage = torch.tensor([[0.0, 1.0]]).expand(5000, 2)
    one = torch.ones(5000, 2).bool()
    kept = reject(coverage, one, one, generator=torch.Generator().manual_seed(0))
    assert not kept[:, 0].any()
    assert kept[:, 1].all()


def test_global_chance_is_left_alone() -> None:
    state = torch.get_rng_state()
    reject(torch.full((4, 3), 0.35), torch.ones(4, 3).bool(), torch.ones(4, 3).bool(), generator=torch.Generator())
    assert torch.equal(state, torch.get_rng_state())


def test_refusals() -> None:
    one = torch.ones(1, 2).bool()
    coverage = torch.tensor([[0.5, math.nan]])
    with pytest.raises(NotFiniteError, match="coverage"):
        keep_probability(coverage, one, one)
    with pytest.raises(MaskError, match="correct"):
        keep_probability(coverage, one.float(), one)
    with pytest.raises(ShapeError, match="correct"):
        keep_probability(coverage, one[:, :1], one)
    with pytest.raises(ShapeError, match="coverage"):
        keep_probability(coverage[0], one[0], one[0])
    with pytest.raises(TrainingError, match="give speedups"):
        keep_probability(torch.ones(1, 2), one, one, CoverageRule(speedup_threshold=1.0))
    with pytest.raises(TrainingError, match="give host_us"):
        profiling_ratio(DEVICE, OWN, definition="release")
    with pytest.raises(OptionError, match="'paper', 'release', 'number'"):
        profiling_ratio(DEVICE, OWN, definition="device")
    with pytest.raises(OptionError):
        CoverageRule(level="episode")  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="softness"):
        CoverageRule(softness=-1.0)
