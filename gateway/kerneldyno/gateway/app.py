"""Routes of the gateway and the module that answers each. This module reads bodies, writes answers and counts requests.

POST /get_reward, ?extra_logs         OpenRLHF           trainers.py
POST /rm, /rm?form=object             slime              trainers.py
POST /evaluate, /evaluate/batch       KernelGYM          kernelgym.py, tasks.py
GET  /status/{id}, /results/{id}      KernelGYM
DELETE /tasks/{id}                    KernelGYM
WS   /ws, POST /reset, /step, GET /state, /schema   OpenEnv       environment.py
GET  /health, /metrics, /
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from kerneldyno.client import AsyncClient
from kerneldyno.client.errors import KernelDynoError
from kerneldyno.gateway.environment import SCHEMA, Environment, Episodes
from kerneldyno.gateway.guard import Guard, Limits
from kerneldyno.gateway.labels import Labels
from kerneldyno.gateway.metrics import Metrics
from kerneldyno.gateway.refusals import (
    Refusal,
    answer_call_error,
    answer_defect,
    answer_http_error,
    answer_refusal,
    bad_request,
)
from kerneldyno.gateway.rewards import MAX_IN_FLIGHT, Rewards
from kerneldyno.gateway.tasks import Tasks
from kerneldyno.gateway.trainers import TrainerRoutes
from kerneldyno.rollout.problems import Problem
from kerneldyno.rpc.version import VERSION
from kerneldyno.v1.reward_service_pb2 import RewardSpec


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a gateway."""

    scheduler: str
    """HOST:PORT of the scheduler, or a list of several of which one serves."""
    reward: str | RewardSpec = "drkernel"
    """Preset or spec of the reward, for the reward routes and the environment."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """Problems by id, which labels can name."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of EvalRequest, in JSON form, used where requests do not set them."""
    turns: int = 3
    """Number of steps of an episode of the environment."""
    client_id: str = "gateway"
    """Scope of ids at the scheduler; a gateway restarted with the same value finds earlier evaluations."""
    loopback_only: bool = True
    """Whether to refuse requests whose Host header is not a loopback name."""
    limits: Limits = field(default_factory=Limits)
    reconnect_seconds: float = 60.0
    """How long the scheduler may be unreachable before requests are answered with 503."""


class Gateway:
    """One running gateway. `app` is the ASGI application; its lifespan opens and closes all connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics(lambda: self._rewards.in_flight if self._rewards is not None else 0)
        self._rewards: Rewards | None = None
        self.app = Starlette(
            routes=self._routes(),
            middleware=[Middleware(Guard, limits=settings.limits, loopback_only=settings.loopback_only)],
            exception_handlers={
                Refusal: answer_refusal,
                KernelDynoError: answer_call_error,
                HTTPException: answer_http_error,
                Exception: answer_defect,
            },
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        settings = self._settings
        client = AsyncClient(
            settings.scheduler,
            client_id=settings.client_id,
            window=MAX_IN_FLIGHT,
            reconnect_timeout=settings.reconnect_seconds,
        )
        async with client, client.reward_stream(settings.reward) as stream, asyncio.TaskGroup() as group:
            rewards = self._rewards = Rewards(stream, settings.options)
            labels = Labels(settings.problems)
            self._trainers = TrainerRoutes(rewards, labels)
            self._tasks = Tasks(client, settings.options)
            backend = str(settings.options.get("backend", "triton"))
            self._environment = Environment(rewards, labels, settings.problems, turns=settings.turns, backend=backend)
            self._episodes = Episodes(self._environment)
            lag = group.create_task(self.metrics.lag.watch())
            try:
                yield
            finally:
                lag.cancel()
                await rewards.close()

    def _routes(self) -> list[Route | WebSocketRoute]:
        def post(path: str, answer: Callable[[Request], Awaitable[Any]]) -> Route:
            return Route(path, self._counted(path, answer), methods=["POST"])

        def get(path: str, answer: Callable[[Request], Awaitable[Any]], method: str = "GET") -> Route:
            return Route(path, self._counted(path, answer), methods=[method])

        return [
            post("/get_reward", self._get_reward),
            post("/rm", self._rm),
            post("/evaluate", self._evaluate),
            post("/evaluate/batch", self._evaluate_batch),
            get("/status/{task_id:path}", self._status),
            get("/results/{task_id:path}", self._results),
            get("/tasks/{task_id:path}", self._cancel, "DELETE"),
            post("/reset", self._reset),
            post("/step", self._step),
            get("/state", self._state),
            get("/schema", self._schema),
            WebSocketRoute("/ws", self._websocket),
            get("/health", self._health),
            Route("/metrics", self._metrics_page),
            get("/", self._about),
        ]

    def _counted(
        self, route: str, answer: Callable[[Request], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a route, which counts requests and converts errors of `answer` to statuses."""
        self.metrics.add_route(route)

        async def endpoint(request: Request) -> Response:
            with self.metrics.request(route) as counted:
                try:
                    data = await answer(request)
                    response: Response = data if isinstance(data, Response) else JSONResponse(data)
                except Refusal as refusal:
                    response = refusal.response()
                except KernelDynoError as error:
                    response = await answer_call_error(request, error)
                counted.status = response.status_code
                return response

        return endpoint

    async def _get_reward(self, request: Request) -> Any:
        with_logs = request.query_params.get("extra_logs") is not None
        return await self._trainers.openrlhf(await _body(request), with_logs=with_logs)

    async def _rm(self, request: Request) -> Any:
        form = request.query_params.get("form", "number")
        if form not in ("number", "object"):
            raise bad_request(f"form={form[:60]!r} is unknown; use number (the default) or object")
        return await self._trainers.slime(await _body(request), as_object=form == "object")

    async def _evaluate(self, request: Request) -> Any:
        return await self._tasks.evaluate(await _body(request))

    async def _evaluate_batch(self, request: Request) -> Any:
        return await self._tasks.evaluate_batch(await _body(request))

    async def _status(self, request: Request) -> Any:
        return await self._tasks.status(request.path_params["task_id"])

    async def _results(self, request: Request) -> Any:
        return await self._tasks.results(request.path_params["task_id"])

    async def _cancel(self, request: Request) -> Any:
        return await self._tasks.cancel(request.path_params["task_id"])

    async def _reset(self, request: Request) -> Any:
        return self._episodes.reset(await _body(request, empty={}))

    async def _step(self, request: Request) -> Any:
        return await self._episodes.step(await _body(request))

    async def _state(self, request: Request) -> Any:
        return self._episodes.state(request.query_params.get("episode_id"))

    async def _schema(self, request: Request) -> Any:
        return SCHEMA

    async def _websocket(self, socket: WebSocket) -> None:
        with self.metrics.session():
            await self._environment.serve(socket)

    async def _health(self, request: Request) -> Any:
        assert self._rewards is not None
        health, status = await self._tasks.health(self._rewards.in_flight, self.metrics)
        return JSONResponse(health, status)

    async def _metrics_page(self, request: Request) -> Response:
        return PlainTextResponse(self.metrics.page(), media_type=self.metrics.media_type)

    async def _about(self, request: Request) -> Any:
        return {"name": "KernelDyno gateway", "version": VERSION, "scheduler": self._settings.scheduler}


async def _body(request: Request, empty: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        Refusal: 400 if the body is not a JSON object.
    """
    raw = await request.body()
    if not raw.strip() and empty is not None:
        return empty
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise bad_request(f"the body must be a JSON object, not {type(data).__name__}")
    return data
