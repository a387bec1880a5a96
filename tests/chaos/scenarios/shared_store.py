"""Rows 33 to 37: two schedulers on one PostgreSQL. The active one fails in each way, and its standby takes over."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.clients import workload
from tests.chaos.history import Event
from tests.chaos.proxy import Proxy
from tests.chaos.scenario import (
    Figure,
    Plan,
    at_least,
    at_most,
    audit_all,
    exactly,
    kept,
    of_kind,
    percentile,
    run_clients,
)
from tests.chaos.shared_pair import SharedPair
from tests.postgres import PostgresServer

ROWS = (33, 34, 35, 36, 37)
TITLE = "The active one of two schedulers is killed, stopped, cut off from its database, or from its nodes"
CLIENTS = 4
#: A take-over may last this much longer than the lease: the standby reads what is in flight, and clients look for it.
TAKE_SECONDS = 3.0

Fault = Callable[[SharedPair, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a run with faults came to."""

    events: list[Event]
    faults: int
    seconds: float


async def run(plan: Plan) -> list[Figure]:
    """Send 10,000 evaluations for each fault, which comes again and again until all are done."""
    server = PostgresServer(durable=True)
    try:
        figures = await _killed(plan, server)
        figures += await _stopped(plan, server)
        figures += await _cut_off(plan, server)
        figures += await _clocks(plan, server)
        figures += await _split(plan, server)
    finally:
        server.close()
    return figures


def lease_of(plan: Plan) -> float:
    """Return the seconds of the schedulers' lease: the default one, or less in a small run."""
    return plan.seconds(5.0, 1.5)


def folder(plan: Plan, name: str) -> Path:
    """Return a new folder for one cluster."""
    made = plan.directory / name
    made.mkdir()
    return made


async def under_load(plan: Plan, cluster: SharedPair, fault: Fault, *, most: float = math.inf) -> Load:
    """Send 10,000 evaluations of four clients, with a fault every ten seconds, and read them all in the end."""
    count = plan.count(10_000, 400)
    most = most if plan.scale >= 1 else min(most, 2)  # slow machines can finish it
    draw = random.Random(plan.seed)
    # No work twice: what is asked for again before the nodes are back after a take-over may run again.
    loads = {
        f"c{i}": workload(f"c{i}", count // CLIENTS, random.Random(draw.random()), seconds=(0.02, 0.25), repeats=0.0)
        for i in range(CLIENTS)
    }
    clients = asyncio.create_task(run_clients(cluster, loads, limit_seconds=180 + count * 0.1))
    faults = 0
    try:
        while not (await asyncio.wait([clients], timeout=plan.seconds(10.0, 0.8)))[0] and faults < most:
            async with asyncio.timeout(120):
                await fault(cluster, draw)
            faults += 1
        seconds = await clients
    finally:
        clients.cancel()
    return Load(await audit_all(cluster), faults, seconds)


def outcome(row: int, load: Load, what: str, cluster: SharedPair, *, limit: float) -> list[Figure]:
    """Return the figures that all rows of the two schedulers have.

    Args:
        row: Its number.
        load: What its run came to.
        what: The faults, in the plural.
        cluster: The cluster.
        limit: The longest time in seconds in which no scheduler may serve.
    """
    gave_up = {e["id"] for e in load.events if e.op == "result" and e["outcome"] == "INFRASTRUCTURE_ERROR"}
    figures = [
        at_least(row, "", f"{what}, in {load.seconds:.0f} s", load.faults, 1),
        *kept(row, "1 2 3 8", load.events),
        exactly(row, "5 8", "evaluations that infrastructure ended", len(gave_up), 0),
    ]
    if down := cluster.down_seconds:
        median = f"time without a scheduler that serves, median of {len(down)}"
        figures.append(at_most(row, "1", median, percentile(down, 0.5), limit, "s"))
        figures.append(at_most(row, "1", "the same, longest", max(down), limit, "s"))
    return figures


def pair(plan: Plan, name: str, urls: str | Sequence[str], **options: Any) -> SharedPair:
    """Return the cluster of one row: two schedulers, and eight nodes with two lanes each."""
    return SharedPair(folder(plan, name), urls, lease=lease_of(plan), nodes=8, lanes=2, seed=plan.seed, **options)


async def _killed(plan: Plan, server: PostgresServer) -> list[Figure]:
    async def kill(cluster: SharedPair, draw: random.Random) -> None:
        await cluster.take_over()

    async with pair(plan, "killed", server.schema()) as cluster:
        load = await under_load(plan, cluster, kill)
        return outcome(33, load, "SIGKILLs of the active scheduler", cluster, limit=cluster.lease + TAKE_SECONDS)


async def _stopped(plan: Plan, server: PostgresServer) -> list[Figure]:
    """Continue the stopped scheduler when the other one serves: it must notice, tell nobody anything, and end."""

    async def stop(cluster: SharedPair, draw: random.Random) -> None:
        stopped, starts, since = cluster.scheduler, cluster.scheduler.starts, time.monotonic()
        cluster.history.note("fault", "info", what="SIGSTOP", target="scheduler")
        stopped.signal(signal.SIGSTOP)
        await cluster.other_serves(since)
        await asyncio.sleep(draw.uniform(0.0, cluster.lease))
        cluster.history.note("fault", "info", what="SIGCONT", target="scheduler")
        stopped.signal(signal.SIGCONT)
        await cluster.again(stopped, starts)

    async with pair(plan, "stopped", server.schema()) as cluster:
        load = await under_load(plan, cluster, stop)
        figures = outcome(34, load, "SIGSTOPs of the active scheduler", cluster, limit=cluster.lease + TAKE_SECONDS)
        ended = len(cluster.logged("role_lost"))
    return [*figures, exactly(34, "3", "continued schedulers that found that they were replaced", ended, load.faults)]


async def _cut_off(plan: Plan, server: PostgresServer) -> list[Figure]:
    """Cut the active scheduler off from its database: its connections hang, or die silently, or are refused."""
    url = server.schema()
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(f"127.0.0.1:{server.port}", seed=i)) for i in range(2)]
        urls = [server.over(proxy.address, url) for proxy in proxies]
        cluster = await stack.enter_async_context(pair(plan, "cut_off", urls))
        behind = dict(zip(cluster.schedulers, proxies, strict=True))

        async def cut(cluster: SharedPair, draw: random.Random) -> None:
            proxy, cut_off, starts = behind[cluster.active], cluster.scheduler, cluster.scheduler.starts
            how = draw.choice(("stall", "refuse"))
            cluster.history.note("fault", "info", what=how, target="database of the scheduler")
            since = time.monotonic()
            if how == "stall":
                proxy.stall()
            else:
                await proxy.refuse()
            await cluster.other_serves(since)
            await asyncio.sleep(draw.uniform(0.0, cluster.lease))
            await proxy.heal()
            await cluster.again(cut_off, starts)

        load = await under_load(plan, cluster, cut)
        limit = cluster.lease + TAKE_SECONDS
        return outcome(35, load, "times that the active scheduler lost its database", cluster, limit=limit)


