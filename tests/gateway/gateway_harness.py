"""A gateway on a real port, a real scheduler with a scripted node, and requests as trainers send them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from kerneldyno.gateway.app import Gateway, Settings
from kerneldyno.rollout.problems import Problem
from kerneldyno.scheduler.app import RunningScheduler
from kerneldyno.testing.scripted_node import ScriptedNode
from kerneldyno.testing.scripted_node import node as scripted_node
from tests.accepting import stop_accepting
from tests.scheduler.scheduler_harness import scheduler

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.randn(8)]
"""
PROBLEMS = {name: Problem(name, REFERENCE + f"# {name}\n") for name in ("first", "second", "third")}
PROMPT = (
    "Make this faster. "
    + "The program is short, and its words are many. " * 4
    + "\n```python\nclass Model: ...\nclass ModelNew:\n    # the example\n    ...\n```\nAnswer:\n"
)


def response(script: str = "speedup=2.0", mark: str = "") -> str:
    """Return a model's answer with a candidate that tells the scripted node what to do."""
    return f"Here it is {mark}\n```python\n# {script}\nclass ModelNew:\n    pass  # {mark}\n```\nDone."


@dataclass
class Served:
    """A running gateway, with its HTTP client, node and scheduler."""

    url: str
    http: httpx.AsyncClient
    node: ScriptedNode
    app: RunningScheduler
    stop_scheduler: Callable[[], Awaitable[None]]
    """Ends the scheduler, and the node with it."""

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def get_reward(self, *pairs: tuple[str, Any], query: str = "") -> httpx.Response:
        """Post pairs of response and label as OpenRLHF does."""
        body = {
            "query": [f"<s>{PROMPT}{text}<|im_end|>" for text, _ in pairs],
            "prompts": [PROMPT] * len(pairs),
            "labels": [label for _, label in pairs],
        }
        return await self.post(f"/get_reward{query}", body)

    async def rm(self, text: str, label: Any, query: str = "") -> httpx.Response:
        """Post a response and its label as slime does."""
        return await self.post(f"/rm{query}", {"prompt": PROMPT, "response": text, "label": label})


@asynccontextmanager
async def listening(settings: Settings) -> AsyncIterator[str]:
    """Run a gateway in this process, and yield its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        config = uvicorn.Config(
            Gateway(settings).app,
            log_level="warning",
            lifespan="on",
            ws="websockets-sansio",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
            assert not serving.done(), serving.result()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for listening_server in server.servers:
                await stop_accepting(listening_server)
            server.should_exit = True
            await serving
            await asyncio.sleep(0.02)  # the event loop needs a moment to close the server's connections


@asynccontextmanager
async def gateway(
    changes: Mapping[str, Any] | None = None, node: Mapping[str, Any] | None = None, **scheduler_changes: Any
) -> AsyncIterator[Served]:
    """Run a scheduler, a node and a gateway, with an HTTP client."""
    async with AsyncExitStack() as stack:
        app, _ = await stack.enter_async_context(scheduler(**scheduler_changes))
        running = await stack.enter_async_context(
            scripted_node(app.address, "n1", **{"lanes": 8, "speedup": 1.0, **(node or {})})
        )
        settings = Settings(str(app.address), **{"reward": "kevin", "problems": PROBLEMS, **(changes or {})})
        async with listening(settings) as url, httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            await asyncio.wait_for(running.at_work.wait(), 20)
            yield Served(url, http, running, app, stack.aclose)
