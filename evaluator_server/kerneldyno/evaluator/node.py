"""The node: its devices, the attempts on them, and the short queue before them.

`server.py` starts, watches and cancels attempts here, cells report what became of them, `fleet.py` tells the scheduler.
An attempt gets the ready device with the most free lanes. Finished results are kept until collected, for a bounded time
and in bounded number. Nothing here touches a device or knows what a verdict means.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from kerneldyno.rpc import errors
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2 as service_pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from . import registry, verdicts
from .attempt import Attempt, Snapshot
from .cell import Cell, CellSettings
from .metrics import DeviceMetrics, Metrics

log = logging.getLogger(__name__)

#: Runs of one attempt, counting those that a dying judge cut short.
MAX_RUNS = 3
#: Seconds that a result waits to be collected, and that it stays afterwards for a caller whose stream broke on the way.
_RESULT_SECONDS = 600.0
_COLLECTED_SECONDS = 30.0
#: Results held at once; beyond it the oldest goes. At 100 KiB each, logs and all, that is 100 MiB.
_MAX_RESULTS = 1024
#: Seconds that an attempt without any watcher goes on when there is no scheduler that could come back for it.
_UNWATCHED_SECONDS = 30.0
#: When to come back after LanesFullError or ShuttingDownError, in seconds.
_RETRY_SECONDS = 1.0
#: References remembered as hot, per device.
_HOT_REFERENCES = 64


class Node:
    """One node. Everything is called from the same event loop."""

    def __init__(
        self,
        cells: Sequence[CellSettings],
        metrics: Metrics,
        *,
        scheduled: bool = False,
        clock: Callable[[], float] = time.monotonic,
        unwatched_seconds: float = _UNWATCHED_SECONDS,
    ) -> None:
        """`scheduled`: attempts belong to a scheduler, which ends those that nobody wants any more."""
        self.node_id = cells[0].node_id
        self.backends, self.toolkits = registry.backend_names(), registry.toolkit_names()
        self.cells = [Cell(settings, self, DeviceMetrics(metrics, settings.device)) for settings in cells]
        #: Set whenever the scheduler should hear from the node soon.
        self.news = asyncio.Event()
        #: The node was told to stop; `drained_by_scheduler` can be taken back, this cannot.
        self.draining = False
        self.drained_by_scheduler = False
        self._metrics = metrics
        self._scheduled = scheduled
        self._clock = clock
        self._unwatched_seconds = unwatched_seconds
        self._attempts: dict[str, Attempt] = {}
        self._waiting: deque[Attempt] = deque()
        self._hot: dict[str, dict[bytes, None]] = {cell.name: {} for cell in self.cells}
        self._changed = asyncio.Event()
        self._ready_cells = 0

    async def run(self) -> None:
        """Keep the cells alive and the books in order until cancelled. Raises (a group with) CellFailedError."""
        async with asyncio.TaskGroup() as group:
            for cell in self.cells:
                group.create_task(cell.run(), name=f"cell {cell.name}")
            group.create_task(self._housekeeping(), name="housekeeping")

    async def until_ready(self) -> None:
        """Wait until every device has been ready."""
        await self._until(lambda: all(cell.description for cell in self.cells))

    async def until_idle(self, *, collected: bool) -> None:
        """Wait until nothing runs or waits and, with `collected`, no result is uncollected."""
        await self._until(lambda: not (self.tokens() if collected else self._unfinished()))

    def start(self, token: str, request: pb.EvalRequest) -> Attempt:
        """Start an attempt of an effective request, or queue it.

        Raises:
            ShuttingDownError: the node is draining.
            TokenInUseError: there is an attempt with this token.
            NoMatchingDeviceError: no device here is what the request asks for.
            LanesFullError: lanes and queue are full.
        """
        if self.draining or self.drained_by_scheduler:
            raise errors.ShuttingDownError("the node is draining", retry_seconds=_RETRY_SECONDS)
        if token in self._attempts:
            raise errors.TokenInUseError(f"attempt {token!r} exists; use WatchAttempt")
        if not any(_matches(request.device, cell) for cell in self.cells):
            raise errors.NoMatchingDeviceError("no device of this node matches the request's device selector")
        attempt = Attempt(token, request, self._clock())
        lanes = sum(cell.settings.lanes for cell in self.cells)
        if len(self._waiting) >= lanes and self._place(attempt) is None:
            raise errors.LanesFullError(
                f"{lanes} lanes are taken and {len(self._waiting)} attempts wait", retry_seconds=_RETRY_SECONDS
            )
        self._attempts[token] = attempt
        self._waiting.append(attempt)
        log.info("event=attempt_started attempt=%s", token)
        self._dispatch()
        return attempt

    def get(self, token: str) -> Attempt:
        """Return the attempt. Raises AttemptNotFoundError."""
        try:
            return self._attempts[token]
        except KeyError:
            raise errors.AttemptNotFoundError(f"no attempt {token!r}") from None

    async def watch(self, attempt: Attempt) -> AsyncGenerator[Snapshot, None]:
        """Yield snapshots of `attempt` to one more watcher; reading past the last one collects the result."""
        attempt.watchers += 1
        try:
            async for snapshot in attempt.snapshots():
                yield snapshot
            attempt.collected_at = attempt.collected_at or self._clock()
            self._changed.set()
        finally:
            attempt.watchers -= 1
            attempt.last_watched = self._clock()

    def cancel(self, token: str) -> None:
        """End an attempt, and forget it if it is finished already. Unknown tokens are ignored."""
        attempt = self._attempts.get(token)
        if attempt is None:
            return
        if attempt.done:
            del self._attempts[token]
            self._changed.set()
            return
        if attempt.cancelled:
            return
        log.info("event=attempt_cancelled attempt=%s", token)
        attempt.cancelled = True
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            self.finished(attempt, verdicts.cancelled())
        for cell in self.cells:
            cell.cancel(attempt)
        self._dispatch()

    def abandon(self, cause: str, detail: str) -> None:
        """Finish every unfinished attempt as a retryable infrastructure error: the server stops."""
        for attempt in self._unfinished():
            if attempt in self._waiting:
                self._waiting.remove(attempt)
            for cell in self.cells:
                cell.cancel(attempt)
            self.finished(attempt, verdicts.infrastructure_error(cause, detail, retryable=True))

    def drain(self) -> None:
        """Take no more work, for good."""
        self.draining = True
        self.news.set()

    def tokens(self) -> list[str]:
        """Return the tokens of unfinished attempts and of results that nobody has collected."""
        return [token for token, attempt in self._attempts.items() if attempt.collected_at is None]

    def devices(self) -> list[fleet_pb.Device]:
        """Return the devices as they are now. All have been ready at least once."""
        found = []
        for cell in self.cells:
            assert cell.description is not None
            device = fleet_pb.Device()
            device.CopyFrom(cell.description.device)
            device.name, device.lanes, device.ready = cell.name, cell.settings.lanes, cell.ready
            found.append(device)
        return found

    @property
    def profiling(self) -> bool:
        """Whether a device can tell which kernels ran: GPUs can."""
        return any(device.kind == "cuda" for device in self.devices())

    def environment(self) -> pb.Environment:
        """Return the software and hardware of the node, without a device."""
        assert self.cells[0].description is not None
        environment = pb.Environment()
        environment.CopyFrom(self.cells[0].description.environment)
        environment.device = environment.device_model = ""
        environment.node_id = self.node_id
        return environment

    def capabilities(self) -> service_pb.EvaluatorServiceGetCapabilitiesResponse:
        """Return all that a caller may want to know. A sandbox layer is active when it is so on every device."""
        known = [cell.description for cell in self.cells if cell.description is not None]
        layers: dict[str, service_pb.SandboxLayer] = {}
        for layer in (layer for description in known for layer in description.sandbox_layers):
            if layer.name not in layers or not layer.active:
                layers[layer.name] = layer
        return service_pb.EvaluatorServiceGetCapabilitiesResponse(
            node_id=self.node_id,
            devices=self.devices(),
            backends=self.backends,
            toolkits=self.toolkits,
            environment=self.environment(),
            sandbox_layers=layers.values(),
            candidate_memory_bytes=min(description.candidate_memory_bytes for description in known),
            spare_runners=min(description.spare_runners for description in known),
            profiling=self.profiling,
        )

    def finished(self, attempt: Attempt, result: pb.EvalResult) -> None:
        """Complete `result` with what only the node knows, and keep it for the watchers."""
        if attempt.done:  # abandoned, and the judge answered nevertheless
            return
        result.id = attempt.request.id
        result.labels.clear()
        result.labels.update(attempt.request.labels)
        result.attempts = attempt.runs
        result.environment.node_id = self.node_id
        result.finish_time.GetCurrentTime()
        attempt.finish(result, self._clock())
        self._metrics.record(result)
        outcome = pb.EvalResult.Outcome.Name(result.outcome)
        log.info("event=attempt_finished attempt=%s outcome=%s runs=%d", attempt.token, outcome, attempt.runs)
        self._changed.set()

    def lost(self, attempts: Sequence[Attempt], detail: str) -> None:
        """Queue attempts whose judge died before all others, unless they were cancelled or have been run too often."""
        again = []
        for attempt in attempts:
            if attempt.done:
                continue
            if attempt.cancelled:
                self.finished(attempt, verdicts.cancelled())
            elif attempt.runs >= MAX_RUNS:
                text = f"judges died under {attempt.runs} runs of this attempt; the last time: {detail}"
                self.finished(attempt, verdicts.infrastructure_error("JUDGE_DIED", text, retryable=True))
            else:
                attempt.move(pb.STAGE_QUEUED)
                again.append(attempt)
        again.sort(key=lambda attempt: not attempt.suspect)
        self._waiting.extendleft(reversed(again))

    def changed(self) -> None:
        """Use free lanes, and let the scheduler know when the number of ready devices changed."""
        ready = sum(cell.ready for cell in self.cells)
        if ready != self._ready_cells:
            self._ready_cells = ready
            self.news.set()
        self._changed.set()
        self._dispatch()

    def _dispatch(self) -> None:
        for attempt in list(self._waiting):
            cell = self._place(attempt)
            if cell is not None:
                self._waiting.remove(attempt)
                self._heat(cell, attempt)
                cell.assign(attempt)
            elif attempt.suspect:  # it needs a whole device; those behind it would never leave one
                break
        self._metrics.waiting.set(len(self._waiting))

    def _place(self, attempt: Attempt) -> Cell | None:
        """Return the matching device with the most free lanes, among equals one that has run the same reference."""
        fit = [cell for cell in self.cells if cell.accepts(attempt) and _matches(attempt.request.device, cell)]
        key = _reference_key(attempt.request)
        return max(fit, key=lambda cell: (cell.free_lanes, key in self._hot[cell.name]), default=None)

    def _heat(self, cell: Cell, attempt: Attempt) -> None:
        hot, key = self._hot[cell.name], _reference_key(attempt.request)
        hot.pop(key, None)
        hot[key] = None
        if len(hot) > _HOT_REFERENCES:
            del hot[next(iter(hot))]

    def _unfinished(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.done]

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.tidy()

    def tidy(self) -> None:
        """Cancel attempts that nobody can want any more, and drop results that waited too long or are too many."""
        now = self._clock()
        for attempt in list(self._attempts.values()):
            if attempt.finished_at is None:
                unwatched = not attempt.watchers and now - attempt.last_watched > self._unwatched_seconds
                if unwatched and not self._scheduled:
                    self.cancel(attempt.token)
            elif now - attempt.finished_at > _RESULT_SECONDS or (
                attempt.collected_at is not None and now - attempt.collected_at > _COLLECTED_SECONDS
            ):
                del self._attempts[attempt.token]
        kept = sorted(
            (a for a in self._attempts.values() if a.finished_at is not None), key=lambda a: a.finished_at or 0
        )
        for attempt in kept[: max(0, len(kept) - _MAX_RESULTS)]:
            del self._attempts[attempt.token]
        self._changed.set()


def _matches(selector: pb.DeviceSelector, cell: Cell) -> bool:
    if cell.description is None:
        return False
    device = cell.description.device
    return (
        selector.kind in ("", device.kind)
        and selector.model.lower() in device.model.lower()
        and selector.min_memory_bytes <= device.memory_bytes
    )


def _reference_key(request: pb.EvalRequest) -> bytes:
    return hashlib.blake2b(request.reference_code.encode(), digest_size=16).digest()
