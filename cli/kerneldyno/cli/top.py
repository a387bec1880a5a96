"""`kerneldyno top`: show the present state of the cluster repeatedly, as a picture in a terminal, elsewhere as lines.

It shows what FleetService.WatchCluster and GetCapabilities return. It keeps running while the scheduler is unreachable:
it says so, and continues when the scheduler is back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.live import Live

from kerneldyno.cli.common import Address, Json, reporting, stdout
from kerneldyno.cli.top_view import Cluster, line, picture, report
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.errors import DeadlineExceededError, UnavailableError
from kerneldyno.rpc.backoff import Backoff

#: Limits in seconds for the first snapshot and for each call, and the time between two queries of the scheduler's
#: limits.
_FIRST_SECONDS, _CALL_SECONDS, _ASK_SECONDS = 10.0, 5.0, 3.0


def top(
    once: Annotated[bool, typer.Option("--once", help="Show the cluster once and end.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-d", min=0.1, metavar="SECONDS", help="Time between two pictures or lines.")
    ] = 1.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Watch the cluster live, until Ctrl-C.

    Shows nodes, devices, lanes, queue, evaluations per second and verdicts. It waits for an unreachable scheduler.
    Without a terminal it prints a line per interval; with --json each line is a JSON object.
    """
    with reporting():
        try:
            asyncio.run(_top(address, once, interval, as_json))
        except (KeyboardInterrupt, asyncio.CancelledError):
            return
        except BrokenPipeError:  # the reader of the lines has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _top(address: str, once: bool, interval: float, as_json: bool) -> None:
    async with AsyncClient(address, reconnect_timeout=0.0, call_timeout=_CALL_SECONDS) as client:
        cluster = Cluster(address, await client.capabilities())
        watching = asyncio.gather(_watch(client, cluster), _ask(client, cluster))
        try:
            await _first(cluster, watching)
            if once:
                _once(cluster, as_json)
            else:
                await _show(cluster, watching, interval, as_json)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await watching


async def _first(cluster: Cluster, watching: asyncio.Future[Any]) -> None:
    """Wait for the first snapshot."""
    deadline = time.monotonic() + _FIRST_SECONDS
    while cluster.snapshot is None:
        if watching.done():
            watching.result()
        if cluster.away is not None:
            raise UnavailableError(cluster.away)
        if time.monotonic() > deadline:
            raise DeadlineExceededError(
                f"{cluster.address} sends no state of the cluster; check for a proxy in between"
            )
        await asyncio.sleep(0.02)


def _once(cluster: Cluster, as_json: bool) -> None:
    now = time.monotonic()
    if as_json:
        print(json.dumps(report(cluster, now, datetime.now(UTC))), flush=True)
    else:
        console = stdout()
        console.print(picture(cluster, now, console.width, None))


async def _show(cluster: Cluster, watching: asyncio.Future[Any], interval: float, as_json: bool) -> None:
    console = stdout()
    if console.is_terminal and not console.is_dumb_terminal and not as_json:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            await _repeat(
                lambda now: live.update(picture(cluster, now, console.width, console.height), refresh=True),
                watching,
                interval,
            )
        return

    def write(now: float) -> None:
        if as_json:
            print(json.dumps(report(cluster, now, datetime.now(UTC))), flush=True)
        else:
            print(f"{datetime.now():%H:%M:%S} {line(cluster, now)}", flush=True)

    await _repeat(write, watching, interval)


async def _repeat(show: Callable[[float], None], watching: asyncio.Future[Any], interval: float) -> None:
    """Show the cluster until cancelled, or until the scheduler refuses to be watched."""
    while True:
        show(time.monotonic())
        done, _ = await asyncio.wait([watching], timeout=interval)
        if done:
            watching.result()


async def _watch(client: AsyncClient, cluster: Cluster) -> None:
    """Receive each snapshot, across restarts of the scheduler."""
    backoff = Backoff()
    while True:
        try:
            async with aclosing(client.watch()) as snapshots:
                async for snapshot in snapshots:
                    cluster.seen(snapshot, time.monotonic())
                    backoff.reset()
        except UnavailableError as error:
            cluster.lost(str(error), time.monotonic())
        await asyncio.sleep(backoff.pause())


async def _ask(client: AsyncClient, cluster: Cluster) -> None:
    """Query the limits now and then: without changes no snapshots arrive, and none from a scheduler that hangs."""
    while True:
        await asyncio.sleep(_ASK_SECONDS)
        try:
            cluster.able = await client.capabilities()
            cluster.answered()
        except (UnavailableError, DeadlineExceededError) as error:
            cluster.lost(str(error), time.monotonic())
