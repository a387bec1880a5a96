"""Admission of requests: validation, the wait for room in the queue, and the two steps in which a stop ends open calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from kerneldyno.rpc import auth, errors, trace_context
from kerneldyno.rpc.tokens import ANONYMOUS
from kerneldyno.rpc.validation import Violation, validate
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import Evaluation, Key, SubmitRequest, SubmitStatus
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import ServedJournal, Store
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.telemetry.metrics import Metrics
from kerneldyno.v1 import evaluation_pb2


class OpenCall(Protocol):
    """An open call that waits for evaluations."""

    def drain(self) -> None:
        """Accept no more requests on this call."""

    def close(self) -> None:
        """Send what is finished, then end with UNAVAILABLE."""

    def journal_stalled(self, why: str) -> None:
        """Tell the client that the journal cannot be written, or with an empty `why` that it can again."""


class Admission(Observer):
    """The way of all calls to the state machine."""

    def __init__(
        self,
        core: Core,
        store: Store,
        journal: ServedJournal,
        settings: Settings,
        metrics: Metrics,
        new_id: Callable[[], str],
        *,
        trace: Callable[[str], str] | None = None,
    ) -> None:
        """Create the admission of one scheduler.

        Args:
            core: The state machine.
            store: Answers listings.
            journal: The journal of `core`.
            settings: Limits and times.
            metrics: Counts requests.
            new_id: Returns a new id for a request that came without one.
            trace: Maps the encoded trace context of a request to the one to record; None to record it unchanged.
        """
        self.core = core
        self.store = store
        self.journal = journal
        self.settings = settings
        self.metrics = metrics
        self.new_id = new_id
        self.open_calls: set[OpenCall] = set()
        self.draining = False
        self._trace = trace
        self._all_ended = asyncio.Event()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting_calls(self) -> int:
        """The number of calls that wait for room."""
        return len(self._waiting)

    def apply_token_limits(self, client_id: str) -> None:
        """Give the share of the present call's client the weight and quota of its token, if it has one."""
        who = auth.principal()
        if who is not ANONYMOUS:
            self.core.requests.set_share(Key(client_id, "").share, weight=who.weight, quota=who.max_queued)

    def check(self, request: evaluation_pb2.EvalRequest, *, id_required: bool = True) -> list[Violation]:
        """Return what is invalid in `request`, including what no registered node can do."""
        return validate(
            request,
            backends=self.core.capabilities.backends(),
            toolkits=self.core.capabilities.toolkits(),
            profiling=self.core.capabilities.profiling(),
            id_required=id_required,
        )

    def submit(self, request: SubmitRequest) -> tuple[SubmitStatus, Evaluation | None]:
        """Submit a valid request in its trace: its own, or else that of the call. See Requests.submit."""
        trace = request.trace or trace_context.of_call()
        return self.core.requests.submit(replace(request, trace=trace if self._trace is None else self._trace(trace)))

    async def wait_for_room(self, client_id: str) -> None:
        """Wait until one more evaluation of this client may be accepted. Calls are served in order of arrival."""
        share = Key(client_id, "").share
        while not self.core.requests.has_room(share):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            place = (share, turn)
            self._waiting.append(place)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting.remove(place)
                else:
                    self.room_made()  # this call's turn has come: pass it on
                raise
        asyncio.get_running_loop().call_soon(self.room_made)  # if there is more room, wake the next call

    def room_made(self) -> None:
        """Wake the first waiting call whose share has room."""
        for index, (share, turn) in enumerate(self._waiting):
            if not turn.cancelled() and self.core.requests.has_room(share):  # a cancelled call is about to leave
                del self._waiting[index]
                turn.set_result(None)
                return

    def require_open(self) -> None:
        """Raise ShuttingDownError during a stop."""
        if self.draining:
            raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)

    def require_journal(self) -> None:
        """Raise JournalStalledError while the journal cannot be written. For calls that cannot wait until it can."""
        if self.journal.stalled is not None:
            text = f"the scheduler cannot write its journal: {self.journal.stalled}"
            raise errors.JournalStalledError(text, retry_seconds=2.0)

    async def committed(self) -> None:
        """Return once all decisions so far are on disk.

        Raises:
            JournalStalledError: The journal cannot be written.
        """
        self.require_journal()
        await self.journal.committed()

    def drain(self) -> None:
        """Take the first step of a stop: accept and place nothing more. Running attempts go on."""
        self.draining = True
        self.core.placement.enabled = False
        for call in list(self.open_calls):
            call.drain()

    async def close(self, limit_seconds: float) -> None:
        """Take the second step of a stop: let calls send what is finished and end, for up to `limit_seconds`."""
        self._all_ended.clear()
        for call in list(self.open_calls):
            call.close()
        if self.open_calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_seconds):
                    await self._all_ended.wait()

    def call_ended(self, call: OpenCall) -> None:
        """Remove a call that has ended."""
        self.open_calls.discard(call)
        if not self.open_calls:
            self._all_ended.set()
