"""Run one training step through the reward stream; check that no turn is lost and the trainer's event loop keeps going.

    python -m benchmarks.rewards [--only step,episodes,crash,real] [--seconds 6] [--json FILE]

16 prompts x 16 samples x 3 turns. The scheduler (SQLite journal) and the nodes are separate processes; this process is
the trainer: one event loop, one client. Responses have 8 to 50 kB, references 2 kB. In the first three rows judging is
scripted: 8 nodes with 8 lanes each, `--seconds` +- 70 % for each candidate (a busy H200 takes 6 s with stress inputs
and timing); one speedup in 30 is measured again, and one response in 30 has no code.

Rows:
    step       all 768 turns at once, by client.rewards()
    episodes   256 episodes of 3 turns on one reward_stream(); each turn follows the feedback on the previous one
    crash      as `step`; the scheduler is killed half-way and started again
    real       as `episodes`, judged by the real evaluator on the CPU device (`--real-episodes` of them, 3 turns each)

A heartbeat of 1 ms runs in the trainer's event loop. `late` is its delay, which an agent loop would see too; it
includes pauses by other processes of the machine. `control` is the same in a process that does nothing else. `held` is
the processor time of the loop's thread between two beats: the work that was done without yielding.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from benchmarks.service import spawned
from kerneldyno.client import AsyncClient, LocalServices, RewardStream, StreamRewardsResponse, Turn, turn
from kerneldyno.v1.evaluation_pb2 import EvalResult

PROMPTS, SAMPLES, TURNS = 16, 16, 3
NODES, LANES = 8, 8
BEAT_SECONDS = 0.001
REAL_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
REAL = ("return x * 2 + 1", "return x + x + 1", "return x * 2", "raise ValueError('no')", "return x.repeat(2, 1)")


@dataclass
class Row:
    """Measurements of one row."""

    name: str
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    """From handing a turn over to its answer, in seconds."""
    answers: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    unpaid: int = 0
    remeasured: int = 0
    late: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    control_ms: dict[str, float] = field(default_factory=dict)

    def take(self, answer: StreamRewardsResponse, wait: float) -> None:
        """Record an answer."""
        self.waits.append(wait)
        self.answers[answer.group, answer.sample, answer.turn_index] += 1
        self.outcomes[EvalResult.Outcome.Name(answer.result.outcome)] += 1
        self.unpaid += not answer.HasField("reward")
        self.remeasured += answer.HasField("remeasured")

    def figures(self, expected: int) -> dict[str, Any]:
        """Return the reported figures."""
        return {
            "row": self.name,
            "turns": expected,
            "lost": expected - len(self.answers),
            "twice": sum(self.answers.values()) - len(self.answers),
            "without_reward": self.unpaid,
            "remeasured": self.remeasured,
            "outcomes": dict(self.outcomes.most_common()),
            "seconds": round(self.seconds, 2),
            "wait_seconds": _percentiles(self.waits, 1.0),
            "late_ms": _percentiles(self.late, 1e3),
            "held_ms": _percentiles(self.held, 1e3),
            "control_ms": self.control_ms,
        }


def _percentiles(values: list[float], scale: float) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    at = {name: min(len(ordered) - 1, int(share * len(ordered))) for name, share in shares.items()}
    return {name: round(scale * ordered[index], 3) for name, index in at.items()}


# The trainer: one event loop with a heartbeat


@asynccontextmanager
async def measured(row: Row) -> AsyncIterator[None]:
    """Time the block, with a heartbeat in this event loop and one in another process."""
    pipe = asyncio.subprocess.PIPE
    control = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.rewards", "--control", stdin=pipe, stdout=pipe
    )
    await asyncio.sleep(2)  # until the control process has started
    gc.collect()
    beating = asyncio.create_task(_beat(row))
    begun = time.monotonic()
    try:
        yield
    finally:
        row.seconds = time.monotonic() - begun
        beating.cancel()
        told, _ = await control.communicate(b"")
        row.control_ms = json.loads(told)


async def _control() -> None:
    row = Row("control")
    beating = asyncio.create_task(_beat(row))
    await asyncio.to_thread(sys.stdin.read)
    beating.cancel()
    print(json.dumps(_percentiles(row.late, 1e3)))


async def _beat(row: Row) -> None:
    while True:
        due, used = time.monotonic() + BEAT_SECONDS, time.thread_time()
        await asyncio.sleep(BEAT_SECONDS)
        row.late.append(time.monotonic() - due)
        row.held.append(time.thread_time() - used)


Write = Callable[[str, int, int, str], Turn]


async def whole_step(client: AsyncClient, row: Row, write: Write) -> None:
    """Score all turns at once."""
    turns = [
        write(f"prompt {group}", index, number, "")
        for group in range(PROMPTS)
        for index in range(SAMPLES)
        for number in range(TURNS)
    ]
    async with measured(row):
        begun = time.monotonic()
        async for answer in client.rewards(turns, "kevin", on_missing="yield"):
            row.take(answer, time.monotonic() - begun)


async def episodes(client: AsyncClient, row: Row, write: Write, count: int = PROMPTS * SAMPLES) -> None:
    """Play all episodes concurrently, the turns of each one after the other."""

    async def episode(stream: RewardStream, one: Turn) -> None:
        for number in range(TURNS):
            begun = time.monotonic()
            answer = await stream.score(one)
            row.take(answer, time.monotonic() - begun)
            one = write(one.group, one.sample, number + 1, answer.feedback)

    firsts = [write(f"prompt {number % PROMPTS}", number // PROMPTS, 0, "") for number in range(count)]
    async with client.reward_stream("kevin") as stream, measured(row):
        await asyncio.gather(*(episode(stream, first) for first in firsts))


def scripted(group: str, index: int, number: int, told: str) -> Turn:
    """Return a response whose candidate is a script for the scripted node."""
    draw = random.Random(f"{group} {index} {number}")
    words = " thinking about tiles" * draw.randrange(400, 2000)
    if draw.random() < 1 / 30:
        return turn(group, index, number, reference_code="# reference\n" * 170, response_text=words)
    outcome = draw.choices(["CORRECT", "INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR"], [5, 3, 2, 1])[0]
    speedup = 9 if draw.random() < 1 / 30 else round(draw.uniform(0.5, 2), 2)
    script = f"outcome={outcome} speedup={speedup} again.speedup=1.1 size=500 {group} {index} {number} {len(told)}"
    code = f"class ModelNew:  # {script}\n    pass\n" + "    # more\n" * draw.randrange(100, 600)
    return turn(
        group,
        index,
        number,
        reference_code=f"# {group}\n" + "# reference\n" * 170,
        response_text=f"{words}\n```python\n{code}```\n",
    )


def real(group: str, index: int, number: int, told: str) -> Turn:
    """Return a response with a program that runs in milliseconds."""
    body = REAL[(index + number) % len(REAL)]
    code = f"import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
    response = f"{told}\n```python\n{code}# {group} {index} {number}\n```\n"
    fields: dict[str, Any] = {"backend": "torch", "num_correct_trials": 2, "num_perf_trials": 5, "num_warmup": 1}
    return turn(group, index, number, reference_code=REAL_REFERENCE, response_text=response, **fields)


# Services and rows


@contextlib.contextmanager
def scheduler(journal: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a scheduler; yield its address and its process."""
    command = [sys.executable, "-m", "kerneldyno.scheduler", "--listen", listen, "--metrics", "off"]
    command += ["--store", f"sqlite:{journal}", "--log-level", "ERROR", "--exit-with-parent"]
    with spawned(command, subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().split("grpc=")[1].split()[0], process


async def run_scripted(row: Row, seconds: float, *, crash: bool = False) -> None:
    """Run a row with scripted judging."""
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(tempfile.TemporaryDirectory(prefix="kerneldyno-rewards-")) + "/scheduler.sqlite"
        address, process = stack.enter_context(scheduler(journal))
        command = [sys.executable, "-m", "kerneldyno.testing", "--scheduler", address, "--node-id", "n"]
        command += ["--nodes", str(NODES), "--lanes", str(LANES), "--mean-seconds", str(seconds), "--spread", "0.7"]
        stack.enter_context(spawned(command))
        async with AsyncClient(address, window=4096) as client:
            await _nodes(client, NODES)
            step: Awaitable[None] = (episodes if row.name == "episodes" else whole_step)(client, row, scripted)
            running = asyncio.ensure_future(step)
            if crash:
                while len(row.waits) < PROMPTS * SAMPLES * TURNS // 2:  # noqa: ASYNC110 - the row grows
                    await asyncio.sleep(0.05)
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(process.wait)
                await asyncio.to_thread(stack.enter_context, scheduler(journal, address))
            await running


async def run_real(row: Row, count: int) -> None:
    """Run a row with real judging."""
    with contextlib.ExitStack() as stack:
        services = await asyncio.to_thread(stack.enter_context, LocalServices(devices="cpu"))
        async with AsyncClient(services.address) as client:
            await episodes(client, row, real, count)


async def _nodes(client: AsyncClient, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                listed = await client.nodes()
                if len(listed) == count and all(node.connected for node in listed):
                    return
            await asyncio.sleep(0.1)


# The command and its report


def main() -> int:
    """Run the rows; return 1 if a turn was lost or answered twice."""
    parser = argparse.ArgumentParser(description="Run a training step through the reward stream.")
    parser.add_argument("--only", default="step,episodes,crash,real")
    parser.add_argument("--seconds", type=float, default=6.0, help="average duration of scripted judging, in seconds")
    parser.add_argument("--real-episodes", type=int, default=PROMPTS * SAMPLES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.control:
        asyncio.run(_control())
        return 0
    found = []
    for name in options.only.split(","):
        row, expected = Row(name), PROMPTS * SAMPLES * TURNS
        if name == "real":
            expected = options.real_episodes * TURNS
            asyncio.run(run_real(row, options.real_episodes))
        else:
            asyncio.run(run_scripted(row, options.seconds, crash=name == "crash"))
        found.append(row.figures(expected))
        _show(found[-1], first=len(found) == 1)
    print(json.dumps(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(one["lost"] or one["twice"] for one in found))


_HEADS = (
    *("row", "turns", "lost", "twice", "no reward", "measured again", "step", "wait p50 / p90 / p99 / max"),
    *("late p50 / p99 / max", "control p50 / p99 / max", "held p50 / p99 / max"),
)


def _show(one: dict[str, Any], *, first: bool) -> None:
    if first:
        print(f"| {' | '.join(_HEADS)} |\n|{' --- |' * len(_HEADS)}")
    wait = " / ".join(f"{one['wait_seconds'][name]:.1f}" for name in ("p50", "p90", "p99", "max"))
    keys = ("late_ms", "control_ms", "held_ms")
    loop = [" / ".join(f"{one[key][name]:.1f}" for name in ("p50", "p99", "max")) + " ms" for key in keys]
    counts = [one[key] for key in ("row", "turns", "lost", "twice", "without_reward", "remeasured")]
    cells = [*counts, f"{one['seconds']:.1f} s", f"{wait} s", *loop]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
