"""Checks of the services: scheduler, nodes, clocks, versions, and a canary's verdicts. For `kerneldyno doctor`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import (
    DeadlineExceededError,
    KernelDynoError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from kerneldyno.doctor import canary, certificates, ports, roles, sandbox
from kerneldyno.doctor.checks import Check, State
from kerneldyno.rpc import channel
from kerneldyno.rpc import credentials as given
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.errors import AddressError, CredentialsError
from kerneldyno.rpc.version import VERSION
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesResponse

#: Time limit of each call in seconds.
_CALL_SECONDS = 5.0
#: Seconds by which the scheduler's clock may appear to be ahead of this machine's, and behind it. It always appears
#: behind by the age of a node's last heartbeat, or by nearly a lease.
_CLOCK_AHEAD, _CLOCK_BEHIND = 5.0, 20.0
#: Most nodes whose whole sandbox is listed; in a large fleet some represent all.
_MOST_NODES = 8


async def examine(address: str, *, with_canary: bool, canary_seconds: float) -> AsyncGenerator[Check, None]:
    """Yield findings on the scheduler at `address`, its nodes, and a canary's evaluations."""
    try:
        credentials = given.choose()
        async with channel.open(address, credentials):
            pass  # opening reads and checks the files
    except AddressError as error:
        yield Check("scheduler", State.FAILED, str(error), "give another address: --address, or KERNELDYNO_ADDRESS")
        return
    except CredentialsError as error:
        for check in _dates(address, credentials=None):
            yield check
        yield Check("credentials", State.FAILED, str(error), "give files that can be used: docs/security.md")
        return
    yield _credentials(credentials)
    for check in await asyncio.to_thread(lambda: list(_dates(address, credentials))):
        yield check
    for check in await roles.of_each(address, credentials):
        yield check
    async with AsyncClient(address, call_timeout=_CALL_SECONDS, reconnect_timeout=0.0) as client:
        try:
            able = await client.capabilities()
            nodes = await client.nodes()
        except KernelDynoError as error:
            yield _unreachable(address, error)
            return
        yield _scheduler(address, able)
        yield await _clock(client, nodes)
        ready = [
            node for node in nodes if node.state == fleet.NODE_STATE_SERVING and any(d.ready for d in node.devices)
        ]
        yield _nodes(nodes, ready)
        for check in _fingerprints(ready):
            yield check
        for check in _sandboxes(ready):
            yield check
        yield await _quarantines(client)
        if not with_canary:
            return
        if not ready:
            yield Check("canary", State.NOTE, "not sent: no node is ready")
            return
        for check in await canary.evaluate_both(client, ready, able.backends, canary_seconds):
            yield check


def _credentials(credentials: Credentials) -> Check:
    tls = "TLS" if credentials.tls_ca else "no TLS"
    own = ", an own certificate" if credentials.tls_cert else ""
    return Check("credentials", State.OK, f"{tls}{own}, {'a token' if credentials.token else 'no token'}")


def _dates(address: str, credentials: Credentials | None) -> list[Check]:
    """Return findings on the dates of certificates; without usable credentials, of the files that can be read."""
    now = datetime.now(UTC)
    try:
        if credentials is None:
            return list(certificates.of_files(given.choose(token=""), now))
        found = list(certificates.of_files(credentials, now))
        for one in channel.addresses(address) if credentials.tls_ca else ():
            found += certificates.of_scheduler(one, credentials, now)
        return found
    except (CredentialsError, OSError, ValueError):
        return []  # another check reports that the files cannot be used


def _unreachable(address: str, error: KernelDynoError) -> Check:
    name = "scheduler"
    if isinstance(error, UnauthenticatedError | PermissionDeniedError):
        return Check(name, State.FAILED, f"{address}: {error}", "give a token that it knows: --token-file")
    remedy = "start one (`kerneldyno up`), or give another --address; --local starts services of its own"
    if not isinstance(error, UnavailableError | DeadlineExceededError):
        return Check(name, State.FAILED, f"{address}: {error}", "check that it is a KernelDyno scheduler")
    host, _, port = address.rpartition(":")
    if channel.is_loopback(host) and port.isdigit() and (who := ports.holder(int(port))):
        text = f"{address} is used by {who}, which does not answer as a scheduler: {error}"
        remedy = (
            "if it is the scheduler, do as this says; else stop that program, or give the scheduler another --listen"
        )
        return Check(name, State.FAILED, text, remedy)
    return Check(name, State.FAILED, str(error), remedy)


def _scheduler(address: str, able: SchedulerServiceGetCapabilitiesResponse) -> Check:
    text = f"{address}, version {able.version}, store {able.store}, {able.queued} waiting, {able.running} running"
    if able.journal_stalled:
        text += f"; it cannot write its journal, so it accepts no work and sends no results: {able.journal_stalled}"
        return Check(
            "scheduler", State.FAILED, text, "make room on its disk, or see its log; it then continues by itself"
        )
    if able.version != VERSION:
        return Check("scheduler", State.NOTE, f"{text}; this client is {VERSION}", "install the same version on both")
    if able.limits.max_queued and able.queued >= able.limits.max_queued:
        return Check("scheduler", State.NOTE, f"{text}: its queue is full", "wait, or add nodes")
    return Check("scheduler", State.OK, text)


