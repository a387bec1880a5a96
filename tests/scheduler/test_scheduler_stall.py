"""Tests of a full disk: health, `top`, `doctor` and waiting clients say that it is full, and when that is over.

The full disk is a limit on the size of the scheduler's files, which can be lifted while it runs.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kerneldyno.client import AsyncClient, EvalRequest, turn
from kerneldyno.deploy.health import main as health
from kerneldyno.testing.scripted_node import node
from tests.waiting import eventually

FULL = "the store cannot be written"


@asynccontextmanager
async def scheduler_on(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Run a scheduler process with its journal in `folder`; yield its process id and its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0", "--metrics", "off"),
        *("--store", f"sqlite:{folder / 'journal.sqlite'}", "--exit-with-parent", "--drain-timeout", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        yield process.pid, line.split("grpc=")[1].split()[0]
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def full_disk(pid: int) -> AsyncIterator[None]:
    """Keep the files of the process from growing."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def kerneldyno(*arguments: str) -> tuple[int, str, str]:
    """Run a command to its end; return its exit status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_everything_that_looks_says_that_the_journal_is_stalled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("reference.py", "candidate.py"):
        (tmp_path / name).write_text("pass")
    sources = (str(tmp_path / "reference.py"), str(tmp_path / "candidate.py"))
    async with scheduler_on(tmp_path) as (pid, address), node(address, "n1") as fake:
        await fake.at_work.wait()
        assert await asyncio.to_thread(health, [address]) == 0
        async with full_disk(pid):
            waits = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kerneldyno.cli", "evaluate", *sources, "--address", address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert waits.stderr is not None
            said = (await asyncio.wait_for(waits.stderr.readline(), 60)).decode()
            assert said.startswith("kerneldyno: waiting: the scheduler cannot write its journal")
            assert FULL in said
            assert await asyncio.to_thread(health, [address]) == 1
            assert (
                "NOT_SERVING: it is shutting down, or it is a scheduler that cannot write its journal"
                in capfd.readouterr().err
            )
            service = ["--service", "kerneldyno.v1.SchedulerService"]
            assert await asyncio.to_thread(health, [address, *service]) == 1
            nodes = ["--service", "kerneldyno.v1.FleetService"]
            assert await asyncio.to_thread(health, [address, *nodes]) == 0, "nodes are served as ever"
            assert await asyncio.to_thread(health, [address, "--service", "readiness"]) == 1
            assert await asyncio.to_thread(health, [address, "--service", "liveness"]) == 0, "no reason to restart it"
            _, shown, _ = await kerneldyno("top", "--once", "--address", address)
            assert "JOURNAL STALLED" in shown
            _, shown, _ = await kerneldyno("top", "--once", "--json", "--address", address)
            assert FULL in json.loads(shown)["journal_stalled"]
            status, shown, _ = await kerneldyno("doctor", "--no-canary", "--json", "--address", address)
            (found,) = [check for check in json.loads(shown) if check["name"] == "scheduler"]
            assert (status, found["state"]) == (1, "failed")
            assert FULL in found["detail"]
            _, shown, _ = await kerneldyno("describe", "--address", address)
            assert "STALLED" in shown
            status, _, said = await kerneldyno("evaluations", "--address", address)
            assert status == 1
            assert "cannot write its journal" in said
            late = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kerneldyno.cli", "evaluate", *sources, "--address", address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert late.stderr is not None
            assert FULL in (await asyncio.wait_for(late.stderr.readline(), 60)).decode(), "told as it connects"
        for process in (waits, late):
            out, err = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0
            assert "CORRECT" in out.decode()
            assert err.decode() == "kerneldyno: the scheduler can write its journal again\n"
        for _ in range(100):  # the scheduler updates its health from time to time
            if (healthy := await asyncio.to_thread(health, [address])) == 0:
                break
            await asyncio.sleep(0.2)
        assert healthy == 0
        _, shown, _ = await kerneldyno("top", "--once", "--json", "--address", address)
        assert json.loads(shown)["journal_stalled"] is None


async def test_a_trainers_stream_is_told_too(tmp_path: Path) -> None:
    told: list[str] = []
    async with (
        scheduler_on(tmp_path) as (pid, address),
        node(address, "n1") as fake,
        AsyncClient(address, on_stalled=told.append) as client,
    ):
        await fake.at_work.wait()

        async def judge() -> list[bool]:
            request = EvalRequest(id="a", reference_code="ref", kernel_code="id=a")
            turns = [turn("g", 0, 0, reference_code="ref", kernel_code="id=b")]
            answers = [answer.HasField("reward") async for answer in client.rewards(turns)]
            return answers + [result.correct async for result in client.evaluate([request])]

        async with full_disk(pid):
            judging = asyncio.create_task(judge())
            await eventually(lambda: told)
            assert FULL in told[0]
            assert not judging.done()
        assert await judging == [True, True]
        assert told[-1] == ""
