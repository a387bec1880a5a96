"""Where requests are taken in: checks, admission and its waiting room, and the two-step stop of open calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kerneldyno.rpc import errors
from kerneldyno.rpc.validation import Violation, validate
from kerneldyno.scheduler.core import Core, Observer, Submission
from kerneldyno.scheduler.metrics import Metrics
from kerneldyno.scheduler.model import Evaluation, Key
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.translate import spec_of
from kerneldyno.v1 import evaluation_pb2


class Customer(Protocol):
    """A call that waits for evaluations."""

    def drain(self) -> None:
        """Take no new requests."""

    def close(self) -> None:
        """Send what is finished, then end with UNAVAILABLE."""


class Desk(Observer):
    """What calls go through to reach the state machine."""

    def __init__(self, core: Core, settings: Settings, metrics: Metrics, new_id: Callable[[], str]) -> None:
        self.core = core
        self.settings = settings
        self.metrics = metrics
        self.new_id = new_id
        self.customers: set[Customer] = set()
        self._left = asyncio.Event()
        self.draining = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def check(self, request: evaluation_pb2.EvalRequest, *, id_required: bool = True) -> list[Violation]:
        """Return what is wrong with `request`, measured against what the registered nodes can do."""
        return validate(
            request,
            backends=self.core.known_backends(),
            toolkits=self.core.known_toolkits(),
            profiling=self.core.can_profile(),
            id_required=id_required,
        )

    def submit(self, client_id: str, request: evaluation_pb2.EvalRequest) -> tuple[Submission, Evaluation | None]:
        """Hand a checked request to the state machine; the evaluation is given when it was accepted, now or earlier."""
        key = Key(client_id, request.id)
        spec, fingerprint = spec_of(request)
        submission = self.core.submit(key, fingerprint, spec, dict(request.labels))
        return submission, self.core.get(key) if submission in (Submission.NEW, Submission.SAME) else None

    async def room(self) -> None:
        """Wait, first come first served, until one more evaluation may be accepted."""
        while not self.core.has_room():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.room_made()  # it was this call's turn: pass it on
                raise
        asyncio.get_running_loop().call_soon(self.room_made)  # if there is more, the next in line may have it

    def room_made(self) -> None:
        """Wake the first in line."""
        while self._waiting and self.core.has_room():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def require_open(self) -> None:
        """Refuse calls that come during a stop."""
        if self.draining:
            raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)

    def drain(self) -> None:
        """First step of a stop: nothing new is accepted or placed; what runs goes on."""
        self.draining = True
        self.core.placing = False
        for customer in list(self.customers):
            customer.drain()

    async def close(self, limit_seconds: float) -> None:
        """Second step: calls send what is finished and end."""
        self._left.clear()
        for customer in list(self.customers):
            customer.close()
        if self.customers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), limit_seconds)

    def leave(self, customer: Customer) -> None:
        """Note that a call has ended."""
        self.customers.discard(customer)
        if not self.customers:
            self._left.set()