async def _clock(client: AsyncClient, nodes: Sequence[fleet.Node]) -> Check:
    """Compare the scheduler's clock with this machine's, by the last heartbeat of a node and by a snapshot's time.

    Both may be older than the answer: a snapshot as old as the last change, a heartbeat as old as a lease.
    """
    name = "scheduler's clock"
    try:
        async with asyncio.timeout(_CALL_SECONDS), aclosing(client.watch()) as snapshots:
            stamps = [(await anext(snapshots)).snapshot_time]
    except (KernelDynoError, TimeoutError) as error:
        text = f"unknown, no snapshot came: {error or 'no answer'}"
        return Check(name, State.NOTE, text, "a proxy in between may hold streams back; gRPC needs HTTP/2 end to end")
    alive = [node.last_synchronize_time for node in nodes if node.connected and node.state != fleet.NODE_STATE_LOST]
    apart = max(stamp.ToNanoseconds() for stamp in stamps + alive) / 1e9 - time.time()
    if apart > _CLOCK_AHEAD or (alive and apart < -_CLOCK_BEHIND):
        text = f"{apart:+.1f} s against this machine's: times in results will mislead"
        return Check(name, State.NOTE, text, "keep both in time: timedatectl set-ntp true")
    seen = "agrees with this machine's" if alive else "not ahead of this machine's; without a node no more is known"
    return Check(name, State.OK, seen)


def _nodes(nodes: Sequence[fleet.Node], ready: Sequence[fleet.Node]) -> Check:
    name = "nodes"
    if not nodes:
        remedy = "start an evaluator: python -m kerneldyno.evaluator --scheduler HOST:PORT"
        return Check(name, State.FAILED, "no evaluator is registered", remedy)
    models = Counter(device.model for node in ready for device in node.devices if device.ready)
    text = f"{len(ready)} of {len(nodes)} ready"
    text += f": {', '.join(f'{count} x {model}' for model, count in models.items())}" if models else ""
    others = {node.node_id: _state(node) for node in nodes if node not in ready}
    if others:
        shown = [f"{node_id} is {state}" for node_id, state in list(others.items())[:5]]
        text += f"; {', '.join(shown)}" + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        remedy = "see `kerneldyno nodes` and the logs there; `kerneldyno undrain`, `kerneldyno release`"
        return Check(name, State.NOTE if ready else State.FAILED, text, remedy)
    unready = sum(not device.ready for node in ready for device in node.devices)
    if unready:
        text += f"; {unready} device(s) not ready: a judge is being restarted"
        return Check(name, State.NOTE, text, "if it stays so: event=judge_restart in that node's log")
    return Check(name, State.OK, text)


def _state(node: fleet.Node) -> str:
    if node.state == fleet.NODE_STATE_SERVING:
        return "without a ready device"
    return "drained" if node.drained else fleet.NodeState.Name(node.state).removeprefix("NODE_STATE_").lower()


def _fingerprints(ready: Sequence[fleet.Node]) -> list[Check]:
    """Return a note if nodes differ in something that times depend on."""
    found: dict[str, list[str]] = {}
    for node in ready:
        on = node.environment
        parts = {"driver": on.driver_version, "torch": on.torch_version, "triton": on.triton_version}
        found.setdefault(", ".join(f"{k} {v}" for k, v in parts.items() if v), []).append(node.node_id)
    if len(found) < 2:
        return []
    text = "; ".join(f"{', '.join(ids[:3])}{' ...' if len(ids) > 3 else ''}: {on}" for on, ids in found.items())
    return [Check("versions of nodes", State.NOTE, text, "install the same versions everywhere: times depend on them")]


def _sandboxes(nodes: Sequence[fleet.Node]) -> list[Check]:
    """Return findings on the sandbox: of every node that lacks a layer, and of some that lack none."""
    checks = [sandbox.of_node(node.node_id, node.sandbox_layers) for node in nodes]
    lacking = [check for check in checks if check.state is not State.OK]
    return lacking + [check for check in checks if check.state is State.OK][:_MOST_NODES]


async def _quarantines(client: AsyncClient) -> Check:
    try:
        found = await client.quarantines()
    except KernelDynoError as error:
        return Check("quarantines", State.NOTE, f"unknown: {error}")
    if not found:
        return Check("quarantines", State.OK, "none")
    text = (
        f"{sum(bool(one.node_id) for one in found)} node(s), {sum(bool(one.digest) for one in found)} piece(s) of work"
    )
    return Check("quarantines", State.NOTE, text, "`kerneldyno quarantines` says why; `kerneldyno release` ends one")
