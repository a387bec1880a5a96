"""Tests of MRS and truncated weights: by hand, against plain loops over random batches in both layouts, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kerneldyno.training import layout
from kerneldyno.training.errors import GroupError, MaskError, NotFiniteError, OptionError, ShapeError, TrainingError
from kerneldyno.training.layout import scattered, turn_by_turn
from kerneldyno.training.masks import turns_of
from kerneldyno.training.mismatch import PAPER, RELEASE, Rule, importance_weights, metrics, reject
from tests import sampling
from tests.training import loops

pytestmark = pytest.mark.pure

LEVELS = ["token", "turn", "turn_geometric", "sequence", "geometric"]


def batch(log_ratios: list[list[float]], rollout: float = -1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return (train, rollout, mask) with these log ratios; shorter rows are padded on the right with NaN."""
    length = max(map(len, log_ratios))
    mask = torch.tensor([[index < len(row) for index in range(length)] for row in log_ratios])
    ratio = torch.tensor([[*row, *[math.nan] * (length - len(row))] for row in log_ratios])
    old = torch.full_like(ratio, rollout)
    return old + ratio, old, mask


def test_levels_by_hand() -> None:
    """Two rows form one episode; the bounds are 1/2 and 2, so log w must be within +-0.693."""
    train, rollout, mask = batch([[0.5, 0.5], [-0.9, 0.1]])
    episodes = torch.tensor([5, 5])
    kept = {
        level: reject(train, rollout, mask, Rule(level, 2.0, None, None), episodes=episodes).mask.int().tolist()  # type: ignore[arg-type]
        for level in LEVELS
    }
    assert kept == {
        "token": [[1, 1], [0, 1]],
        "turn": [[0, 0], [0, 0]],
        "turn_geometric": [[1, 1], [1, 1]],
        "sequence": [[1, 1], [1, 1]],
        "geometric": [[1, 1], [1, 1]],
    }


def test_geometric_judges_the_episode_and_not_the_turn() -> None:
    train, rollout, mask = batch([[0.01] * 4, [-0.01] * 4, [0.01] * 4])
    joined, apart = torch.tensor([0, 0, 1]), None
    assert reject(train, rollout, mask, episodes=joined).mask.any(dim=1).tolist() == [True, True, False]
    assert not reject(train, rollout, mask, episodes=apart).mask.any()
    rule = Rule("turn_geometric", 1.001, 0.999)
    assert not reject(train, rollout, mask, rule, episodes=joined).mask.any()
    close = batch([[8e-4] * 4, [8e-4], [8e-4] * 2], rollout=0.0)  # the mean over tokens, not their sum
    assert reject(*close, episodes=torch.tensor([3, 3, 3])).mask.sum() == 7
    uneven = batch([[2e-3], [0.0] * 3], rollout=0.0)  # and not the mean over turns
    assert reject(*uneven, episodes=torch.tensor([3, 3])).mask.sum() == 4


def test_released_bounds() -> None:
    low, high = math.log(0.999), math.log(1.001)
    train, rollout, mask = batch([[high - 1e-5], [high + 1e-5], [low + 1e-5], [low - 1e-5]], rollout=0.0)
    assert reject(train, rollout, mask).mask[:, 0].tolist() == [True, False, True, False]
    assert Rule("geometric", 1.25, None).log_bounds == pytest.approx((-math.log(1.25), math.log(1.25)))


def test_veto_takes_the_turn_in_the_release_and_the_sequence_in_the_paper() -> None:
    train, rollout, mask = batch([[0.0] * 5, [-10.0, *[2.5] * 4]])  # the mean is 0: only the veto rejects it
    episodes = torch.tensor([1, 1])
    found = reject(train, rollout, mask, RELEASE, episodes=episodes)
    assert found.mask.any(dim=1).tolist() == [True, False]
    assert found.metrics == pytest.approx(
        {
            "masked_fraction": 0.5,
            "turn_masked_fraction": 0.5,
            "sequence_masked_fraction": 1.0,
            "veto_fraction": 0.5,
            "catastrophic_fraction": 0.1,
        }
    )
    assert not reject(train, rollout, mask, PAPER, episodes=episodes).mask.any()
    assert reject(train, rollout, mask, Rule(veto=None), episodes=episodes).mask.all()


def test_veto_is_one_sided() -> None:
    train, rollout, mask = batch([[12.0, -6.0, -6.0], [-12.0, 6.0, 6.0]])
    assert reject(train, rollout, mask).mask.any(dim=1).tolist() == [True, False]


