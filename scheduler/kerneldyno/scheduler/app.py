"""Puts a scheduler together, runs it, and stops it in order. `__main__` and the tests use it; it decides nothing."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kerneldyno.rpc import serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.scheduler.clock import Clock, SystemClock
from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.dispatcher import Dispatcher
from kerneldyno.scheduler.metrics import Metrics
from kerneldyno.scheduler.service import FleetServicer, RewardServicer, SchedulerServicer
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.transitions import TransitionLog
from kerneldyno.v1 import fleet_service_pb2, reward_service_pb2, scheduler_service_pb2
from kerneldyno.v1.fleet_service_pb2_grpc import add_FleetServiceServicer_to_server
from kerneldyno.v1.reward_service_pb2_grpc import add_RewardServiceServicer_to_server
from kerneldyno.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

#: Seconds between two looks at leases and waits.
TICK_SECONDS = 0.25
#: Seconds that streams get to send what is finished, and open calls to end, during a stop.
FLUSH_SECONDS = 2.0
GRACE_SECONDS = 5.0

_SERVICES = [
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (scheduler_service_pb2, "SchedulerService"),
        (fleet_service_pb2, "FleetService"),
        (reward_service_pb2, "RewardService"),
    )
]


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """Where a running scheduler is reached."""

    core: Core
    registry: CollectorRegistry
    address: serving.Address
    metrics_address: serving.Address | None


def _random_name() -> str:
    return uuid.uuid4().hex


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    clock: Clock | None = None,
    new_name: Callable[[], str] = _random_name,
    hurry: asyncio.Event | None = None,
) -> AsyncIterator[RunningScheduler]:
    """Serve while the context lasts; leaving it is a graceful stop, which setting `hurry` cuts short.

    `new_name` makes attempt tokens, and ids of requests that came without one.
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    core = Core(settings, clock or SystemClock(), new_name)
    desk = Desk(core, settings, metrics, new_name)
    dispatcher = Dispatcher(core, settings)
    core.observers += [TransitionLog(), metrics, dispatcher, desk]

    server = serving.make_server(ServerInterceptor(registry, _SERVICES))
    add_SchedulerServiceServicer_to_server(SchedulerServicer(desk), server)
    add_FleetServiceServicer_to_server(FleetServicer(desk), server)
    add_RewardServiceServicer_to_server(RewardServicer(), server)
    health = await serving.add_health_and_reflection(server, [service.full_name for service in _SERVICES])
    page = None
    try:
        address = serving.listen(server, serving.Address.parse(settings.listen))
        page = serving.start_metrics(settings.metrics, registry)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(dispatcher.run()), group.create_task(_tick(core, metrics))]
            await server.start()
            try:
                yield RunningScheduler(core, registry, address, page.address if page else None)
            finally:
                # The order matters: nodes and clients go on being served until what runs is done.
                await health.enter_graceful_shutdown()
                desk.drain()
                await _until_idle(core, settings.drain_seconds, hurry or asyncio.Event())
                await desk.close(FLUSH_SECONDS)
                await dispatcher.kill_all()
                await serving.stop_server(server, health, grace_seconds=GRACE_SECONDS)
                for task in background:
                    task.cancel()
    finally:
        await serving.stop_server(server, health, grace_seconds=0)  # again, should the stop above have been cut short
        if page is not None:
            page.stop()


async def _tick(core: Core, metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    lag = 0.0
    while True:
        core.tick()
        metrics.sample(core, lag)
        due = loop.time() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        lag = max(0.0, loop.time() - due)


async def _until_idle(core: Core, limit_seconds: float, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    log.info("event=draining running=%d queued=%d limit_seconds=%g", core.running(), len(core.waiting), limit_seconds)
    while core.running() and loop.time() < until and not hurry.is_set():  # noqa: ASYNC110 - three ends, one clock
        await asyncio.sleep(0.02)
