"""The node: it starts and ends attempts on its devices, and tells the scheduler's link when something has changed.

`work.py` starts the scheduler's attempts here, `evaluator_service.py` those of direct callers, and cells report their
results. `waiting_line.py` chooses the device of an attempt, `attempt_table.py` keeps results, and `node_description.py`
says what the node offers. Nothing here uses a device or interprets a verdict.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from kerneldyno.rpc import errors, trace_context, validation
from kerneldyno.rpc.native import may_need_build
from kerneldyno.v1 import evaluation_pb2 as pb

from . import failure_results
from .attempt import Attempt, BuildOutcome, Snapshot
from .attempt_table import AttemptTable
from .builders import Builders, BuilderSettings
from .cell import Cell, CellSettings
from .metrics import DeviceMetrics, Metrics
from .node_description import NodeDescription
from .tracing import AttemptSpans
from .waiting_line import WaitingLine

_log = logging.getLogger(__name__)

#: Maximum number of runs of one attempt, including runs that a judge's death cut short.
MAX_RUNS = 3
#: A direct caller's attempt is cancelled after this many seconds without a watcher.
_UNWATCHED_SECONDS = 30.0
_MAX_TOKEN_CHARS = 100
#: Delay in seconds that LanesFullError and ShuttingDownError name for the next try.
_RETRY_SECONDS = 1.0


class Node:
    """One node. One event loop calls all methods."""

    def __init__(
        self,
        cells: Sequence[CellSettings],
        metrics: Metrics,
        *,
        builders: BuilderSettings | None = None,
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        unwatched_seconds: float = _UNWATCHED_SECONDS,
        spans: AttemptSpans | None = None,
    ) -> None:
        self.node_id = cells[0].node_id
        self.cells = [
            Cell(settings, self, DeviceMetrics(metrics, settings.device, settings.lanes)) for settings in cells
        ]
        self.builders = Builders(builders, self._built, metrics) if builders is not None else None
        self.description = NodeDescription(self.node_id, self.cells, labels, self.builders)
        self.attempts = AttemptTable(clock)
        #: Set whenever the node should soon report to the scheduler.
        self.news = asyncio.Event()
        #: The node was told to stop, for good. The scheduler can take back `drained_by_scheduler`.
        self.draining = False
        self.drained_by_scheduler = False
        self._line = WaitingLine(self.cells, self.description.labels)
        self._metrics = metrics
        self._clock = clock
        self._unwatched_seconds = unwatched_seconds
        self._spans = spans
        self._changed = asyncio.Event()
        self._ready_cells = 0

    async def run(self) -> None:
        """Run the cells and delete old results until cancelled. Raises a group that contains CellFailedError."""
        async with asyncio.TaskGroup() as group:
            for cell in self.cells:
                group.create_task(cell.run(), name=f"cell {cell.name}")
            if self.builders is not None:
                group.create_task(self.builders.run(), name="builders")
            group.create_task(self._housekeeping(), name="housekeeping")

    async def until_ready(self) -> None:
        """Wait until every device has been ready."""
        await self._until(lambda: all(cell.description for cell in self.cells))

    async def until_idle(self) -> None:
        """Wait until no attempt runs or waits for a lane."""
        await self._until(lambda: not self.attempts.unfinished())

    async def until_acknowledged(self, worth_waiting: Callable[[], bool]) -> None:
        """Wait until the scheduler has acknowledged all results, or until `worth_waiting` returns False."""
        await self._until(lambda: not self.attempts.held() or not worth_waiting())

    async def until_empty(self) -> None:
        """Wait until no attempt runs, and all results have been collected or acknowledged."""
        await self._until(lambda: not self.attempts.tokens())

    def submit(self, token: str, request: pb.EvalRequest, *, trace: str = "") -> Attempt:
        """Validate a direct caller's request, fill in its defaults, and start an attempt of it.

        Args:
            token: The attempt's fencing token.
            request: The request, as a client sent it.
            trace: The trace context of the call (kerneldyno.rpc.trace_context), used if the request has none. The judge
                gets neither.

        Raises:
            InvalidRequestError: The request is malformed.
            KernelDynoError: As in `start`.
        """
        offered = self.description
        violations = validation.validate(
            request,
            backends=offered.backends,
            toolkits=offered.toolkits,
            profiling=offered.profiling,
            id_required=False,
        )
        if fault := _token_fault(token):
            violations.append(validation.Violation("attempt_token", fault))
        if violations:
            raise errors.InvalidRequestError(violations=violations)
        full = validation.effective(request)
        full.ClearField("trace_context")
        return self.start(token, full, trace=trace_context.of_message(request.trace_context) or trace)

    def start(
        self,
        token: str,
        request: pb.EvalRequest,
        follower: Callable[[Attempt], None] | None = None,
        *,
        trace: str = "",
    ) -> Attempt:
        """Start an attempt of an effective request, or queue it. Nothing is validated again.

        Checks only what the scheduler cannot know for certain: what this node has at this moment, and whether both
        sides mean the same by an effective request.

        Args:
            token: The attempt's fencing token.
            request: The effective request. It is kept, so nobody may change it afterwards.
            follower: Receives each change of the attempt; given for the scheduler's attempts.
            trace: The attempt's place in a distributed trace (kerneldyno.rpc.trace_context).

        Raises:
            ShuttingDownError: The node is draining.
            TokenInUseError: An attempt with this token exists.
            InvalidRequestError: The token is malformed, or a field is missing that every effective request has.
            NoMatchingDeviceError: The node lacks what the request needs, or no device of it matches.
            LanesFullError: All lanes and the queue are full.
        """
        if self.draining or self.drained_by_scheduler:
            raise errors.ShuttingDownError("the node is draining", retry_seconds=_RETRY_SECONDS)
        if self.attempts.find(token) is not None:
            raise errors.TokenInUseError(f"attempt {token!r} exists; use WatchAttempt")
        if fault := _token_fault(token):
            raise errors.InvalidRequestError(f"the attempt's token {fault}")
        if missing := validation.missing_fields(request):
            text = f"the request is not complete: it has no {', '.join(missing)}"
            raise errors.InvalidRequestError(f"{text}; the scheduler and this node have different versions")
        if lack := self.description.lack(request):
            raise errors.NoMatchingDeviceError(lack)
        if not self._line.offers(request):
            raise errors.NoMatchingDeviceError("no device of this node matches the request and its backend")
        attempt = Attempt(token, request, self._clock(), follower, trace)
        builders = self.builders if self.builders is not None and may_need_build(request) else None
        self._require_room(attempt, builders)
        self.attempts.add(attempt)
        _log.info("event=attempt_started attempt=%s", token)
        if builders is not None and builders.places:
            builders.submit(attempt)
        else:
            self._line.append(attempt)
            self._dispatch()
        return attempt

    def _require_room(self, attempt: Attempt, builders: Builders | None) -> None:
        """Raise LanesFullError if too many attempts wait for the builders, or for a lane."""
        lanes, waiting = self.description.lanes, len(self._line)
        if builders is not None and builders.places:
            self.require_builder()
        elif waiting >= lanes + self.description.builders and self._line.place(attempt) is None:
            text = f"all {lanes} lanes are busy and {waiting} attempts wait"
            raise errors.LanesFullError(text, retry_seconds=_RETRY_SECONDS)

    def require_builder(self) -> None:
        """Raise LanesFullError if too much waits for the builders."""
        builders, lanes = self.builders, self.description.lanes
        if builders is not None and builders.building >= max(lanes, builders.places) + builders.places:
            text = f"all {builders.places} builders are busy and {builders.building - builders.places} attempts wait"
            raise errors.LanesFullError(text, retry_seconds=_RETRY_SECONDS)

    def _built(self, attempt: Attempt, outcome: BuildOutcome) -> None:
        """Take an attempt back from the builders: it has its verdict, or waits for a lane."""
        attempt.built = outcome
        if attempt.cancelled:
            self.finished(attempt, failure_results.cancelled())
        elif outcome.result is not None:
            outcome.result.environment.CopyFrom(self.description.environment())
            self.finished(attempt, outcome.result)
        elif not attempt.done:
            attempt.move(pb.STAGE_QUEUED)
            self._line.append(attempt)
            self._dispatch()

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
        attempt = self.attempts.find(token)
        if attempt is None:
            return
        if not attempt.done:
            self._kill(attempt)
        elif not attempt.scheduled:
            self._remove(attempt)

    def forget(self, token: str) -> None:
        """End an attempt of the scheduler and delete it. Ignore unknown tokens, and those of direct callers."""
        attempt = self.attempts.find(token)
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
        if self._line.remove(attempt):
            self.finished(attempt, failure_results.cancelled())
        if self.builders is not None:
            self.builders.cancel(attempt.token)
        for cell in self.cells:
            cell.cancel(attempt)
        self._dispatch()

    def _remove(self, attempt: Attempt) -> None:
        self.attempts.remove(attempt)
        self._changed.set()

    def abandon(self, cause: str, detail: str) -> None:
        """Finish every unfinished attempt with a retryable infrastructure error, because the server stops."""
        for attempt in self.attempts.unfinished():
            self._line.remove(attempt)
            for cell in self.cells:
                cell.cancel(attempt)
            self.finished(attempt, failure_results.infrastructure_error(cause, detail, retryable=True))
            if self.builders is not None:
                self.builders.cancel(attempt.token)

    def drain(self) -> None:
        """Refuse new work from now on."""
        self.draining = True
        self.news.set()

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
        if attempt.built is not None:
            result.builds.extend(attempt.built.builds)
            result.stages.insert(0, attempt.built.span)
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
            self.attempts.remove(attempt)
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
        self._line.put_back(again)

    def changed(self) -> None:
        """Assign attempts to free lanes, and report to the scheduler if the number of ready devices has changed."""
        ready = sum(cell.ready for cell in self.cells)
        if ready != self._ready_cells:
            self._ready_cells = ready
            self.news.set()
        self._changed.set()
        self._dispatch()

    def _dispatch(self) -> None:
        self._line.dispatch()
        if self.builders is not None:
            self.builders.share(sum(cell.running for cell in self.cells), self.description.lanes)
        self._metrics.waiting.set(len(self._line))

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
        for attempt in self.attempts.unwatched(self._unwatched_seconds):
            self.cancel(attempt.token)
        self.attempts.drop_old_results()
        self._changed.set()


def _token_fault(token: str) -> str:
    """Return what is wrong with a token, or ""."""
    if 1 <= len(token) <= _MAX_TOKEN_CHARS:
        return ""
    return f"has {len(token)} characters; choose a token of 1 to {_MAX_TOKEN_CHARS}"
