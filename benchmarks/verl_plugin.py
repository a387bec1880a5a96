"""Measure what the verl plugin adds to a step: the agent loop's turns in one worker, and the estimator on a batch.

    .venv-trainers/bin/python -W ignore -m benchmarks.verl_plugin [--episodes 256] [--seconds 2] [--json FILE]

The loop: episodes of three turns in one of verl's agent loop workers (one process, one event loop), with a real
scheduler and a scripted node, each in its own process. Judging takes `--seconds` for each turn and the rollout engine
no time, so the rest is the work of verl, the plugin and the services. verl's own loop of one turn, which evaluates
nothing, shows verl's part. The estimators: verl's compute_advantage with ours and with its own, on 256 rows of 26,624
tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from kerneldyno.client import AsyncClient
from kerneldyno.trainers import connection
from tests.trainers import small_models
from tests.trainers import verl_harness as harness

ROOT = Path(__file__).resolve().parents[1]
TURNS = 3
ROWS, SAMPLES, LENGTH = 256, 16, 26_624
#: Seconds between two checks that the event loop is not blocked.
TICK = 0.002


@contextmanager
def services(seconds: float) -> Iterator[str]:
    """Yield the address of a scheduler with a scripted node that has a lane for every episode."""
    command = [sys.executable, "-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0", "--metrics", "off"]
    with _process([*command, "--store", "memory"], subprocess.PIPE) as scheduler:
        assert scheduler.stdout is not None
        words = scheduler.stdout.readline().decode().split()
        address = next(word.removeprefix("grpc=") for word in words if word.startswith("grpc="))
        options = ["--scheduler", address, "--node-id", "n", "--lanes", "1024", "--mean-seconds", str(seconds)]
        with _process([sys.executable, "-m", "kerneldyno.testing", *options], subprocess.DEVNULL):
            asyncio.run(_until_there(address))
            yield address


async def play(address: str, model: Path, episodes: int, agent: str) -> dict[str, Any]:
    """Play the episodes at once; return the durations, and the longest time that the event loop was blocked."""
    turns = [harness.answer(f"speedup={1 + turn} " + "# filler\n" * 150) for turn in range(TURNS)]
    config = harness.config(
        model,
        f"+kerneldyno.address={address}",
        f"+kerneldyno.turns={TURNS}",
        "+kerneldyno.request.skip_cache=true",
        "actor_rollout_ref.rollout.response_length=12000",
    )
    engine = harness.Engine(turns)
    worker = AgentLoopWorker(config, engine)
    rows = [harness.row(uid=f"u{i // SAMPLES}", session_id=i % SAMPLES, agent_name=agent) for i in range(episodes)]
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    params = {"temperature": 1.0, "logprobs": True}
    await worker._run_agent_loop(params, trajectory, trace=False, **rows[0])  # to open the stream and to warm up
    lags: list[float] = []
    watching = asyncio.ensure_future(_watch(lags))
    started = time.perf_counter()
    cpu = time.process_time()
    outputs = await asyncio.gather(*(worker._run_agent_loop(params, trajectory, trace=False, **row) for row in rows))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    watching.cancel()
    await connection.close()
    played = sum(max(len(output.extra_fields["turn_scores"]), 1) for output in outputs)
    return {
        "episodes": episodes,
        "turns": played,
        "seconds": round(seconds, 2),
        "cpu_ms_per_turn": round(1e3 * cpu / played, 2),
        "longest_stall_ms": round(1e3 * max(lags), 1),
        "p99_stall_ms": round(1e3 * sorted(lags)[int(0.99 * len(lags))], 1),
        "generated_tokens_per_turn": int(outputs[0].response_mask.sum()) // (played // episodes),
    }


def estimators(repeat: int = 5) -> dict[str, float]:
    """Measure the processor time of verl's compute_advantage in ms, the least of some runs, by estimator."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
    rewards = torch.zeros(ROWS, LENGTH)
    for turn in range(TURNS):
        begin = turn * 9_000
        mask[:, begin : begin + 8_192] = 1
        rewards[:, begin + 8_191] = torch.rand(ROWS, generator=generator)
    uids = np.array([f"u{i // SAMPLES}" for i in range(ROWS)], dtype=object)
    found = {}
    for name in ("trloo", "kerneldyno_grpo", "grpo", "rloo"):
        times = []
        for _ in range(repeat):
            tensors = {"response_mask": mask, "token_level_rewards": rewards}
            data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})
            started = time.process_time()
            compute_advantage(data, name, config=OmegaConf.create({"gamma": 1.0}))
            times.append(time.process_time() - started)
        found[name] = round(1e3 * min(times), 1)
    return found


async def _watch(lags: list[float]) -> None:
    """Record the delay of each short sleep."""
    clock = asyncio.get_running_loop().time
    while True:
        before = clock()
        await asyncio.sleep(TICK)
        lags.append(clock() - before - TICK)


async def _until_there(address: str) -> None:
    async with asyncio.timeout(60), AsyncClient(address) as client:
        while not any(node.connected for node in await client.nodes()):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.1)


@contextmanager
def _process(command: list[str], stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=stdout, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    """Run both measurements and print the results as JSON."""
    parser = argparse.ArgumentParser(description="Measure what the verl plugin adds to a step.")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of scripted judging, in seconds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, services(options.seconds) as address:
        model = small_models.save(Path(folder))
        agents = ("single_turn_agent", "kernel_agent")
        loops = {agent: asyncio.run(play(address, model, options.episodes, agent)) for agent in agents}
    report = {"loops": loops, "judging_seconds": options.seconds * TURNS, "estimator_cpu_ms": estimators()}
    text = json.dumps(report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
