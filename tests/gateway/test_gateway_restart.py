"""Tests of restarts. Work of a gateway or a rollout outlives a restart of the scheduler, and nothing runs twice."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from kerneldyno.gateway.app import Settings
from kerneldyno.rollout.endpoint import Endpoint
from kerneldyno.rollout.runner import Runner
from kerneldyno.testing.scripted_node import ScriptedNode
from kerneldyno.testing.scripted_node import node as scripted_node
from tests.gateway.gateway_harness import PROBLEMS, PROMPT, REFERENCE, listening, response
from tests.rollout.fake_model import FakeModel, block
from tests.rollout.rollout_harness import config
from tests.scheduler.scheduler_harness import scheduler


class Restartable:
    """A scheduler with a store; it keeps its address after a restart."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{found.getsockname()[1]}"
        self._store = f"sqlite:{folder / 'store.db'}"
        self._outer = stack
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        await self._stack.enter_async_context(scheduler(listen=self.address, store=self._store, drain_seconds=0.1))
        self._outer.push_async_callback(self._stack.aclose)

    async def stop(self) -> None:
        await self._stack.aclose()


async def busy(node: ScriptedNode, count: int) -> None:
    """Wait until the node has started `count` evaluations."""
    async with asyncio.timeout(30):
        while len(node.started) < count:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.02)


async def test_reward_requests_outlive_a_restart(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        restartable = Restartable(tmp_path, stack)
        await restartable.start()
        node = await stack.enter_async_context(scripted_node(restartable.address, "n1", lanes=8))
        url = await stack.enter_async_context(listening(Settings(restartable.address, "kevin", PROBLEMS)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60, trust_env=False))
        asked = [
            asyncio.create_task(
                http.post(
                    "/rm",
                    json={"prompt": PROMPT, "response": response("speedup=2.0 sleep=2", str(i)), "label": "first"},
                )
            )
            for i in range(8)
        ]
        await busy(node, 8)
        await restartable.stop()
        await restartable.start()
        answers = [await one for one in asked]
        assert [answer.json() for answer in answers] == pytest.approx([2.3] * 8)
        assert len(node.started) == 8, "none ran twice"


async def test_a_gateway_that_is_restarted_has_requests_judged_again(tmp_path: Path) -> None:
    """The first gateway cancels a request when it stops; the next gateway still gets a verdict for the same request."""
    async with AsyncExitStack() as stack:
        restartable = Restartable(tmp_path, stack)
        await restartable.start()
        node = await stack.enter_async_context(scripted_node(restartable.address, "n1"))
        settings = Settings(restartable.address, "kevin", PROBLEMS)
        body = {"prompt": PROMPT, "response": response("speedup=2.0 sleep=3"), "label": "first"}
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            async with listening(settings) as url:
                asked = asyncio.create_task(http.post(f"{url}/rm", json=body))
                await busy(node, 1)
            with pytest.raises(httpx.HTTPError):
                (await asked).raise_for_status()
            async with listening(settings) as url:
                assert (await http.post(f"{url}/rm", json=body)).json() == pytest.approx(2.3)


async def test_a_task_is_503_over_a_restart_and_found_again_after_it(tmp_path: Path) -> None:
    task = {"task_id": "a", "reference_code": REFERENCE, "kernel_code": "# speedup=2.0 sleep=3\nclass ModelNew: pass\n"}
    async with AsyncExitStack() as stack:
        restartable = Restartable(tmp_path, stack)
        await restartable.start()
        node = await stack.enter_async_context(scripted_node(restartable.address, "n1"))
        url = await stack.enter_async_context(listening(Settings(restartable.address, "kevin", PROBLEMS)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60, trust_env=False))
        asked = asyncio.create_task(http.post("/evaluate", json=task))
        await busy(node, 1)
        await restartable.stop()
        assert (await asked).status_code == 503
        assert (await http.get("/results/a")).status_code == 503
        await restartable.start()
        async with asyncio.timeout(30):
            while (answer := await http.post("/evaluate", json=task)).status_code == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert answer.json()["speedup"] == 2.0
        assert len(node.started) == 1


async def test_a_rollout_does_not_notice_a_restart(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        restartable = Restartable(tmp_path, stack)
        await restartable.start()
        node = await stack.enter_async_context(scripted_node(restartable.address, "n1", lanes=8))
        model = await stack.enter_async_context(
            FakeModel(lambda prompt: block("speedup=2.0 sleep=1", f"turn = {prompt.turn}"))
        )
        runner = Runner(config(4, turns=2), tmp_path / "run.jsonl", concurrency=4)
        endpoint = await stack.enter_async_context(Endpoint(model.url, "fake"))
        running = asyncio.create_task(runner.run(endpoint, restartable.address))
        await busy(node, 4)
        await restartable.stop()
        await restartable.start()
        await asyncio.wait_for(running, 60)
    assert (runner.counts.finished, runner.counts.without_reward) == (4, 0)
    assert (len(model.prompts), len(node.started)) == (8, 8)