def test_a_token_that_became_impossible_is_vetoed_and_nan_is_refused() -> None:
    train, rollout, mask = batch([[0.0, 0.0], [0.0, 0.0]])
    train[1, 0] = -math.inf
    assert reject(train, rollout, mask).mask.any(dim=1).tolist() == [True, False]
    assert importance_weights(train, rollout, mask, level="sequence")[1].tolist() == pytest.approx([2e-9] * 2, rel=0.1)
    train[0, 0] = math.nan
    with pytest.raises(NotFiniteError, match="log-probabilities"):
        reject(train, rollout, mask)
    for call in (importance_weights, metrics):
        with pytest.raises(NotFiniteError, match="log-probabilities"):
            call(train, rollout, mask)
    mask[0, 0] = False
    reject(train, rollout, mask)


@st.composite
def batches(draw: Any) -> dict[str, Any]:
    """Draw episodes of up to 3 turns; `concatenated` and `row_for_each_turn` lay them out."""
    episodes = draw(st.integers(1, 4))
    shape = [[draw(st.integers(0, 4)) for _ in range(draw(st.integers(1, 3)))] for _ in range(episodes)]
    ratio = st.sampled_from([0.0, 6e-4, -6e-4, 8e-4, -8e-4, 0.002, -0.002, 0.3, -0.3, 2.0, -2.0, -10.0, 10.0])
    rows: list[list[list[float]]] = [[[draw(ratio) for _ in range(count)] for count in turns] for turns in shape]
    gaps = draw(st.booleans())
    return {"episodes": rows, "gaps": gaps, "left": draw(st.integers(0, 2)), "right": draw(st.integers(0, 2))}


