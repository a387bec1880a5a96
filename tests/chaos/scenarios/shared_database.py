"""Rows 38 to 40: the PostgreSQL of two schedulers crashes, fails over to its standby, or has no room left on its disk."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tests.chaos.scenario import Figure, Plan, at_least
from tests.chaos.scenarios.shared_store import TAKE_SECONDS, outcome, pair, under_load
from tests.chaos.shared_pair import SharedPair
from tests.postgres import PostgresServer
from tests.waiting import wait_until

ROWS = (38, 39, 40)
TITLE = "The PostgreSQL of two schedulers crashes, fails over to its synchronous standby, or has a full disk"
#: Size of the disk that is filled, in MiB: a new database with its log takes about 60.
DISK_MIB = 400
_REPLICATED = {"wal_level": "replica", "max_wal_senders": "4"}
_WAITS = {"synchronous_standby_names": "ANY 1 (replica)"}


async def run(plan: Plan) -> list[Figure]:
    """Send 10,000 evaluations for each fault."""
    return [*await _crashed(plan), *await _failed_over(plan), *await _full(plan)]


async def _crashed(plan: Plan) -> list[Figure]:
    """Let the database crash, and start it again after a while: it recovers from its log."""
    server = PostgresServer(durable=True)
    away: list[float] = []

    async def crash(cluster: SharedPair, draw: random.Random) -> None:
        cluster.history.note("fault", "info", what="crash", target="database")
        since = time.monotonic()
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        away.append(draw.uniform(0.2, 1.5) * cluster.lease)
        await asyncio.sleep(away[-1])
        await asyncio.to_thread(server.start)
        await cluster.either_serves(since)

    try:
        async with pair(plan, "crashed", server.schema()) as cluster:
            load = await under_load(plan, cluster, crash)
            limit = max(away, default=0.0) + cluster.lease + TAKE_SECONDS
            return outcome(38, load, "crashes of the database", cluster, limit=limit)
    finally:
        server.close()


async def _failed_over(plan: Plan) -> list[Figure]:
    """Let the primary crash for ever, and promote its standby, for which every commit has waited."""
    primary = PostgresServer(durable=True, settings=_REPLICATED | _WAITS)
    servers = [primary]
    try:
        servers.append(replica := PostgresServer(durable=True, settings=_REPLICATED, replica_of=primary))
        follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
        wait_until(lambda: primary.execute(follows) == [(1,)], "the standby is synchronous", 20)
        hosts = ",".join(quote(str(server.folder), safe="") for server in servers)
        url = f"postgresql:///postgres?host={hosts}&port={primary.port},{replica.port}&user=test"

        async def fail_over(cluster: SharedPair, draw: random.Random) -> None:
            cluster.history.note("fault", "info", what="failover", target="database")
            since = time.monotonic()
            await asyncio.to_thread(primary.stop, signal.SIGQUIT)
            await asyncio.to_thread(replica.execute, "SELECT pg_promote()")
            await cluster.either_serves(since)

        async with pair(plan, "failed_over", url) as cluster:
            load = await under_load(plan, cluster, fail_over, most=1)
            return outcome(39, load, "failovers", cluster, limit=cluster.lease + TAKE_SECONDS)
    finally:
        for server in servers:
            server.close()


async def _full(plan: Plan) -> list[Figure]:
    """Fill the disk of the database for a while. It may stop by itself; then it is started again."""
    with _small_disk() as disk:
        server = PostgresServer(durable=True, beside=disk)
        died = 0

        async def fill(cluster: SharedPair, draw: random.Random) -> None:
            nonlocal died
            cluster.history.note("fault", "info", what="disk full", target="database")
            since = time.monotonic()
            ballast = disk / "ballast"
            _fill(ballast)
            full = time.monotonic() + draw.uniform(0.5, 2.0) * cluster.lease
            while time.monotonic() < full:
                await asyncio.sleep(0.1)
                _fill(ballast)  # also what the database has given back
            ballast.unlink()
            if server.process is not None and server.process.poll() is not None:
                died += 1
                await asyncio.to_thread(server.start)
            await cluster.either_serves(since)

        try:
            async with pair(plan, "full", server.schema()) as cluster:
                load = await under_load(plan, cluster, fill)
                stalls = len(cluster.logged("journal_stalled"))
                limit = 3 * cluster.lease + TAKE_SECONDS
                what = f"times that the disk was full (the database stopped by itself in {died})"
                figures = outcome(40, load, what, cluster, limit=limit)
            return [*figures, at_least(40, "", "times that a batch could not be written", stalls, 1)]
        finally:
            server.close()


@contextmanager
def _small_disk() -> Iterator[Path]:
    """Mount a file system of its own with little room. Only root may do this."""
    where = Path(tempfile.mkdtemp(prefix="kerneldyno-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=755", "none", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
        where.rmdir()


def _fill(ballast: Path) -> None:
    """Let a file take all the room that is left, as far as nobody else takes it at the same time."""
    with ballast.open("ab") as file, suppress(OSError):
        room = os.statvfs(ballast)
        if free := room.f_bavail * room.f_frsize:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
