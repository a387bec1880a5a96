"""Builds a scheduler from its parts, runs it, and stops it in order. `__main__` and the tests use it; it decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from kerneldyno.rpc import serving, tracing
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.metric_series import LoopLag, new_registry
from kerneldyno.scheduler.clock import Clock, SystemClock
from kerneldyno.scheduler.core.core import TICK_SECONDS, Core
from kerneldyno.scheduler.core.ports import Store
from kerneldyno.scheduler.failpoints import failpoint
from kerneldyno.scheduler.probes import PROBES
from kerneldyno.scheduler.roles import ActiveRole
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.build_orders import BuildOrders
from kerneldyno.scheduler.service.cluster_watch import ClusterWatch
from kerneldyno.scheduler.service.dispatcher import Dispatcher
from kerneldyno.scheduler.service.fleet_servicer import FleetServicer
from kerneldyno.scheduler.service.journal_health import JournalHealth
from kerneldyno.scheduler.service.scheduler_servicer import RewardServicer, SchedulerServicer
from kerneldyno.scheduler.service.translate import fingerprint_of, spec_of
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.shared import SERVICES, ServedHolding, holding_of, shared_store
from kerneldyno.scheduler.store.journal import GroupCommitJournal, Retention
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.scheduler.store.sqlite import SqliteStore
from kerneldyno.scheduler.store.timed import TimedStore
from kerneldyno.scheduler.telemetry.evaluation_spans import EvaluationSpans, client_trace
from kerneldyno.scheduler.telemetry.metrics import Metrics
from kerneldyno.scheduler.telemetry.role_metrics import RoleMetrics
from kerneldyno.scheduler.telemetry.transition_log import TransitionLog
from kerneldyno.v1.fleet_service_pb2_grpc import add_FleetServiceServicer_to_server
from kerneldyno.v1.reward_service_pb2_grpc import add_RewardServiceServicer_to_server
from kerneldyno.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server

_log = logging.getLogger(__name__)

#: Time limits in seconds during a stop: for streams to send what is finished, and for open calls to end.
FLUSH_SECONDS = 2.0
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """A running scheduler and its addresses."""

    core: Core
    registry: CollectorRegistry
    address: serving.Address
    metrics_address: serving.Address | None
    lost: asyncio.Event
    """Set when another scheduler has taken over the store. Then leave the context."""


def _random_name() -> str:
    return uuid.uuid4().hex


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    clock: Clock | None = None,
    new_name: Callable[[], str] = _random_name,
    hurry: asyncio.Event | None = None,
    store: Store | None = None,
) -> AsyncIterator[RunningScheduler]:
    """Serve while the context lasts. Leaving the context is a graceful stop.

    Args:
        settings: The settings.
        clock: The source of all times; None for the system's clocks.
        new_name: Returns a new unique attempt token, or an id for a request that came without one.
        hurry: Cuts the graceful stop short when it is set.
        store: The store, which is closed at the end; None to open the one that `settings` name.
    """
    registry = new_registry()
    metrics, lag, lost = Metrics(registry, settings.max_queued), LoopLag(registry), asyncio.Event()
    clock = clock or SystemClock()
    if store is None:
        store = await asyncio.to_thread(open_store, settings)
    holding = holding_of(store)
    role = ActiveRole(holding) if holding is not None else None
    store = TimedStore(store, clock, metrics.store_used)
    retention = Retention(
        max_results=settings.retain_results, max_bytes=settings.retain_bytes, max_seconds=settings.retain_seconds
    )
    journal = GroupCommitJournal(store, asyncio.get_running_loop(), retention=retention, observer=metrics)
    core = Core(settings, clock, new_name, store, journal, fingerprint=fingerprint_of)
    found = store.recover()
    failpoint("during_recovery")
    core.recover(found, spec_of)
    failpoint("after_recovery")
    spans = tracing.start("kerneldyno-scheduler")
    traced = EvaluationSpans(spans, journal, clock) if spans is not None else None
    admission = Admission(
        core, store, journal, settings, metrics, new_name, trace=traced.request_trace if traced else None
    )
    build_orders = BuildOrders(core, new_name, settings.lease_seconds)
    dispatcher = Dispatcher(core, journal, build_orders, trace=traced.attempt_trace if traced else client_trace)
    watch = ClusterWatch(core, journal)
    core.observers += [TransitionLog(), metrics, dispatcher, admission, watch]
    if traced is not None:
        core.observers.append(traced)

    server = serving.make_server(ServerInterceptor(registry, SERVICES, settings.security.gate(settings.listen), role))
    add_SchedulerServiceServicer_to_server(SchedulerServicer(admission, build_orders), server)
    add_FleetServiceServicer_to_server(FleetServicer(admission, dispatcher, watch), server)
    add_RewardServiceServicer_to_server(RewardServicer(admission), server)
    names = [service.full_name for service in SERVICES]
    health = await serving.add_health_and_reflection(server, names, probes=PROBES)
    page = None
    try:
        address = serving.listen(server, serving.Address.parse(settings.listen), settings.security.tls)
        page = serving.start_metrics(settings.metrics, registry)
        async with asyncio.TaskGroup() as group:
            journal_health = JournalHealth(admission, health, lambda: holding is None or holding.certain)
            tick = _tick(core, admission, metrics, journal_health, clock)
            role_watch = _watch_role(holding, RoleMetrics(registry), admission, dispatcher, lost)
            jobs = (dispatcher.run(), watch.run(), lag.watch(), tick, role_watch)
            background = [group.create_task(job) for job in jobs]
            await server.start()
            try:
                yield RunningScheduler(core, registry, address, page.address if page else None, lost)
            finally:
                # The order matters: nodes and clients are served until the running attempts are done. With a durable store,
                # attempts that are not done by then go on at the nodes, and the next scheduler takes them over.
                await health.enter_graceful_shutdown()
                admission.drain()
                watch.close()
                if not lost.is_set():
                    await _until_idle(core, settings.drain_seconds, hurry or asyncio.Event())
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(FLUSH_SECONDS):
                            await journal.committed()
                await admission.close(FLUSH_SECONDS)
                if store.name == "memory":
                    dispatcher.cancel_all()
                await dispatcher.close(FLUSH_SECONDS)
                await serving.stop_server(server, health, grace_seconds=GRACE_SECONDS)
                for task in background:
                    task.cancel()
    finally:
        await serving.stop_server(server, health, grace_seconds=0)  # again, in case the stop above was cut short
        if page is not None:
            page.stop()
        await journal.close()
        await asyncio.to_thread(store.close)
        if spans is not None:
            await asyncio.to_thread(spans.close)


def open_store(settings: Settings) -> Store:
    """Open the store that `settings.store` names. It waits until a store that several share is free. Raises StoreError."""
    if settings.shared:
        return shared_store(settings)
    return MemoryStore() if settings.store == "memory" else SqliteStore(settings.store.removeprefix("sqlite:"))


async def _tick(core: Core, admission: Admission, metrics: Metrics, health: JournalHealth, clock: Clock) -> None:
    while True:
        # While nobody is answered, nodes cannot report, and clients cannot come back. The next tick knows that it is late.
        if health.certain:
            core.tick()
        await health.update()
        admission.room_made()  # the journal may have written its pending records
        metrics.sample(core, admission.journal, admission.waiting_calls, clock.monotonic())
        await asyncio.sleep(TICK_SECONDS)


async def _watch_role(
    holding: ServedHolding | None,
    metrics: RoleMetrics,
    admission: Admission,
    dispatcher: Dispatcher,
    lost: asyncio.Event,
) -> None:
    """Show the role, and end what is open when it is lost or uncertain."""
    if holding is None:
        metrics.show_active(0, 0, certain=True)
        return
    role, certain = ActiveRole(holding), True
    while True:
        refusal = role.refusal()
        metrics.show_active(holding.epoch, holding.takeovers, certain=refusal is None)
        if certain != (refusal is None):
            certain = refusal is None
            _log.warning("event=role_certain value=%s", certain)
            if refusal is not None:
                dispatcher.end_streams(refusal)
                for call in list(admission.open_calls):
                    call.close()
        if holding.lost is not None:
            lost.set()
        await asyncio.sleep(TICK_SECONDS)


async def _until_idle(core: Core, limit_seconds: float, hurry: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    _log.info(
        "event=draining running=%d queued=%d limit_seconds=%g", len(core.attempts), len(core.queue), limit_seconds
    )
    while len(core.attempts) and loop.time() < until and not hurry.is_set():  # noqa: ASYNC110 - three conditions
        await asyncio.sleep(0.02)
