"""WatchCluster: one snapshot of the cluster, made when something changed, and shared by all who watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.observer import Observer
from kerneldyno.scheduler.store.journal import Journal
from kerneldyno.scheduler.translate import node_of
from kerneldyno.v1 import fleet_service_pb2 as pb

#: Seconds between two snapshots, at the least.
INTERVAL_SECONDS = 0.25
#: Shares that a snapshot lists; client ids can be any number.
MOST_SHARES = 20


class ClusterWatch(Observer):
    """The newest snapshot. A reader that is slow misses those in between."""

    def __init__(self, core: Core, journal: Journal) -> None:
        self._core = core
        self._journal = journal
        self._dirty = asyncio.Event()
        self._fresh: asyncio.Event = asyncio.Event()
        self._newest: pb.WatchClusterResponse | None = None
        self._watchers = 0
        self._closed = False

    def work_changed(self) -> None:
        """Make a new snapshot in a while, if anybody watches."""
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
        """Yield the present state, then the newest after each change, until `close`."""
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
        """End all watches."""
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
            queued=core.waiting_evaluations(),
            running=core.running(),
            outcomes=dict(core.outcomes),
            journal_stalled=self._journal.stalled or "",
            shares=_shares(core),
        )
        message.snapshot_time.GetCurrentTime()
        return message


def _shares(core: Core) -> list[pb.Share]:
    """Return who has unfinished evaluations, the most first."""
    running = Counter(attempt.job.share for attempt in core.attempts.by_token.values())
    return [
        pb.Share(
            name=name,
            unfinished=count,
            max_unfinished=core.clients.quota(name),
            running=running[name],
            weight=core.waiting.weight(name),
        )
        for name, count in core.clients.by_share().most_common(MOST_SHARES)
    ]


def _differ(one: pb.WatchClusterResponse, other: pb.WatchClusterResponse) -> bool:
    """Compare two snapshots by all but the times in them."""
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
