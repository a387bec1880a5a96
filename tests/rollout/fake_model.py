"""An OpenAI-compatible server on a real port. A test scripts its answers: texts, statuses, hangs, garbage.

async with FakeModel(lambda prompt: f"```python\\n# speedup={prompt.turn + 1}\\n...```") as model:
    Endpoint(model.url, "any")
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.accepting import stop_accepting


@dataclass(frozen=True)
class Prompt:
    """One request to the model."""

    number: int
    """How many came before it."""
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, str]]:
        return self.body["messages"]

    @property
    def turn(self) -> int:
        """Return the number of earlier answers that the prompt shows."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def first(self) -> str:
        """Return the first message of the episode."""
        return self.messages[0]["content"]


@dataclass(frozen=True)
class Reply:
    """An answer that is not plain text. `hang` waits so many seconds first; `breaks` closes the connection halfway."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    breaks: bool = False


Answer = Callable[[Prompt], "str | Reply | Awaitable[str | Reply]"]


class FakeModel:
    """The server. It runs while its `async with` block lasts."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.prompts: list[Prompt] = []
        self.authorizations: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop the server; connections are refused from now on."""
        for server in self._server.servers:
            await stop_accepting(server)
        self._server.should_exit = self._server.force_exit = True
        await self._serving
        self._listener.close()

    async def _complete(self, request: Request) -> Response:
        prompt = Prompt(len(self.prompts), await request.json())
        self.prompts.append(prompt)
        self.authorizations.append(request.headers.get("authorization"))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            reply = self.answer(prompt)
            if inspect.isawaitable(reply):
                reply = await reply
            if isinstance(reply, Reply):
                await asyncio.sleep(reply.hang)
        finally:
            self.at_once -= 1
        return _response(reply)


def completion(text: Any, finish_reason: str = "stop") -> dict[str, Any]:
    """Return the body of a plain answer."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7},
    }


def block(script: str, more: str = "") -> str:
    """Return an answer with a candidate that tells the scripted node what to do."""
    return f"I would write this.\n```python\n# {script}\nclass ModelNew:\n    {more or 'pass'}\n```\n"


def _response(reply: str | Reply) -> Response:
    if isinstance(reply, str):
        return JSONResponse(completion(reply))
    if reply.breaks:
        return StreamingResponse(_half(), headers={"Content-Length": "1000"})
    if isinstance(reply.body, bytes):
        return Response(reply.body, reply.status, reply.headers)
    return Response(json.dumps(reply.body), reply.status, reply.headers, "application/json")


async def _half() -> AsyncIterator[bytes]:
    yield b'{"choices": ['
    raise ConnectionResetError
