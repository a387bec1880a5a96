"""WatchCluster: one snapshot of the cluster, made after a change, and shared by all watching calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import ServedJournal
from kerneldyno.scheduler.service.translate import node_of
from kerneldyno.v1 import fleet_service_pb2 as pb

#: Minimum time in seconds between two snapshots.
INTERVAL_SECONDS = 0.25
#: Maximum number of shares in a snapshot. There can be any number of client ids.
MOST_SHARES = 20


class ClusterWatch(Observer):
    """Keeps the newest snapshot. A slow reader misses those in between."""

    def __init__(self, core: Core, journal: ServedJournal) -> None:
        self._core = core
        self._journal = journal
        self._dirty = asyncio.Event()
        self._fresh: asyncio.Event = asyncio.Event()
        self._newest: pb.WatchClusterResponse | None = None
        self._watchers = 0
        self._closed = False

    def work_changed(self) -> None:
        """Have a new snapshot made soon, if any call watches."""
        if self._watchers:
            self._dirty.set()

    async def run(self) -> None:
        """Make snapshots until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._publish()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def snapshots(self) -> AsyncIterator[pb.WatchClusterResponse]:
        """Yield the present state, then the newest snapshot after each change, until `close`."""
        self._watchers += 1
        try:
            self._publish()
            seen = None
            while not self._closed:
                if self._newest is seen:
                    await self._fresh.wait()
                    continue
                seen = self._newest
                assert seen is not None, "published above"
                yield seen
        finally:
            self._watchers -= 1

    def close(self) -> None:
        """End all watching calls."""
        self._closed = True
        self._wake()

    def _publish(self) -> None:
        snapshot = self._snapshot()
        if self._newest is None or _differ(snapshot, self._newest):
            self._newest = snapshot
            self._wake()

    def _wake(self) -> None:
        self._fresh.set()
        self._fresh = asyncio.Event()

    def _snapshot(self) -> pb.WatchClusterResponse:
        core = self._core
        nodes = core.fleet.nodes
        message = pb.WatchClusterResponse(
            nodes=[node_of(nodes[node_id], with_sandbox=False) for node_id in sorted(nodes)],
            queued=core.evaluations.waiting(),
            running=len(core.attempts),
            outcomes=dict(core.evaluations.outcomes),
            journal_stalled=self._journal.stalled or "",
            shares=_shares(core),
        )
        message.snapshot_time.GetCurrentTime()
        return message


def _shares(core: Core) -> list[pb.Share]:
    """Return the shares with the most unfinished evaluations."""
    running = Counter(attempt.job.share for attempt in core.attempts.by_token.values())
    return [
        pb.Share(
            name=name,
            unfinished=count,
            max_unfinished=core.clients.quota(name),
            running=running[name],
            weight=core.queue.weight(name),
        )
        for name, count in core.clients.by_share().most_common(MOST_SHARES)
    ]


def _differ(one: pb.WatchClusterResponse, other: pb.WatchClusterResponse) -> bool:
    """Return True if the snapshots differ in more than their times."""
    if _counts(one) != _counts(other):
        return True
    return [_lasting(node) for node in one.nodes] != [_lasting(node) for node in other.nodes]


def _counts(one: pb.WatchClusterResponse) -> tuple[object, ...]:
    shares = [share.SerializeToString(deterministic=True) for share in one.shares]
    return one.queued, one.running, dict(one.outcomes), one.journal_stalled, shares


def _lasting(node: pb.Node) -> bytes:
    kept = pb.Node()
    kept.CopyFrom(node)
    kept.ClearField("last_synchronize_time")
    return kept.SerializeToString(deterministic=True)
