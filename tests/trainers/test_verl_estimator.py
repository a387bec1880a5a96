"""Tests of the estimators in verl's own compute_advantage: by hand, against verl's estimators, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from kerneldyno.trainers.errors import SettingsError
from kerneldyno.trainers.marks import Mark
from kerneldyno.training.advantages import ESTIMATORS
from kerneldyno.training.returns import multi_turn_returns
from kerneldyno.verl import correction

Turn = tuple[int, float]


def batch(episodes: list[list[Turn]], uids: list[str], width: int = 0) -> DataProto:
    """Return a row per episode, given each turn's tokens and reward; two tokens of the environment separate turns."""
    rows = []
    for turns in episodes:
        mask: list[int] = []
        rewards: list[float] = []
        for tokens, reward in turns:
            gap = [0, 0] if mask else []
            mask += [*gap, *[1] * tokens]
            rewards += [*[0.0] * (len(gap) + tokens - 1), reward]
        rows.append((mask, rewards))
    width = max([width, *(len(mask) for mask, _ in rows)])
    tensors = {
        "response_mask": torch.tensor([mask + [0] * (width - len(mask)) for mask, _ in rows]),
        "token_level_rewards": torch.tensor([rewards + [0.0] * (width - len(rewards)) for _, rewards in rows]),
    }
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": np.array(uids, dtype=object)})


def estimated(data: DataProto, name: str = "trloo", **algorithm: Any) -> tuple[torch.Tensor, torch.Tensor]:
    config = OmegaConf.create({"gamma": 1.0, "adv_estimator": name, **algorithm})
    out = compute_advantage(data, adv_estimator=name, gamma=config.gamma, config=config)
    return out.batch["advantages"], out.batch["returns"]


def by_turn(values: torch.Tensor, data: DataProto) -> list[list[float]]:
    """Return the value of each turn; all tokens of a turn must have the same value."""
    found = []
    for row, mask in zip(values, data.batch["response_mask"], strict=True):
        turns: list[list[float]] = []
        for index, one in enumerate(mask.tolist()):
            if one and (index == 0 or not mask[index - 1]):
                turns.append([])
            if one:
                turns[-1].append(row[index].item())
            else:
                assert row[index] == 0, "nothing for what the policy did not write"
        assert all(len(set(turn)) == 1 for turn in turns)
        found.append([turn[0] for turn in turns])
    return found


def test_trloo_by_hand() -> None:
    data = batch([[(2, 1.0), (3, 2.0)], [(1, 0.5), (1, 1.0)], [(4, 3.0)], [(2, 7.0)]], ["a", "a", "a", "b"])
    advantages, returns = estimated(data)
    # In group a, the first turn has returns 3, 1.5 and 3: 3 - (1.5 + 3) / 2, ... Its second has two members; b has one.
    assert by_turn(returns, data) == [[3.0, 2.0], [1.5, 1.0], [3.0], [7.0]]
    assert by_turn(advantages, data) == [[0.75, 1.0], [-1.5, -1.0], [0.75], [7.0]]
    assert advantages.dtype == torch.float32


def test_the_discount_is_the_configurations() -> None:
    data = batch([[(1, 1.0), (1, 1.0), (1, 4.0)], [(2, 0.0)]], ["a", "a"])
    _, returns = estimated(data, gamma=0.5)
    assert by_turn(returns, data) == [[2.5, 3.0, 4.0], [0.0]]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_is_registered_and_is_the_librarys(name: str) -> None:
    generator = torch.Generator().manual_seed(7)
    episodes = [
        [(1 + int(torch.randint(5, (1,), generator=generator)), float(torch.rand(1, generator=generator)))] * 3
        for _ in range(12)
    ]
    uids = [f"p{i % 3}" for i in range(12)]
    data = batch(episodes, uids)
    advantages, _ = estimated(data, f"kerneldyno_{name}", gamma=0.9)
    rewards = torch.tensor([[reward for _, reward in turns] for turns in episodes])
    group = torch.tensor([int(uid[1:]) for uid in uids])
    every = torch.ones_like(rewards, dtype=torch.bool)
    gamma = 0.0 if name == "turn_independent_grpo" else 0.9
    tokens = torch.tensor([[count for count, _ in turns] for turns in episodes])
    options = {"weights": tokens} if name == "optimal_baseline" else {}
    expected = ESTIMATORS[name](multi_turn_returns(rewards, every, gamma), every, group, **options)
    torch.testing.assert_close(torch.tensor(by_turn(advantages, data)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "verls", "options"), [("trloo", "rloo", {}), ("kerneldyno_grpo", "grpo", {"std": False})]
)
def test_with_one_turn_it_is_verls_own(ours: str, verls: str, options: dict[str, bool]) -> None:
    generator = torch.Generator().manual_seed(3)
    episodes = [[(1 + i % 4, float(torch.randn(1, generator=generator)))] for i in range(32)]
    data = batch(episodes, [f"p{i // 8}" for i in range(32)])
    mine, _ = estimated(data, ours)
    config = OmegaConf.create({"gamma": 1.0})
    theirs = compute_advantage(data, verls, config=config, norm_adv_by_std_in_grpo=options.get("std", True))
    torch.testing.assert_close(mine, theirs.batch["advantages"], rtol=1e-5, atol=1e-6)