async def _clocks(plan: Plan, server: PostgresServer) -> list[Figure]:
    """Let the wall clocks of both schedulers jump by an hour, and let the other one take over in between."""

    async def jump(cluster: SharedPair, draw: random.Random) -> None:
        for scheduler in cluster.schedulers.values():
            cluster.history.note("fault", "info", what="jump", target="clock")
            scheduler.signal(draw.choice((signal.SIGUSR1, signal.SIGUSR2)))
        await asyncio.sleep(draw.uniform(0.0, 1.0))
        await cluster.take_over()

    async with pair(plan, "clocks", server.schema(), module="tests.chaos.skewed") as cluster:
        load = await under_load(plan, cluster, jump)
        hours = {when // 3600 for when, _ in cluster.logged("attempt_started")}
        figures = outcome(
            36, load, "jumps of both clocks, with a take-over each", cluster, limit=cluster.lease + TAKE_SECONDS
        )
    return [at_least(36, "", "different hours in the stamps of their log", len(hours), 2), *figures]


async def _split(plan: Plan, server: PostgresServer) -> list[Figure]:
    """Cut some or all nodes off from the active scheduler for two of its leases for nodes; clients still reach it."""
    lease = plan.seconds(5.0, 2.0)
    # Standbys that name no address send nobody around the proxies.
    options = {"advertise": "", "lease": lease, "heartbeat": lease / 5}

    async def split(cluster: SharedPair, draw: random.Random) -> None:
        names = draw.sample(sorted(cluster.nodes), draw.choice((2, 4, 8)))
        cluster.history.note("fault", "info", what="split", target=",".join(names))
        for name in names:
            cluster.links[name, cluster.active].stall()
        await asyncio.sleep(2 * lease)
        for name in names:
            await cluster.links[name, cluster.active].heal()

    async with pair(plan, "split", server.schema(), options=options, proxied=True) as cluster:
        load = await under_load(plan, cluster, split)
        lost = len(cluster.logged("node_lost"))
        figures = outcome(37, load, "splits between nodes and the active scheduler", cluster, limit=0.0)
    took = len(of_kind(load.events, "fault", "info", what="started", target="scheduler"))
    return [
        *figures,
        at_least(37, "4", "nodes that it gave up meanwhile", lost, 1),
        exactly(37, "", "schedulers that ended because of it", took, 0),
    ]
