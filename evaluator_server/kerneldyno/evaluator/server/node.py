"""The node: its devices, the attempts on them, and the short queue in front of them.

`work.py` starts the scheduler's attempts here, `evaluator_service.py` those of direct callers, and cells report their
results. An attempt goes to the ready device with the most free lanes. The node keeps each result until the scheduler
acknowledges it or a direct caller collects it, within limits of time and size. Nothing here uses a device or interprets
a verdict.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from kerneldyno.rpc import errors, trace_context, validation
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2 as service_pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from . import failure_results, registry
from .attempt import Attempt, Snapshot
from .cell import Cell, CellSettings
from .metrics import DeviceMetrics, Metrics
from .tracing import AttemptSpans

_log = logging.getLogger(__name__)

#: Maximum number of runs of one attempt, including runs that a judge's death cut short.
MAX_RUNS = 3
#: Limits of the results that wait for the scheduler's acknowledgement: seconds for each, bytes for all. Beyond them the
#: oldest are dropped, and the scheduler runs those attempts again. By then their leases have ended long ago, unless it
#: is the scheduler that is unreachable.
_UNACKNOWLEDGED_SECONDS = 3600.0
_UNACKNOWLEDGED_BYTES = 256 * 1024 * 1024
#: Seconds that a direct caller's result waits to be collected, and seconds that it stays afterwards, because the
#: caller's stream may have broken before the result arrived.
_RESULT_SECONDS = 600.0
_COLLECTED_SECONDS = 30.0
#: Maximum number of results for direct callers; beyond it the oldest is dropped. At 100 KiB each, with logs: 100 MiB.
_MAX_RESULTS = 1024
#: A direct caller's attempt is cancelled after this many seconds without a watcher.
_UNWATCHED_SECONDS = 30.0
_MAX_TOKEN_CHARS = 100
#: Delay in seconds that LanesFullError and ShuttingDownError name for the next try.
_RETRY_SECONDS = 1.0
#: Number of references per device that count as hot.
_HOT_REFERENCES = 64


class Node:
    """One node. One event loop calls all methods."""

    def __init__(
        self,
        cells: Sequence[CellSettings],
        metrics: Metrics,
        *,
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        unwatched_seconds: float = _UNWATCHED_SECONDS,
        spans: AttemptSpans | None = None,
    ) -> None:
        self.node_id = cells[0].node_id
        self.backends, self.toolkits = registry.backend_names(), registry.toolkit_names()
        self.labels = dict(labels or {})
        self.cells = [
            Cell(settings, self, DeviceMetrics(metrics, settings.device, settings.lanes)) for settings in cells
        ]
        #: Set whenever the node should soon report to the scheduler.
        self.news = asyncio.Event()
        #: The node was told to stop, for good. The scheduler can take back `drained_by_scheduler`.
        self.draining = False
        self.drained_by_scheduler = False
        self._metrics = metrics
        self._clock = clock
        self._unwatched_seconds = unwatched_seconds
        self._spans = spans
        self._attempts: dict[str, Attempt] = {}
        self._waiting: deque[Attempt] = deque()
        self._hot: dict[str, dict[bytes, None]] = {cell.name: {} for cell in self.cells}
        self._changed = asyncio.Event()
        self._ready_cells = 0

    async def run(self) -> None:
        """Run the cells and delete old results until cancelled. Raises a group that contains CellFailedError."""
        async with asyncio.TaskGroup() as group:
            for cell in self.cells:
                group.create_task(cell.run(), name=f"cell {cell.name}")
            group.create_task(self._housekeeping(), name="housekeeping")

    async def until_ready(self) -> None:
        """Wait until every device has been ready."""
        await self._until(lambda: all(cell.description for cell in self.cells))

    async def until_idle(self) -> None:
        """Wait until no attempt runs or waits for a lane."""
        await self._until(lambda: not self._unfinished())

    async def until_acknowledged(self, worth_waiting: Callable[[], bool]) -> None:
        """Wait until the scheduler has acknowledged all results, or until `worth_waiting` returns False."""
        await self._until(lambda: not self.held() or not worth_waiting())

    async def until_empty(self) -> None:
        """Wait until no attempt runs, and all results have been collected or acknowledged."""
        await self._until(lambda: not self.tokens())

    def submit(
        self,
        token: str,
        request: pb.EvalRequest,
        follower: Callable[[Attempt], None] | None = None,
        *,
        trace: str = "",
    ) -> Attempt:
        """Validate a request, fill in its defaults, and start an attempt of it.

        Args:
            token: The attempt's fencing token.
            request: The request, as a client sent it.
            follower: Receives each change of the attempt; given for the scheduler's attempts.
            trace: The trace context of the call (kerneldyno.rpc.trace_context), used if the request has none. The judge
                gets neither.

        Raises:
            InvalidRequestError: The request is malformed.
            KernelDynoError: As in `start`.
        """
        violations = validation.validate(
            request, backends=self.backends, toolkits=self.toolkits, profiling=self.profiling, id_required=False
        )
        if not 1 <= len(token) <= _MAX_TOKEN_CHARS:
            text = f"has {len(token)} characters; choose a token of 1 to {_MAX_TOKEN_CHARS}"
            violations.append(validation.Violation("attempt_token", text))
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        full = validation.effective(request)
        full.ClearField("trace_context")
        return self.start(token, full, follower, trace=trace_context.of_message(request.trace_context) or trace)

    def start(
        self,
        token: str,
        request: pb.EvalRequest,
        follower: Callable[[Attempt], None] | None = None,
        *,
        trace: str = "",
    ) -> Attempt:
        """Start an attempt of an effective request, or queue it. The scheduler's attempts have a `follower`.

        Raises:
            ShuttingDownError: The node is draining.
            TokenInUseError: An attempt with this token exists.
            NoMatchingDeviceError: No device of this node matches the request.
            LanesFullError: All lanes and the queue are full.
        """
        if self.draining or self.drained_by_scheduler:
            raise errors.ShuttingDownError("the node is draining", retry_seconds=_RETRY_SECONDS)
        if token in self._attempts:
            raise errors.TokenInUseError(f"attempt {token!r} exists; use WatchAttempt")
        if not self._offers(request):
            raise errors.NoMatchingDeviceError("no device of this node matches the request and its backend")
        attempt = Attempt(token, request, self._clock(), follower, trace)
        lanes = sum(cell.settings.lanes for cell in self.cells)
        if len(self._waiting) >= lanes and self._place(attempt) is None:
            raise errors.LanesFullError(
                f"all {lanes} lanes are busy and {len(self._waiting)} attempts wait", retry_seconds=_RETRY_SECONDS
            )
        self._attempts[token] = attempt
        self._waiting.append(attempt)
        _log.info("event=attempt_started attempt=%s", token)
        self._dispatch()
        return attempt

    def get(self, token: str) -> Attempt:
        """Return the attempt. Raises AttemptNotFoundError."""
        try:
            return self._attempts[token]
        except KeyError:
            raise errors.AttemptNotFoundError(f"no attempt {token!r}") from None

    def holds(self, token: str) -> bool:
        """Return True if the node holds an attempt of the scheduler, or its result, under this token."""
        attempt = self._attempts.get(token)
        return attempt is not None and attempt.held

    def held(self) -> list[Attempt]:
        """Return the scheduler's attempts: those that run, and those with results that it has not acknowledged."""
        return [attempt for attempt in self._attempts.values() if attempt.held]

    async def watch(self, attempt: Attempt) -> AsyncGenerator[Snapshot, None]:
        """Yield snapshots of `attempt` to one more watcher. Reading beyond the last one collects the result."""
        attempt.watchers += 1
        try:
            async for snapshot in attempt.snapshots():
                yield snapshot
            if not attempt.scheduled:
                attempt.collected_at = attempt.collected_at or self._clock()
                self._changed.set()
        finally:
            attempt.watchers -= 1
            attempt.last_watched = self._clock()

    def cancel(self, token: str) -> None:
        """End an attempt. If it is a direct caller's and has finished, delete it. Ignore unknown tokens."""
        attempt = self._attempts.get(token)
        if attempt is None:
            return
        if not attempt.done:
            self._kill(attempt)
        elif not attempt.scheduled:
            self._remove(attempt)

    def forget(self, token: str) -> None:
        """End an attempt of the scheduler and delete it. Ignore unknown tokens, and those of direct callers."""
        attempt = self._attempts.get(token)
        if attempt is None or not attempt.scheduled:
            return
        attempt.forgotten = True
        if attempt.done:
            self._remove(attempt)
        else:
            self._kill(attempt)

    def _kill(self, attempt: Attempt) -> None:
        if attempt.cancelled:
            return
        _log.info("event=attempt_cancelled attempt=%s", attempt.token)
        attempt.cancelled = True
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            self.finished(attempt, failure_results.cancelled())
        for cell in self.cells:
            cell.cancel(attempt)
        self._dispatch()

    def _remove(self, attempt: Attempt) -> None:
        del self._attempts[attempt.token]
        self._changed.set()

    def abandon(self, cause: str, detail: str) -> None:
        """Finish every unfinished attempt with a retryable infrastructure error, because the server stops."""
        for attempt in self._unfinished():
            if attempt in self._waiting:
                self._waiting.remove(attempt)
            for cell in self.cells:
                cell.cancel(attempt)
            self.finished(attempt, failure_results.infrastructure_error(cause, detail, retryable=True))

    def drain(self) -> None:
        """Refuse new work from now on."""
        self.draining = True
        self.news.set()

    def tokens(self) -> list[str]:
        """Return the tokens of unfinished attempts, and of results that were neither collected nor acknowledged."""
        return [token for token, attempt in self._attempts.items() if attempt.collected_at is None]

    def devices(self) -> list[fleet_pb.Device]:
        """Return the devices in their present state. Each must have been ready once."""
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
        """Return True if a device can report which kernels ran: GPUs can."""
        return any(device.kind == "cuda" for device in self.devices())

    def environment(self) -> pb.Environment:
        """Return the node's software and hardware, without a device."""
        assert self.cells[0].description is not None
        environment = pb.Environment()
        environment.CopyFrom(self.cells[0].description.environment)
        environment.device = environment.device_model = ""
        environment.node_id = self.node_id
        return environment

    def sandbox_layers(self) -> list[fleet_pb.SandboxLayer]:
        """Return the layers of the sandbox. A layer is active if it is active on every device."""
        layers: dict[str, fleet_pb.SandboxLayer] = {}
        for cell in self.cells:
            for layer in cell.description.sandbox_layers if cell.description is not None else ():
                if layer.name not in layers or not layer.active:
                    layers[layer.name] = layer
        return list(layers.values())

    def capabilities(self) -> service_pb.EvaluatorServiceGetCapabilitiesResponse:
        """Return the answer to GetCapabilities."""
        known = [cell.description for cell in self.cells if cell.description is not None]
        return service_pb.EvaluatorServiceGetCapabilitiesResponse(
            node_id=self.node_id,
            devices=self.devices(),
            backends=self.backends,
            toolkits=self.toolkits,
            environment=self.environment(),
            sandbox_layers=self.sandbox_layers(),
            candidate_memory_bytes=min(description.candidate_memory_bytes for description in known),
            spare_runners=min(description.spare_runners for description in known),
            profiling=self.profiling,
        )

    def finished(self, attempt: Attempt, result: pb.EvalResult) -> None:
        """Add to `result` what only the node knows, and keep it until it is collected or acknowledged."""
        if attempt.done:  # it was abandoned, and the judge answered later
            return
        result.id = attempt.request.id
        result.labels.clear()
        result.labels.update(attempt.request.labels)
        result.ClearField("speedup_kind")
        if result.HasField("candidate_timing"):
            result.speedup_kind = attempt.request.speedup_kind or pb.SPEEDUP_KIND_DEVICE
        result.attempts = attempt.runs
        result.environment.node_id = self.node_id
        result.finish_time.GetCurrentTime()
        attempt.finish(result, self._clock())
        self._metrics.record(result)
        outcome = pb.EvalResult.Outcome.Name(result.outcome)
        _log.info("event=attempt_finished attempt=%s outcome=%s runs=%d", attempt.token, outcome, attempt.runs)
        if self._spans is not None:
            self._spans.finished(attempt, result)
        if attempt.forgotten:
            del self._attempts[attempt.token]
        self._changed.set()

    def lost(self, attempts: Sequence[Attempt], detail: str) -> None:
        """Queue attempts again, in front, after their judge died.

        Finish those that were cancelled or ran MAX_RUNS times.
        """
        again = []
        for attempt in attempts:
            if attempt.done:
                continue
            if attempt.cancelled:
                self.finished(attempt, failure_results.cancelled())
            elif attempt.runs >= MAX_RUNS:
                text = f"judges died under {attempt.runs} runs of this attempt; the last time: {detail}"
                self.finished(attempt, failure_results.infrastructure_error("JUDGE_DIED", text, retryable=True))
            else:
                attempt.move(pb.STAGE_QUEUED)
                again.append(attempt)
        again.sort(key=lambda attempt: not attempt.suspect)
        self._waiting.extendleft(reversed(again))

    def changed(self) -> None:
        """Assign attempts to free lanes, and report to the scheduler if the number of ready devices has changed."""
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
                self._mark_hot(cell, attempt)
                cell.assign(attempt)
            elif attempt.suspect:  # it needs an idle device, which later attempts would keep busy
                break
        self._metrics.waiting.set(len(self._waiting))

    def _offers(self, request: pb.EvalRequest) -> bool:
        selector = request.device
        matching = sum(_matches(request, cell) for cell in self.cells)
        labels = selector.node_labels.items()
        return matching >= max(1, selector.min_devices) and all(self.labels.get(key) == value for key, value in labels)

    def _place(self, attempt: Attempt) -> Cell | None:
        """Return the matching device with the most free lanes.

        Among equals, prefer one that has run the same reference.
        """
        fit = [cell for cell in self.cells if cell.accepts(attempt) and _matches(attempt.request, cell)]
        key = _reference_key(attempt.request)
        return max(fit, key=lambda cell: (cell.free_lanes, key in self._hot[cell.name]), default=None)

    def _mark_hot(self, cell: Cell, attempt: Attempt) -> None:
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
        """Cancel attempts that nobody watches, and drop results that are too old or too many."""
        now = self._clock()
        kept: list[Attempt] = []
        for attempt in list(self._attempts.values()):
            if attempt.finished_at is None:
                unwatched = not attempt.watchers and now - attempt.last_watched > self._unwatched_seconds
                if unwatched and not attempt.scheduled:
                    self.cancel(attempt.token)
            elif attempt.scheduled:
                kept.append(attempt)
            elif now - attempt.finished_at > _RESULT_SECONDS or (
                attempt.collected_at is not None and now - attempt.collected_at > _COLLECTED_SECONDS
            ):
                del self._attempts[attempt.token]
        self._drop_unacknowledged(kept, now)
        uncollected = _by_age(a for a in self._attempts.values() if a.done and not a.scheduled)
        for attempt in uncollected[: max(0, len(uncollected) - _MAX_RESULTS)]:
            del self._attempts[attempt.token]
        self._changed.set()

    def _drop_unacknowledged(self, kept: list[Attempt], now: float) -> None:
        size = sum(attempt.result_bytes for attempt in kept)
        for attempt in _by_age(kept):
            age = now - (attempt.finished_at or now)
            if size <= _UNACKNOWLEDGED_BYTES and age <= _UNACKNOWLEDGED_SECONDS:
                break
            _log.warning(
                "event=result_dropped attempt=%s age=%.0f bytes=%d kept_bytes=%d reason='not acknowledged'",
                *(attempt.token, age, attempt.result_bytes, size),
            )
            size -= attempt.result_bytes
            del self._attempts[attempt.token]


def _by_age(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return finished attempts, the oldest first."""
    return sorted(attempts, key=lambda attempt: attempt.finished_at or 0.0)


def _matches(request: pb.EvalRequest, cell: Cell) -> bool:
    if cell.description is None:
        return False
    device, selector = cell.description.device, request.device
    return (
        validation.device_kind(request) in ("", device.kind)
        and selector.model.lower() in device.model.lower()
        and selector.min_memory_bytes <= device.memory_bytes
    )


def _reference_key(request: pb.EvalRequest) -> bytes:
    return hashlib.blake2b(request.reference_code.encode(), digest_size=16).digest()