def test_neither_order_nor_padding_matters() -> None:
    episodes = [[(2, 1.0), (3, 2.0)], [(1, 0.5)], [(4, 3.0), (1, 0.0)], [(2, 7.0)]]
    uids = ["a", "b", "a", "b"]
    plain = by_turn(estimated(one := batch(episodes, uids))[0], one)
    order = [2, 0, 3, 1]
    moved = batch([episodes[i] for i in order], [uids[i] for i in order], width=40)
    assert by_turn(estimated(moved)[0], moved) == [plain[i] for i in order]


def test_the_default_trainers_way_gives_the_same() -> None:
    data = batch([[(2, 1.0), (3, 2.0)], [(1, 0.5), (1, 1.0)]], ["a", "a"])
    config = OmegaConf.create({"gamma": 1.0})
    keys = ["a_0_0", "a_1_0"]
    out = compute_advantage_for_multi_trajectories(data, keys, adv_estimator="trloo", config=config)
    assert by_turn(out.batch["advantages"], data) == by_turn(estimated(data)[0], data) == [[1.5, 1.0], [-1.5, -1.0]]


def test_rows_that_were_rejected_leave_their_group_and_padding_changes_nothing() -> None:
    data = batch([[(2, 1.0)], [(2, 3.0)], [(2, 100.0)], [(1, 0.0)]], ["a", "a", "a", "pad"])
    data.batch["response_mask"][2] = 0
    data.batch["response_mask"][3] = 0
    assert by_turn(estimated(data)[0], data) == [[-2.0], [2.0], [], []]
    data.batch["response_mask"][:] = 0
    advantages, returns = estimated(data)
    assert not advantages.any()
    assert not returns.any()


def test_dropped_turns_stay_in_the_baseline_and_void_ones_do_not() -> None:
    episodes = [[(3, 1.0), (3, 8.0)], [(3, 3.0), (3, 0.0)], [(3, 5.0), (3, 2.0)]]
    data = batch(episodes, ["a", "a", "a"])
    data.batch["token_level_rewards"][0, 0] = Mark.DROPPED.value
    data.batch["token_level_rewards"][1, 5] = Mark.VOID.value
    advantages, returns = estimated(data)
    first, second, third = by_turn(advantages, data)
    # Returns: (9, 8), (3, void), (7, 2). The dropped turn is in the mean of the others; the void turn is no member.
    assert (first[0], second[0], third[0]) == (0.0, 3.0 - 8.0, 7.0 - 6.0)
    assert (first[1], second[1], third[1]) == (6.0, 0.0, -6.0)
    assert by_turn(returns, data) == [[9.0, 8.0], [3.0, 0.0], [7.0, 2.0]]


def test_rewards_on_several_tokens_of_a_turn_are_summed() -> None:
    """A KL penalty in the reward puts rewards on several tokens."""
    data = batch([[(3, 1.0)], [(3, 0.0)]], ["a", "a"])
    data.batch["token_level_rewards"][0] += torch.tensor([-0.25, -0.25, -0.5])
    assert by_turn(estimated(data)[0], data) == [[0.0], [0.0]]


@pytest.mark.parametrize("modes", ["token_k1", "seq_mean_k1,token_k2", " token_k3 "])
def test_rejecting_single_tokens_is_refused_because_it_splits_turns(modes: str) -> None:
    data = batch([[(3, 1.0)], [(3, 0.0)]], ["a", "a"])
    with pytest.raises(SettingsError, match="seq_mean_k1,seq_max_k2"):
        estimated(data, rollout_correction={"rollout_rs": modes, "bypass_mode": False})
    estimated(
        data, rollout_correction={"rollout_rs": modes, "bypass_mode": True}
    )  # in this mode the actor rejects later
    estimated(data, rollout_correction=correction.mrs())
    estimated(data, rollout_correction=None)


def test_a_batch_without_uids_is_refused() -> None:
    data = batch([[(3, 1.0)]], ["a"])
    data.non_tensor_batch.pop("uid")
    with pytest.raises(SettingsError, match="uid"):
        estimated(data)


def test_verl_finds_them_by_name() -> None:
    for name in ("trloo", "kerneldyno_trloo", "kerneldyno_grpo"):
        assert core_algos.get_adv_estimator_fn(name)
