"""Tests of `kerneldyno gateway` as a process: its ready line, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.gateway.gateway_harness import REFERENCE, gateway, response


@asynccontextmanager
async def started(*arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.cli", "gateway", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "160"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(*arguments: object) -> tuple[int | None, str]:
    async with started(*arguments) as process:
        _, err = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, err.decode()


def problem_file(folder: Path) -> Path:
    path = folder / "problems.jsonl"
    path.write_text(json.dumps({"id": "mine", "reference_code": REFERENCE}) + "\n")
    return path


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
    async with gateway() as around:
        arguments = ["--listen", "127.0.0.1:0", "--scheduler", around.app.address, "--reward", "kevin"]
        async with started(*arguments, "--problems", problem_file(tmp_path), "--client-id", "own") as process:
            assert process.stdout is not None
            line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            assert line.startswith("gateway http://127.0.0.1:")
            assert "1 problems" in line
            async with httpx.AsyncClient(base_url=line.split()[1], trust_env=False, timeout=30) as http:
                answer = await http.post("/rm", json={"prompt": "", "response": response(), "label": "mine"})
                assert answer.json() == pytest.approx(2.3)
                assert (await http.post("/rm", json={"response": "x", "label": "first"})).status_code == 400
            process.send_signal(stop)
            _, err = await asyncio.wait_for(process.communicate(), 30)
            assert process.returncode in (0, 128 + stop, -stop), err
            assert b"Traceback" not in err


USAGE = [
    (["--listen", "0.0.0.0:8080"], 2, "--insecure"),
    (["--listen", "nowhere"], 2, "HOST:PORT"),
    (["--scheduler", "http://127.0.0.1:50051"], 2, "without http://"),
    (["--problems", "missing.jsonl"], 2, "No such file"),
    (["--reward", "fortune"], 2, "is not known"),
    (["--request", '{"colour": 1}'], 2, "unknown field"),
    (["--request", '{"num_perf_trials": 0}'], 2, "num_perf_trials"),
]


@pytest.mark.parametrize(("arguments", "status", "complaint"), USAGE, ids=[" ".join(u[0]) for u in USAGE])
async def test_what_it_refuses(arguments: list[str], status: int, complaint: str) -> None:
    code, err = await ended("--listen", "127.0.0.1:0", *arguments)
    assert (code, complaint in err) == (status, True), err
    assert "Traceback" not in err


async def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, err = await ended("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (code, "cannot listen on" in err) == (3, True), err
