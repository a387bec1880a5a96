"""An attempt as the server sees it: one request under one fencing token, and the latest snapshot of how far it is.

The node creates attempts, cells move them on, streams watch them, and `work.py` follows those of the scheduler. All get
the newest snapshot, never a backlog, so a slow one costs nothing. What happens to the candidate is the judge's business;
nothing here knows about it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where an attempt is. `device` is empty while it waits; `result` is there exactly when the stage is DONE."""

    stage: pb.Stage.ValueType
    device: str = ""
    result: pb.EvalResult | None = None

    def event(self, token: str) -> pb.AttemptEvent:
        """Return the snapshot as the contract has it."""
        return pb.AttemptEvent(attempt_token=token, stage=self.stage, device=self.device, result=self.result)


class Attempt:
    """One request on its way. Times are the node's monotonic clock, in seconds.

    One with a follower is the scheduler's: it goes on without watchers, and its result is kept until acknowledged.
    """

    def __init__(
        self,
        token: str,
        request: pb.EvalRequest,
        now: float,
        follower: Callable[[Attempt], None] | None = None,
        trace: str = "",
    ) -> None:
        self.token = token
        #: Where it is in a distributed trace (kerneldyno.rpc.trace_context), and when it came by the wall clock.
        self.trace = trace
        self.started_wall = time.time()
        self.request = request
        self.follower = follower
        self.snapshot = Snapshot(pb.STAGE_QUEUED)
        #: Times it was given to a judge; more than one only when a judge died under it.
        self.runs = 0
        self.cancelled = False
        #: The scheduler wants no more of it: it is being killed, and its result is for nobody.
        self.forgotten = False
        #: True after a judge died while this and other attempts were inside a reference: it is then re-run alone.
        self.suspect = False
        self.watchers = 0
        self.last_watched = now
        self.finished_at: float | None = None
        self.collected_at: float | None = None
        #: Size of the result, in bytes.
        self.result_bytes = 0
        self._changed = asyncio.Event()

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return self.finished_at is not None

    @property
    def scheduled(self) -> bool:
        """Whether the scheduler asked for it, rather than a direct caller."""
        return self.follower is not None

    @property
    def held(self) -> bool:
        """Whether the node runs it for the scheduler, or keeps its result for it."""
        return self.scheduled and not self.forgotten

    def move(self, stage: pb.Stage.ValueType, device: str = "") -> None:
        """Enter a stage, and wake the watchers if it is a new one."""
        if (stage, device) != (self.snapshot.stage, self.snapshot.device):
            self._show(Snapshot(stage, device))

    def finish(self, result: pb.EvalResult, now: float) -> None:
        """Set the result, once."""
        assert not self.done, "an attempt has one result"
        self.finished_at = now
        self.result_bytes = result.ByteSize()
        self.request = pb.EvalRequest(id=self.request.id)  # its sources may be megabytes, and the result wait for long
        self._show(Snapshot(pb.STAGE_DONE, self.snapshot.device, result))

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield the current snapshot, then the newest one after each change, until the one with the result."""
        seen: Snapshot | None = None
        while seen is None or seen.result is None:
            if self.snapshot is seen:
                await self._changed.wait()
            seen = self.snapshot
            yield seen

    def _show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._changed.set()
        self._changed = asyncio.Event()
        if self.follower is not None:
            self.follower(self)