def concatenated(case: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return (log ratios, mask), a row per episode: an environment's token after each turn, padding on both sides."""
    rows, masks = [], []
    for turns in case["episodes"]:
        row, mask = [math.nan] * case["left"], [False] * case["left"]
        for tokens in turns:
            row += [*tokens, math.nan]
            mask += [True] * len(tokens) + [False]
        rows.append(row)
        masks.append(mask)
    length = max(map(len, rows)) + case["right"]
    ratio = torch.tensor([row + [math.nan] * (length - len(row)) for row in rows])
    return ratio, torch.tensor([mask + [False] * (length - len(mask)) for mask in masks])


def row_for_each_turn(case: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    turns = [(episode, tokens) for episode, turns in enumerate(case["episodes"]) for tokens in turns]
    length = max(len(tokens) for _, tokens in turns) + case["left"] + case["right"]
    ratio, mask = torch.full((len(turns), length), math.nan), torch.zeros(len(turns), length).bool()
    for index, (_, tokens) in enumerate(turns):
        span = slice(case["left"], case["left"] + len(tokens))
        ratio[index, span], mask[index, span] = torch.tensor(tokens), True
    return ratio, mask, torch.tensor([episode * 7 - 3 for episode, _ in turns])


@settings(max_examples=sampling.examples(150))
@given(
    batches(), st.sampled_from([*LEVELS, None]), st.sampled_from([None, 1e-4]), st.sampled_from(["turn", "sequence"])
)
def test_both_layouts_against_loops(case: dict[str, Any], level: Any, veto: float | None, veto_level: Any) -> None:
    rule = Rule(level, 1.001, 0.999, veto, veto_level)
    flat = [(episode, tokens) for episode, turns in enumerate(case["episodes"]) for tokens in turns]
    expected = loops.rejection(
        [tokens for _, tokens in flat],
        [[0.0] * len(tokens) for _, tokens in flat],
        [[index] * len(tokens) for index, (_, tokens) in enumerate(flat)],
        [episode for episode, _ in flat],
        level=level, lower=0.999, upper=1.001, veto=veto, veto_level=veto_level,
    )  # fmt: skip
    kept = [token for turn in expected for token in turn]

    ratio, mask = concatenated(case)
    whole = reject(ratio, torch.zeros_like(ratio), mask, rule, turns=turns_of(mask))
    assert whole.mask[mask].tolist() == kept
    assert not whole.mask[~mask].any()

    ratio, mask, episodes = row_for_each_turn(case)
    split = reject(ratio, torch.zeros_like(ratio), mask, rule, episodes=episodes)
    assert split.mask[mask].tolist() == kept
    assert split.metrics == pytest.approx(whole.metrics)
    assert all(0 <= figure <= 1 for figure in split.metrics.values())


@settings(max_examples=sampling.examples(60))
@given(batches(), st.sampled_from(LEVELS))
def test_weights_of_both_layouts(case: dict[str, Any], level: Any) -> None:
    ratio, mask = concatenated(case)
    whole = importance_weights(ratio, torch.zeros_like(ratio), mask, level=level, turns=turns_of(mask))
    rows, inside, episodes = row_for_each_turn(case)
    split = importance_weights(rows, torch.zeros_like(rows), inside, level=level, episodes=episodes)
    torch.testing.assert_close(whole[mask], split[inside], rtol=1e-5, atol=0)
    assert whole[~mask].eq(0).all()
    if level == "token" and mask.any():
        torch.testing.assert_close(whole[mask], ratio[mask].exp().clamp(max=2.0), rtol=1e-6, atol=0)


def test_weights_by_hand() -> None:
    train, rollout, mask = batch([[math.log(1.5), math.log(1.2)], [math.log(0.5)]])
    near = pytest.approx
    assert importance_weights(train, rollout, mask).flatten().tolist() == near([1.5, 1.2, 0.5, 0], abs=1e-6)
    sequence = importance_weights(train, rollout, mask, level="sequence").flatten().tolist()
    assert sequence == near([1.8, 1.8, 0.5, 0], abs=1e-6)
    capped = importance_weights(train, rollout, mask, level="sequence", cap=1.6).flatten().tolist()
    assert capped == near([1.6, 1.6, 0.5, 0], abs=1e-6)


def test_metrics_by_hand() -> None:
    train, rollout, mask = batch([[0.1, -0.2], [0.3]], rollout=-2.0)
    found = metrics(train, rollout, mask)
    ratios = [0.1, -0.2, 0.3]
    weights, sequences = [math.exp(x) for x in ratios], [math.exp(-0.1), math.exp(0.3)]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def square(values: list[float]) -> float:
        return mean([value**2 for value in values])

    assert found == pytest.approx(
        {
            "kl": -mean(ratios),
            "kl_k3": mean([math.exp(x) - 1 - x for x in ratios]),
            "chi2_token": square(weights) - 1,
            "chi2_sequence": square(sequences) - 1,
            "ess_token": mean(weights) ** 2 / square(weights),
            "ess_sequence": mean(sequences) ** 2 / square(sequences),
            "ppl_train": mean([math.exp(2 + 0.05), math.exp(2 - 0.3)]),
            "ppl_rollout": math.exp(2),
            "ppl_ratio": mean([math.exp(0.05), math.exp(-0.3)]),
            "log_ratio_min": -0.2,
            "log_ratio_max": 0.3,
        },
        rel=1e-5,
    )
    joined = metrics(train, rollout, mask, episodes=torch.tensor([0, 0]))
    assert joined["chi2_sequence"] == pytest.approx(math.exp(0.4) - 1, rel=1e-5)
    assert joined["ess_sequence"] == pytest.approx(1)


def test_extremes_are_of_tokens_and_not_of_padding() -> None:
    found = metrics(*batch([[0.2, 0.1, 0.3], [0.4]]))
    assert (found["log_ratio_min"], found["log_ratio_max"]) == pytest.approx((0.1, 0.4))
    found = metrics(*batch([[-0.2, -0.1], [-0.4]]))
    assert (found["log_ratio_min"], found["log_ratio_max"]) == pytest.approx((-0.4, -0.1))


def test_metrics_of_equal_policies_are_exact() -> None:
    train, rollout, mask = batch([[0.0] * 1000])
    found = metrics(train, rollout, mask)
    assert (found["kl"], found["kl_k3"], found["chi2_token"], found["ess_token"]) == (0, 0, 0, 1)


def test_small_mismatch_is_not_lost_in_rounding() -> None:
    """k3 of log r = 1e-3 is 5e-7; subtracting 1 from r in float32 would lose these digits."""
    train, rollout, mask = batch([[1e-3] * 4096], rollout=0.0)
    assert metrics(train, rollout, mask)["kl_k3"] == pytest.approx(math.expm1(1e-3) - 1e-3, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_log_probs_are_compared_wide(dtype: torch.dtype) -> None:
    train = torch.tensor([[-0.1, -5.0, -1.0]], dtype=dtype)
    rollout = torch.tensor([[-0.1, -5.0, -1.0]], dtype=dtype)
    mask = torch.ones(1, 3).bool()
    assert reject(train, rollout, mask).mask.all()
    assert importance_weights(train, rollout, mask).dtype == torch.float32
    long = torch.full((1, 8192), -0.001, dtype=dtype), torch.zeros(1, 8192, dtype=dtype)
    kept = reject(*long, torch.ones(1, 8192).bool(), Rule("geometric", 1.002, 0.998))
    assert kept.mask.all()


def test_nothing_left_or_nothing_there() -> None:
    empty = torch.zeros(0, 4)
    found = reject(empty, empty, empty.bool())
    assert found.mask.shape == (0, 4)
    assert set(found.metrics.values()) == {0.0}
    nan = torch.full((2, 3), math.nan)
    assert reject(nan, nan, torch.zeros(2, 3).bool()).metrics["masked_fraction"] == 0
    assert metrics(nan, nan, torch.zeros(2, 3).bool()) == {}


def test_gradient_does_not_flow() -> None:
    train = torch.zeros(2, 3, requires_grad=True)
    weights = importance_weights(train, torch.zeros(2, 3), torch.ones(2, 3).bool())
    assert not weights.requires_grad


def test_inputs_are_not_changed() -> None:
    train, rollout, mask = torch.randn(4, 6), torch.randn(4, 6), torch.rand(4, 6) < 0.7
    before = [tensor.clone() for tensor in (train, rollout, mask)]
    reject(train, rollout, mask, turns=turns_of(mask))
    importance_weights(train, rollout, mask)
    metrics(train, rollout, mask)
    assert all(torch.equal(a, b) for a, b in zip(before, (train, rollout, mask), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_both_ways_to_sum_turns(dtype: torch.dtype) -> None:
    """A CPU scatters, an accelerator sums turn by turn; -1 and anything below is no turn."""
    source = torch.Generator().manual_seed(0)
    turns = torch.randint(-3, 4, (5, 40), generator=source)
    values = torch.randn(5, 40, generator=source).to(dtype)
    by_hand = [[values[row][turns[row] == turn].sum().item() for turn in range(4)] for row in range(5)]
    for sums in (scattered, turn_by_turn):
        assert sums(values, turns, 4).tolist() == [pytest.approx(row, abs=1e-5) for row in by_hand]


@pytest.mark.parametrize("tokens", [1, 7, 2**20])
def test_blocks_are_an_implementation_detail(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = torch.Generator().manual_seed(1)
    train, rollout = (torch.randn(9, 6, generator=source) * 1e-3 for _ in range(2))
    mask = torch.rand(9, 6, generator=source) < 0.8
    episodes, turns = torch.arange(9) // 2, turns_of(mask)
    rule = Rule("turn_geometric", 1.001)
    expected = reject(train, rollout, mask, rule, turns=turns, episodes=episodes)
    weights = importance_weights(train, rollout, mask, level="sequence", episodes=episodes)
    apart = metrics(train, rollout, mask, episodes=episodes)
    assert 0 < expected.mask.sum() < mask.sum()
    monkeypatch.setitem(layout._BLOCK_TOKENS, "cpu", tokens)
    found = reject(train, rollout, mask, rule, turns=turns, episodes=episodes)
    assert torch.equal(found.mask, expected.mask)
    assert found.metrics == expected.metrics
    assert torch.equal(importance_weights(train, rollout, mask, level="sequence", episodes=episodes), weights)
    assert metrics(train, rollout, mask, episodes=episodes) == pytest.approx(apart)


def test_refusals() -> None:
    x, mask = torch.zeros(2, 3), torch.ones(2, 3).bool()
    with pytest.raises(ShapeError, match="rollout has shape"):
        reject(x, x[:, :2], mask)
    with pytest.raises(MaskError):
        reject(x, x, mask.float())
    with pytest.raises(ShapeError, match="a turn of 0 or more"):
        reject(x, x, mask, turns=torch.full((2, 3), -1))
    with pytest.raises(ShapeError, match="turns has shape"):
        reject(x, x, mask, turns=torch.zeros(2).long())
    with pytest.raises(GroupError, match="one id for each row"):
        reject(x, x, mask, episodes=torch.zeros(3).long())
    with pytest.raises(OptionError, match="turn_geometric"):
        importance_weights(x, x, mask, level="turn_geo")  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="cap"):
        importance_weights(x, x, mask, cap=0)
    bad: list[dict[str, Any]] = [
        {"level": "seq"},
        {"veto_level": "row"},
        {"upper": 0.5, "lower": 0.9},
        {"upper": -1.0, "lower": None},
        {"upper": math.nan},
        {"lower": 0.0},
        {"veto": 0.0},
        {"veto": 1.5},
    ]
    for options in bad:
        with pytest.raises(TrainingError):
            Rule(**options)
