"""One call of ValidateRequest that asks to compile: its build ends when the caller goes away, or the scheduler stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kerneldyno.rpc import auth, errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.build_orders import BuildOrders
from kerneldyno.scheduler.service.evaluate_stream import MAX_CLIENT_ID_CHARS
from kerneldyno.v1.evaluation_pb2 import Compilation, EvalRequest


class BuildCheckCall:
    """One such call."""

    def __init__(self, admission: Admission, orders: BuildOrders) -> None:
        self._admission = admission
        self._orders = orders
        self._stopped = asyncio.Event()

    def invalid(self, violations: Sequence[Violation]) -> Compilation:
        """Return the answer to a request that is malformed."""
        text = f"the request has violations: {', '.join(each.field for each in violations)}"
        reason = Compilation.REASON_INVALID_REQUEST
        return Compilation(state=Compilation.STATE_NOT_COMPILED, reason=reason, detail=text)

    async def run(self, request: EvalRequest, client_id: str) -> Compilation:
        """Have the native code of an effective request built, and return what became of it.

        Raises:
            InvalidRequestError: `client_id` is too long.
            QueueFullError: Too many builds wait.
            ShuttingDownError: The scheduler is being stopped.
        """
        self._admission.require_open()
        if len(client_id) > MAX_CLIENT_ID_CHARS:
            text = f"has more than {MAX_CLIENT_ID_CHARS} characters"
            raise errors.InvalidRequestError(violations=[Violation("client_id", text)])
        stored = client_scope.stored_client_id(client_id)
        self._admission.open_calls.add(self)
        building = asyncio.ensure_future(self._orders.build(request, stored, auth.principal().weight))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({building, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if building.done():
                return building.result()
            raise errors.ShuttingDownError("the scheduler is shutting down", retry_seconds=1.0)
        finally:
            building.cancel()
            stopped.cancel()
            await asyncio.gather(building, stopped, return_exceptions=True)
            self._admission.call_ended(self)

    def drain(self) -> None:
        """Do nothing: the call has no further requests."""

    def close(self) -> None:
        """End the call. The build is not worth a wait: the next scheduler can have it made."""
        self._stopped.set()

    def journal_stalled(self, why: str) -> None:
        """Do nothing: nothing of the call is on disk."""
