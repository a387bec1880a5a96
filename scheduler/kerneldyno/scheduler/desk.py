"""Where requests are taken in: checks, admission and its waiting room, and the two-step stop of open calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kerneldyno.rpc import auth, errors, trace_context
from kerneldyno.rpc.tokens import ANONYMOUS
from kerneldyno.rpc.validation import Violation, validate
from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.metrics import Metrics
from kerneldyno.scheduler.model import ClientKind, Evaluation, Key, Submission
from kerneldyno.scheduler.observer import Observer
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.base import Store
from kerneldyno.scheduler.store.journal import Journal
from kerneldyno.scheduler.translate import Order
from kerneldyno.v1 import evaluation_pb2


class Customer(Protocol):
    """A call that waits for evaluations."""

    def drain(self) -> None:
        """Take no new requests."""

    def close(self) -> None:
        """Send what is finished, then end with UNAVAILABLE."""

    def journal_stalled(self, why: str) -> None:
        """Say why nothing goes on at the moment; empty when it does again."""


class Desk(Observer):
    """What calls go through to reach the state machine."""

    def __init__(
        self,
        core: Core,
        store: Store,
        journal: Journal,
        settings: Settings,
        metrics: Metrics,
        new_id: Callable[[], str],
        *,
        trace: Callable[[str], str] | None = None,
    ) -> None:
        """`trace` says which trace a request is in, by what it came with (kerneldyno.rpc.trace_context); None: in that."""
        self.core = core
        self.store = store
        self.journal = journal
        self.settings = settings
        self.metrics = metrics
        self.new_id = new_id
        self._trace = trace
        self.customers: set[Customer] = set()
        self._left = asyncio.Event()
        self.draining = False
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting_calls(self) -> int:
        """How many calls wait for room."""
        return len(self._waiting)

    def know(self, client_id: str) -> None:
        """Give the share of the present call's client the weight and quota that its token has."""
        who = auth.principal()
        if who is not ANONYMOUS:
            self.core.set_share(Key(client_id, "").share, weight=who.weight, quota=who.max_queued)

    def check(self, request: evaluation_pb2.EvalRequest, *, id_required: bool = True) -> list[Violation]:
        """Return what is wrong with `request`, measured against what the registered nodes can do."""
        return validate(
            request,
            backends=self.core.known_backends(),
            toolkits=self.core.known_toolkits(),
            profiling=self.core.can_profile(),
            id_required=id_required,
        )

    def submit(self, client_id: str, order: Order, kind: ClientKind) -> tuple[Submission, Evaluation | None]:
        """Hand a checked request to the state machine; the evaluation is given when it was accepted, now or earlier."""
        trace = order.trace or trace_context.of_call()
        return self.core.submit(
            Key(client_id, order.id),
            order.fingerprint,
            order.digest,
            order.spec,
            priority=order.priority,
            labels=order.labels,
            kind=kind,
            timeout_seconds=order.timeout_seconds,
            grace_seconds=order.grace_seconds,
            fresh=order.fresh,
            speedup_kind=order.speedup_kind,
            trace=trace if self._trace is None else self._trace(trace),
        )

    async def room(self, client_id: str) -> None:
        """Wait, first come first served, until one more evaluation of this client may be accepted."""
        share = Key(client_id, "").share
        while not self.core.has_room(share):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            place = (share, turn)
            self._waiting.append(place)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting.remove(place)
                else:
                    self.room_made()  # it was this call's turn: pass it on
                raise
        asyncio.get_running_loop().call_soon(self.room_made)  # if there is more, the next in line may have it

    def room_made(self) -> None:
        """Wake the first in line whose share has room."""
        for index, (share, turn) in enumerate(self._waiting):
            if not turn.cancelled() and self.core.has_room(share):  # a cancelled one is about to leave
                del self._waiting[index]
                turn.set_result(None)
                return

    def require_open(self) -> None:
        """Refuse calls that come during a stop."""
        if self.draining:
            raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)

    def require_journal(self) -> None:
        """Refuse calls that cannot wait until the journal can be written again."""
        if self.journal.stalled is not None:
            text = f"the scheduler cannot write its journal: {self.journal.stalled}"
            raise errors.JournalStalledError(text, retry_seconds=2.0)

    async def committed(self) -> None:
        """Return once all that was decided so far is on disk. Raises JournalStalledError when that takes no end."""
        self.require_journal()
        await self.journal.committed()

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
                async with asyncio.timeout(limit_seconds):
                    await self._left.wait()

    def leave(self, customer: Customer) -> None:
        """Note that a call has ended."""
        self.customers.discard(customer)
        if not self.customers:
            self._left.set()
