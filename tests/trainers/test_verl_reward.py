"""Tests of single-turn rewards in verl: the manager `kerneldyno`, and `compute_score` in verl's own manager."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.protocol import DataProto
from verl.trainer.ppo.reward import load_reward_manager

from kerneldyno.testing.scripted_node import node
from kerneldyno.trainers import connection
from kerneldyno.trainers.errors import SampleFailedError, SettingsError
from kerneldyno.verl import dataset
from kerneldyno.verl.manager import KernelDynoRewardManager
from kerneldyno.verl.score import compute_score
from tests.scheduler.scheduler_harness import scheduler
from tests.trainers import small_models
from tests.trainers import verl_harness as harness
from tests.trainers.verl_harness import REFERENCE, answer

#: Length of a padded response, in tokens.
WIDTH = 200
OUTCOMES = ("CORRECT", "INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY", "REJECTED")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=8):
        yield str(app.address)
        await connection.close()


def sample(response: str, **columns: Any) -> DataProto:
    """Return a row as the agent loop worker sends it to a reward worker: right-padded, with its columns."""
    ids = small_models.tokenizer().encode(response)
    prompt = torch.zeros(1, 8, dtype=torch.int64)
    pad = [0] * (WIDTH - len(ids))
    responses = torch.tensor([[*ids, *pad]])
    attention = torch.tensor([[0] * 4 + [1] * 4 + [1] * len(ids) + pad])
    fields = {
        "data_source": "test",
        "reward_model": {"ground_truth": REFERENCE, "style": "rule"},
        "extra_info": {"index": 0, "problem_id": "relu"},
        **columns,
    }
    column = {name: np.array([value], dtype=object) for name, value in fields.items()}
    return DataProto.from_dict(
        tensors={"prompts": prompt, "responses": responses, "attention_mask": attention}, non_tensors=column
    )


async def test_the_manager_is_loaded_by_its_name_and_scores(model: Path, address: str) -> None:
    config = harness.config(model, f"+kerneldyno.address={address}", "reward.reward_manager.name=kerneldyno")
    manager = load_reward_manager(config, small_models.tokenizer())
    assert type(manager) is KernelDynoRewardManager
    scored = await asyncio.gather(*(manager.run_single(sample(answer(f"outcome={one}"))) for one in OUTCOMES))
    assert [one["reward_score"] for one in scored] == [0.5, *[0.0] * 6]
    assert len({tuple(one["reward_extra_info"]) for one in scored}) == 1
    assert all(type(value) is float for one in scored for value in one["reward_extra_info"].values())


async def test_of_several_outputs_the_last_one_is_scored(model: Path, address: str) -> None:
    config = harness.config(model, f"+kerneldyno.address={address}")
    data = DataProto.concat([sample(answer("speedup=3")), sample(answer("speedup=1"))])
    found = await KernelDynoRewardManager(config, small_models.tokenizer()).run_single(data)
    assert found["reward_score"] == 1.0


async def test_rewards_of_one_process_may_differ(address: str) -> None:
    presets = {"drkernel": 1.5, "drkernel_paper": 3.0, "kevin": 2.3}
    for preset, reward in presets.items():
        found = await compute_score("test", answer("speedup=2"), REFERENCE, {}, address=address, reward=preset)
        assert found["score"] == reward


async def test_compute_score_is_verls_custom_reward_function(model: Path, address: str) -> None:
    config = harness.config(
        model,
        "reward.custom_reward_function.path=pkg://kerneldyno.verl.score",
        f"+reward.custom_reward_function.reward_kwargs.address={address}",
        "+reward.custom_reward_function.reward_kwargs.reward=drkernel_paper",
    )
    manager = load_reward_manager(config, small_models.tokenizer())
    assert type(manager) is NaiveRewardManager
    assert inspect.iscoroutinefunction(manager.compute_score) or manager.is_async_reward_score
    data = DataProto.concat([sample("not this one"), sample(answer("speedup=2"))])
    found = await manager.run_single(data)
    assert found["reward_score"] == 3.0
    assert found["reward_extra_info"]["best_speedup"] == 2.0


async def test_two_hundred_at_once_take_as_long_as_their_evaluations(address: str) -> None:
    clock = asyncio.get_running_loop().time
    started = clock()
    calls = [
        compute_score("test", answer(f"sleep=0.05 number={i}"), REFERENCE, {"problem_id": "p"}, address=address)
        for i in range(200)
    ]
    scores = await asyncio.gather(*calls)
    assert {one["score"] for one in scores} == {0.5}
    assert clock() - started < 60


async def test_problems_with_options_come_as_json(address: str) -> None:
    problem = dataset.Problem("relu", REFERENCE, options={"num_perf_trials": 7})
    row = dataset.row(problem, 3, source="set")
    ground_truth = row["reward_model"]["ground_truth"]
    assert ground_truth.startswith("{")
    found = await compute_score("set", answer("speedup=1"), ground_truth, row["extra_info"], address=address)
    assert found["score"] == 1.0
    wrong = ground_truth.replace("7", "-7")
    with pytest.raises(SettingsError, match="num_perf_trials"):
        await compute_score("set", answer(), wrong, row["extra_info"], address=address)


async def test_an_outage_is_an_exception_and_a_wrong_setting_too(model: Path, address: str) -> None:
    failing = answer("outcome=INFRASTRUCTURE_ERROR retryable=no")
    with pytest.raises(SampleFailedError):
        await compute_score("test", failing, REFERENCE, {}, address=address, retries=0)
    with pytest.raises(SampleFailedError):
        await compute_score("test", answer(), REFERENCE, {}, address="127.0.0.1:9", reconnect_seconds=0.5)
    with pytest.raises(SettingsError, match="adress"):
        await compute_score("test", answer(), REFERENCE, {}, adress=address)
    with pytest.raises(SettingsError, match="tuns"):
        load_reward_manager(
            harness.config(model, "+kerneldyno.tuns=1", "reward.reward_manager.name=kerneldyno"),
            small_models.tokenizer(),
        )


async def test_each_event_loop_has_a_connection_of_its_own(address: str) -> None:
    """verl's reward workers run in their own event loops, and a channel belongs to the loop that made it."""

    async def once() -> float:
        found = await compute_score("test", answer("speedup=1"), REFERENCE, {}, address=address)
        await connection.close()
        return found["score"]

    assert await once() == 1.0
    assert await asyncio.to_thread(asyncio.run, once()) == 1.0
    assert await once() == 1.0
