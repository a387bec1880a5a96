"""Puts a scheduler together, runs it, and stops it in order. `__main__` and the tests use it; it decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kerneldyno.rpc import serving, tracing
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.metric_series import LoopLag, new_registry
from kerneldyno.scheduler.clock import Clock, SystemClock
from kerneldyno.scheduler.core import TICK_SECONDS, Core
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.evaluation_spans import EvaluationSpans, passed_on
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.fleet_service import FleetServicer
from kerneldyno.scheduler.metrics import Metrics
from kerneldyno.scheduler.service import RewardServicer, SchedulerServicer
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.stall import StallAlarm
from kerneldyno.scheduler.store.base import Store
from kerneldyno.scheduler.store.journal import Journal, Retention
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.sqlite import SqliteStore
from kerneldyno.scheduler.transitions import TransitionLog
from kerneldyno.scheduler.translate import fingerprint_of, spec_of
from kerneldyno.scheduler.watch import ClusterWatch
from kerneldyno.scheduler.work import Dispatcher
from kerneldyno.v1 import fleet_service_pb2, reward_service_pb2, scheduler_service_pb2
from kerneldyno.v1.fleet_service_pb2_grpc import add_FleetServiceServicer_to_server
from kerneldyno.v1.reward_service_pb2_grpc import add_RewardServiceServicer_to_server
from kerneldyno.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server
from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

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
    registry = new_registry()
    metrics, lag = Metrics(registry, settings.max_queued), LoopLag(registry)
    clock = clock or SystemClock()
    store = open_store(settings)
    retention = Retention(
        max_results=settings.retain_results, max_bytes=settings.retain_bytes, max_seconds=settings.retain_seconds
    )
    journal = Journal(store, asyncio.get_running_loop(), retention=retention, observer=metrics)
    core = Core(settings, clock, new_name, store, journal, fingerprint=fingerprint_of)
    found = store.recover()
    failpoint("during_recovery")
    core.recover(found, spec_of)
    failpoint("after_recovery")
    spans = tracing.start("kerneldyno-scheduler")
    traced = EvaluationSpans(spans, journal, clock) if spans is not None else None
    desk = Desk(core, store, journal, settings, metrics, new_name, trace=traced.taken_in if traced else None)
    dispatcher = Dispatcher(core, journal, trace=traced.handed_out if traced else passed_on)
    watch = ClusterWatch(core, journal)
    core.observers += [TransitionLog(), metrics, dispatcher, desk, watch]
    if traced is not None:
        core.observers.append(traced)

    server = serving.make_server(ServerInterceptor(registry, _SERVICES, settings.security.gate(settings.listen)))
    add_SchedulerServiceServicer_to_server(SchedulerServicer(desk), server)
    add_FleetServiceServicer_to_server(FleetServicer(desk, dispatcher, watch), server)
    add_RewardServiceServicer_to_server(RewardServicer(desk), server)
    health = await serving.add_health_and_reflection(server, [service.full_name for service in _SERVICES])
    page = None
    try:
        address = serving.listen(server, serving.Address.parse(settings.listen), settings.security.tls)
        page = serving.start_metrics(settings.metrics, registry)
        async with asyncio.TaskGroup() as group:
            alarm = StallAlarm(desk, health)
            jobs = (dispatcher.run(), watch.run(), lag.watch(), _tick(core, desk, metrics, alarm, clock))
            background = [group.create_task(job) for job in jobs]
            await server.start()
            try:
                yield RunningScheduler(core, registry, address, page.address if page else None)
            finally:
                # The order matters: nodes and clients go on being served until what runs is done. What is not done by then
                # goes on at the nodes, for the next scheduler to take up; unless there is nothing it could know it from.
                await health.enter_graceful_shutdown()
                desk.drain()
                watch.close()
                await _until_idle(core, settings.drain_seconds, hurry or asyncio.Event())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_SECONDS):
                        await journal.committed()
                await desk.close(FLUSH_SECONDS)
                if store.name == "memory":
                    dispatcher.cancel_all()
                await dispatcher.close(FLUSH_SECONDS)
                await serving.stop_server(server, health, grace_seconds=GRACE_SECONDS)
                for task in background:
                    task.cancel()
    finally:
        await serving.stop_server(server, health, grace_seconds=0)  # again, should the stop above have been cut short
        if page is not None:
            page.stop()
        await journal.close()
        store.close()
        if spans is not None:
            await asyncio.to_thread(spans.close)


def open_store(settings: Settings) -> Store:
    """Open what `settings.store` names. Raises StoreError."""
    return MemoryStore() if settings.store == "memory" else SqliteStore(settings.store.removeprefix("sqlite:"))


async def _tick(core: Core, desk: Desk, metrics: Metrics, alarm: StallAlarm, clock: Clock) -> None:
    while True:
        core.tick()
        await alarm.look()
        desk.room_made()  # the journal may have caught up
        metrics.sample(core, desk.journal, desk.waiting_calls, clock.monotonic())
        await asyncio.sleep(TICK_SECONDS)


async def _until_idle(core: Core, limit_seconds: float, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    log.info("event=draining running=%d queued=%d limit_seconds=%g", core.running(), len(core.waiting), limit_seconds)
    while core.running() and loop.time() < until and not hurry.is_set():  # noqa: ASYNC110 - three ends, one clock
        await asyncio.sleep(0.02)
