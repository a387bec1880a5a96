"""An attempt in the server: one request under one fencing token, and the latest snapshot of its progress.

The node creates attempts, cells update them, streams watch them, and `work.py` follows those of the scheduler. Watchers
and followers get only the newest snapshot, so a slow one needs no queue. The judge handles the candidate; nothing here
knows about it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of an attempt. `device` is empty while it waits; `result` is set exactly when the stage is DONE."""

    stage: pb.Stage.ValueType
    device: str = ""
    result: pb.EvalResult | None = None

    def event(self, token: str) -> pb.AttemptEvent:
        """Return the snapshot as a message."""
        return pb.AttemptEvent(attempt_token=token, stage=self.stage, device=self.device, result=self.result)


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What became of an attempt's builds."""

    span: pb.StageSpan
    builds: list[pb.NativeBuild] = field(default_factory=list)
    #: For the judge: digest of the build, key and file of each library; and the messages of builds that failed.
    libraries: dict[str, Any] = field(default_factory=dict)
    #: The verdict, if the candidate cannot be imported because a build has failed.
    result: pb.EvalResult | None = None
    #: Libraries that the builder left to the candidate's own process: their names, and why.
    left: list[tuple[str, str]] = field(default_factory=list)
    #: Why the builder did not find out which libraries there are; empty if it did.
    broken: str = ""


class Attempt:
    """One request in progress. Times are the node's monotonic clock, in seconds.

    An attempt with a follower belongs to the scheduler: it continues without watchers, and its result is kept until it
    is acknowledged.
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
        #: Its place in a distributed trace (kerneldyno.rpc.trace_context), and its arrival by the wall clock, in
        #: seconds.
        self.trace = trace
        self.started_wall = time.time()
        self.request = request
        self.follower = follower
        self.snapshot = Snapshot(pb.STAGE_QUEUED)
        #: How often it was given to a judge. It is given again only after a judge died.
        self.runs = 0
        self.cancelled = False
        #: The scheduler no longer wants it: it is being killed, and its result is dropped.
        self.forgotten = False
        #: True after a judge died while this and other attempts executed references: it then runs again alone.
        self.suspect = False
        #: What the builders made of it; None before, or if it did not need them.
        self.built: BuildOutcome | None = None
        self.watchers = 0
        self.last_watched = now
        self.finished_at: float | None = None
        self.collected_at: float | None = None
        #: Size of the result, in bytes.
        self.result_bytes = 0
        self._changed = asyncio.Event()

    @property
    def done(self) -> bool:
        """Return True if the attempt has its result."""
        return self.finished_at is not None

    @property
    def scheduled(self) -> bool:
        """Return True if it belongs to the scheduler, and not to a direct caller."""
        return self.follower is not None

    @property
    def held(self) -> bool:
        """Return True if the node runs it for the scheduler, or keeps its result for the scheduler."""
        return self.scheduled and not self.forgotten

    def move(self, stage: pb.Stage.ValueType, device: str = "") -> None:
        """Enter a stage, and wake the watchers if the stage or the device changed."""
        if (stage, device) != (self.snapshot.stage, self.snapshot.device):
            self._show(Snapshot(stage, device))

    def finish(self, result: pb.EvalResult, now: float) -> None:
        """Set the result. May be called once."""
        assert not self.done, "an attempt has one result"
        self.finished_at = now
        self.result_bytes = result.ByteSize()
        self.request = pb.EvalRequest(id=self.request.id)  # its sources may be megabytes, and the result may wait long
        self._show(Snapshot(pb.STAGE_DONE, self.snapshot.device, result))

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield the current snapshot, then the newest one after each change, up to the one with the result."""
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
