"""A scheduler while another one is active: it listens on its port, refuses every call, and waits for its turn.

Its health is NOT_SERVING, for the scheduler as a whole and for every service. Probes ask for two other names (probes.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from kerneldyno.rpc import serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.metric_series import new_registry
from kerneldyno.scheduler.core.ports import Store, StoreUnreachableError
from kerneldyno.scheduler.probes import PROBES, READINESS
from kerneldyno.scheduler.roles import SERVED_SECONDS, TAKE_SECONDS, StandbyRole
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.shared import SERVICES
from kerneldyno.scheduler.store.postgres.contender import Contender
from kerneldyno.scheduler.telemetry.role_metrics import RoleMetrics
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceServicer, add_FleetServiceServicer_to_server
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceServicer, add_RewardServiceServicer_to_server
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer, add_SchedulerServiceServicer_to_server

_log = logging.getLogger(__name__)

Listening = Callable[[serving.Address, serving.Address | None], None]


async def turn(settings: Settings, stop: asyncio.Event, listening: Listening) -> tuple[Settings, Store] | None:
    """Wait until this process is the active scheduler, as a standby if there is another one.

    Args:
        settings: The settings; their store is one that several share.
        stop: Ends the wait.
        listening: Called with the addresses of gRPC and metrics when it serves as a standby; not called if its turn comes
            at once.

    Returns:
        The settings with the ports that were taken, and the store; None if `stop` was set first.

    Raises:
        StoreError, OSError: The store cannot be used, or a port is taken.
    """
    address = settings.advertise
    contender = Contender(
        settings.store, settings.store_name, address=address, lease_seconds=settings.store_lease_seconds
    )
    taken: tuple[Settings, Store] | None = None
    try:
        await asyncio.to_thread(contender.prepare)
        await asyncio.to_thread(contender.look)
        if contender.due and (store := await asyncio.to_thread(contender.take)) is not None:
            taken = settings, store
        else:
            taken = await _stand_by(settings, contender, stop, listening)
        return taken
    finally:
        if taken is None:
            contender.close()


async def _stand_by(
    settings: Settings, contender: Contender, stop: asyncio.Event, listening: Listening
) -> tuple[Settings, Store] | None:
    registry = new_registry()
    role = StandbyRole(lambda: _state(contender))
    server = serving.make_server(ServerInterceptor(registry, SERVICES, settings.security.gate(settings.listen), role))
    # Their methods are never called: the role refuses each call before.
    add_SchedulerServiceServicer_to_server(SchedulerServiceServicer(), server)  # type: ignore[abstract]
    add_FleetServiceServicer_to_server(FleetServiceServicer(), server)  # type: ignore[abstract]
    add_RewardServiceServicer_to_server(RewardServiceServicer(), server)  # type: ignore[abstract]
    names = [service.full_name for service in SERVICES]
    health = await serving.add_health_and_reflection(server, names, probes=PROBES)
    for name in ("", *names):
        await health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    page = None
    try:
        address = serving.listen(server, serving.Address.parse(settings.listen), settings.security.tls)
        page = serving.start_metrics(settings.metrics, registry)
        await server.start()
        listening(address, page.address if page else None)
        _log.info("event=standby serving=%s", contender.claim.address if contender.claim else "-")
        store = await _take_in_turn(contender, stop, RoleMetrics(registry), health)
        if store is None:
            return None
        metrics = str(page.address) if page else "off"
        return replace(settings, listen=str(address), metrics=metrics), store
    finally:
        await serving.stop_server(server, health, grace_seconds=0)
        if page is not None:
            page.stop()


async def _take_in_turn(
    contender: Contender, stop: asyncio.Event, metrics: RoleMetrics, health: HealthServicer
) -> Store | None:
    reachable = True
    while not stop.is_set():
        try:
            await asyncio.to_thread(contender.look)
            if not reachable:
                _log.info("event=store_reachable_again")
                await health.set(READINESS, health_pb2.HealthCheckResponse.SERVING)
            reachable = True
            if contender.due and (store := await asyncio.to_thread(contender.take)) is not None:
                return store
        except StoreUnreachableError as error:
            if reachable:
                _log.warning("event=store_unreachable reason=%r", str(error))
                await health.set(READINESS, health_pb2.HealthCheckResponse.NOT_SERVING)
            reachable = False
        if contender.claim is not None:
            metrics.show_standby(contender.claim.epoch, contender.claim.takeovers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(contender.pause_seconds):
                await stop.wait()
    return None


def _state(contender: Contender) -> tuple[str, float]:
    """Return the address of the scheduler that serves ("" if it is unknown, or perhaps none does), and when to try again."""
    claim = contender.claim
    if claim is not None and not claim.released and contender.silence < contender.lease_seconds / 2:
        return claim.address, SERVED_SECONDS if claim.address else contender.lease_seconds / 2
    return "", contender.wait_seconds + TAKE_SECONDS
