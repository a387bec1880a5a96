"""Tests of verl's default trainer (V1) on a CPU, up to the optimizer step.

Ray, TransferQueue, the agent loop worker as an actor, the replay buffer and the advantages are real; a scripted engine
replaces the rollout engine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from kerneldyno.rollout.problems import Problem
from kerneldyno.testing.scripted_node import node
from kerneldyno.verl import correction, dataset
from tests.scheduler.scheduler_harness import scheduler
from tests.trainers import small_models
from tests.trainers import verl_harness as harness
from tests.trainers.verl_harness import Episodes, answer

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
    """A local Ray cluster with a TransferQueue. Its processors are slots, not cores."""
    path = os.pathsep.join([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    variables = {
        name: os.environ[name] for name in ("VERL_USE_EXTERNAL_MODULES", "HF_HUB_OFFLINE") if name in os.environ
    }
    for chance in range(3):
        try:
            ray.init(
                address="local",  # our own cluster, even if others run on this machine
                num_cpus=16,
                include_dashboard=False,
                log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": path, **variables}},
            )
            break
        except Exception as error:  # no narrower type: a busy machine may need longer than Ray's 30 s
            if chance == 2 or "timed out" not in str(error).lower():  # its own start, or its server's
                raise
            ray.shutdown()
    tq.init()
    yield
    tq.close()
    ray.shutdown()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=8, profiling=True):
        yield str(app.address)


def prompts(config: Any, folder: Path, uids: list[str]) -> TensorDict:
    """Return a batch as the trainer fetches it: verl's own data set reads rows of our converter."""
    rows = [dataset.row(Problem(uid, harness.REFERENCE), index, source="test") for index, uid in enumerate(uids)]
    dataset.write(rows, folder / "rows.parquet")
    read = RLHFDataset(str(folder / "rows.parquet"), small_models.tokenizer(), config.data)
    columns = collate_fn([read[index] for index in range(len(read))])
    batch = tensordict_utils.get_tensordict(columns | {"uid": np.array(uids, dtype=object)})
    tensordict_utils.assign_non_tensor_data(batch, "global_steps", 1)
    return batch


async def roll_out(config: Any, folder: Path, scripts: list[list[str]], uids: list[str]) -> None:
    """Do what the trainer does until all samples of `uids` have ended: register, dispatch, wait."""
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 1}] * len(uids)
    await tq.async_kv_batch_put(keys=uids, partition_id="train", tags=tags)
    worker = AgentLoopWorkerTQ.remote(config, Episodes(scripts))
    await worker.generate_sequences.remote(prompts(config, folder, uids))
    async with asyncio.timeout(120):
        while not {"finished", "failure"}.issuperset(statuses := await ended(uids)):
            await asyncio.sleep(0.2)
            assert statuses
    ray.kill(worker)


async def ended(uids: list[str]) -> list[str]:
    found = (await tq.async_kv_list(partition_id="train"))["train"]
    return [found[uid]["status"] for uid in uids]


def sample(buffer: type[ReplayBuffer], mode: str, groups: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    made = buffer(mode, None, None, "drop", None, poll_interval=0.1, refill_fn=lambda count: count, **options)
    return made.sample(global_steps=1, partition_id="train", batch_size=groups)


async def test_turn_rewards_pass_the_queue_and_become_trloo_advantages(
    queue: None, address: str, tmp_path: Path
) -> None:
    model = small_models.save(tmp_path / "model")
    config = harness.config(
        model,
        f"+kerneldyno.address={address}",
        "+kerneldyno.turns=2",
        "+kerneldyno.prs={}",
        "data.max_prompt_length=6000",
        "actor_rollout_ref.rollout.n=3",
    )
    with open_dict(config):
        config.algorithm.rollout_correction = correction.mrs()
    wrong, slow = answer("outcome=INCORRECT"), answer("speedup=1 coverage=0.9")
    fast, lazy = answer("speedup=2 coverage=0.9"), answer("speedup=3 coverage=0.1")
    await roll_out(config, tmp_path, [[wrong, fast], [slow, slow], [slow, lazy]], ["g"])
    batch, _ = sample(ReplayBufferAsync, "colocate_async", 1)
    assert len(batch.keys) == 3

    fields = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["rollout_log_probs"])
    fields["old_log_probs"] = fields.pop("rollout_log_probs")
    tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields)
    metrics: dict[str, Any] = {}
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, metrics)
    assert any("rollout_rs" in name for name in metrics), "verl's rejection has run"

    names = ["advantages", "rm_scores", "response_mask", "extra_fields"]
    found = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
    rewards, advantages = [], []
    for scores, values, mask in zip(found["rm_scores"], found["advantages"], found["response_mask"], strict=True):
        turns = list(harness.runs_of_ones(mask.tolist()))
        assert len(turns) == 2
        rewards.append([round(scores[end - 1].item(), 4) for _, end in turns])
        advantages.append([values[begin].item() for begin, _ in turns])
        assert all(len(set(values[begin:end].tolist())) == 1 for begin, end in turns)
    # 0.5 for a correct answer, half of the speedup (at most 3), half of the coverage.
    known = {(0.0, 1.95): (0, 0), (1.45, 1.45): (0, 0), (1.45, 2.05): (0, 0)}
    assert sorted(map(tuple, rewards)) == sorted(known)
    returns = {one: (sum(one), one[1]) for one in known}
    for one, (first, second) in zip(map(tuple, rewards), advantages, strict=True):
        others = [returns[other] for other in known if other != one]
        expected = [returns[one][t] - sum(other[t] for other in others) / 2 for t in range(2)]
        if one == (1.45, 2.05):
            expected[1] = 0.0  # rejected for its coverage, but in the baseline of the others
        assert (first, second) == pytest.approx(expected, abs=1e-4)
    tq.kv_clear(keys=batch.keys, partition_id="train")


async def test_an_outage_evicts_the_group_and_leaves_the_others(queue: None, address: str, tmp_path: Path) -> None:
    """Asynchronous modes evict the whole group, synchronous mode only the samples that failed."""
    model = small_models.save(tmp_path / "model")
    failing, fine = answer("outcome=INFRASTRUCTURE_ERROR retryable=no"), answer("speedup=1")
    for buffer, mode, left in ((ReplayBufferAsync, "colocate_async", 0), (ReplayBuffer, "sync", 1)):
        config = harness.config(
            model,
            f"+kerneldyno.address={address}",
            "+kerneldyno.turns=1",
            "+kerneldyno.retries=0",
            "data.max_prompt_length=6000",
            "actor_rollout_ref.rollout.n=2",
        )
        uids = [f"{mode.partition('_')[0]}{i}" for i in range(2)]
        await roll_out(config, tmp_path, [[fine], [fine], [fine], [failing]], uids)
        states = await ended(uids)
        assert sorted(states) == ["failure", "finished"]
        batch, metrics = sample(buffer, mode, 1 if left == 0 else 2)
        by_group = {uid: sum(key.startswith(uid) for key in batch.keys) for uid in uids}
        assert sorted(by_group.values()) == [left, 2]
        if left == 0:
            assert metrics["training/rollout_failure/evicted_samples"] == 1
        tq.kv_clear(keys=batch.keys, partition_id="train")
