"""A scheduler with a scripted node, and rollouts with a scripted model: in this process, or by the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneldyno.rewards import presets
from kerneldyno.rewards.trajectories import Trajectory, TurnRecord, read
from kerneldyno.rollout.config import RolloutConfig
from kerneldyno.rollout.endpoint import Endpoint
from kerneldyno.rollout.problems import Problem
from kerneldyno.rollout.runner import Runner
from kerneldyno.testing.scripted_node import ScriptedNode
from kerneldyno.testing.scripted_node import node as scripted_node
from tests.rollout.fake_model import FakeModel, Prompt
from tests.scheduler.scheduler_harness import scheduler

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.randn(8)]
"""


def problems(count: int) -> list[Problem]:
    """Return problems p0, p1, ...; the prompt of each contains "MARK p0" and so on."""
    return [Problem(f"p{index}", f"{REFERENCE}# MARK p{index} .\n") for index in range(count)]


def problem_of(prompt: Prompt) -> str:
    """Return the id of the problem that a prompt is about; "" if it is about none."""
    return (prompt.first.partition("MARK ")[2].split() or [""])[0]


def config(count: int = 2, **changes: Any) -> RolloutConfig:
    """Return the configuration of a run with the kevin preset: 0.3 for a correct candidate, plus its speedup."""
    fields = {"model": "fake", "problems": problems(count), "reward": presets.spec("kevin"), **changes}
    return RolloutConfig(**fields)


@dataclass
class World:
    """The services that rollouts need, and the path of the trajectory file."""

    address: str
    node: ScriptedNode
    path: Path

    async def run(self, config: RolloutConfig, model: FakeModel, *, concurrency: int = 4, **endpoint: Any) -> Runner:
        """Run a rollout to its end, in this process."""
        runner = Runner(config, self.path, concurrency=concurrency)
        async with Endpoint(model.url, config.model, **{"timeout": 20.0, **endpoint}) as connection:
            await runner.run(connection, self.address)
        return runner

    @property
    def turns(self) -> list[TurnRecord]:
        """Return all recorded turns, in the order of the file."""
        return read(self.path).turns

    @property
    def episodes(self) -> dict[tuple[str, int], Trajectory]:
        return {(one.group, one.sample): one for one in read(self.path).trajectories()}


@asynccontextmanager
async def world(tmp_path: Path, node: dict[str, Any] | None = None, **scheduler_changes: Any) -> AsyncIterator[World]:
    """Run a scheduler with one node."""
    async with AsyncExitStack() as stack:
        app, _ = await stack.enter_async_context(scheduler(**scheduler_changes))
        running = await stack.enter_async_context(
            scripted_node(app.address, "n1", **{"lanes": 8, "speedup": 1.0, **(node or {})})
        )
        await asyncio.wait_for(running.at_work.wait(), 20)
        yield World(str(app.address), running, tmp_path / "run.jsonl")


def write_problems(folder: Path, count: int) -> Path:
    """Write the same problems to a file, and return its path."""
    path = folder / "problems.jsonl"
    rows = [{"id": one.id, "reference_code": one.reference_code} for one in problems(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str


async def start(*arguments: object, **environment: str) -> asyncio.subprocess.Process:
    """Start `kerneldyno ARGUMENTS`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kerneldyno.cli",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "160", **environment},
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    """Wait for the end of a command."""
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def command(*arguments: object, **environment: str) -> Ended:
    """Run `kerneldyno ARGUMENTS` to its end."""
    return await ended(await start(*arguments, **environment))
