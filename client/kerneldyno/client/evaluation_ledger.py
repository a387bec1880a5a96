"""The ledger of an evaluate() call.

After a reconnect it asks for everything unanswered by id, and submits again what the scheduler no longer knows.
Requests that the scheduler cancelled because this client was disconnected for too long are submitted again under a
fresh id.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable

from kerneldyno.client.ledger import MAX_ITEM_BYTES, MAX_MESSAGE_BYTES, Ledger, take_ids
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse


class EvaluationLedger(Ledger[EvalRequest, EvalResult, EvaluateRequest, EvaluateResponse]):
    """Requests of one call until their results are in."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self._attach: deque[str] = deque()
        self._first_ids: dict[str, str] = {}  # original ids of requests that were submitted again under a fresh id

    @property
    def finished(self) -> bool:
        """Return True if nothing is outstanding: cancellations are confirmed by results."""
        return self.idle

    def add(self, item: EvalRequest) -> None:
        """Take a request whose id is not in use in this call."""
        self._waiting[item.id] = item
        self._unsent.append(item.id)

    def next_message(self) -> EvaluateRequest | None:
        """Return the next message to send, or None if there is nothing to send."""
        if not (self._attach or self._cancel or self._unsent):
            return None
        message = EvaluateRequest(client_id=self._client_id)
        # Ids and requests are sent separately, so that neither limit can be exceeded by the sum of both.
        if self._attach or self._cancel:
            message.attach_ids.extend(take_ids(self._attach))
            message.cancel_ids.extend(take_ids(self._cancel))
        else:
            self._pack(message.requests, MAX_MESSAGE_BYTES)
        return message

    def reconnected(self) -> None:
        """Start over on a new stream: ask for everything that an earlier one may have submitted."""
        unsent = set(self._unsent)
        self._attach = deque(id for id in self._waiting if id not in unsent)
        self._attach.extend(self._cancelling)
        self._cancel = deque(self._cancelling)

    def receive(self, response: EvaluateResponse) -> EvalResult | None:
        """Process a response. Return a result that the caller waits for, or None."""
        match response.WhichOneof("event"):
            case "result":
                self._cancelling.discard(response.result.id)
                # A result may arrive twice: once before a stream broke, once because its id was attached again.
                request = self._waiting.pop(response.result.id, None)
                if request is None:
                    return None
                first_id = self._first_ids.pop(request.id, request.id)
                if request.HasField("client_grace") and response.result.infrastructure_error.cause == "CLIENT_GONE":
                    self._submit_again(request, first_id)
                    return None
                response.result.id = first_id
                return response.result
            case "unknown":
                self._resubmit(response.unknown.ids)
        return None

    def abandon(self) -> list[EvalRequest]:
        """Give up everything unanswered, and return it. Requests that were sent are cancelled, others dropped."""
        self._attach.clear()
        return super().abandon()

    def expired(self, item: EvalRequest, timeout: float) -> EvalResult:
        """Return the result of a request that had none when its call's deadline passed."""
        return expired_result(item, timeout)

    def oversize(self, item: EvalRequest) -> EvalResult:
        """Return the result of a request that is too large for a message."""
        return oversize_result(item, item.ByteSize())

    def _submit_again(self, request: EvalRequest, first_id: str) -> None:
        """Submit `request` again: its grace was over before this client was back."""
        again = EvalRequest()
        again.CopyFrom(request)
        again.id = uuid.uuid4().hex
        self._first_ids[again.id] = first_id
        self.add(again)

    def _resubmit(self, ids: Iterable[str]) -> None:
        queued = set(self._unsent)
        for id in ids:
            self._cancelling.discard(id)
            if id in self._waiting and id not in queued:
                self._unsent.append(id)


def expired_result(request: EvalRequest, timeout: float) -> EvalResult:
    """Return the result of a request that had none within `timeout` seconds."""
    message = f"no result within the call's deadline of {timeout:g} s"
    result = _unjudged(request, EvalResult.INFRASTRUCTURE_ERROR, message)
    result.infrastructure_error.cause = "DEADLINE_EXCEEDED"
    result.infrastructure_error.detail = message
    result.infrastructure_error.retryable = True
    return result


def oversize_result(request: EvalRequest, size: int) -> EvalResult:
    """Return the result of a request that is too large for a message; `size` in bytes includes its envelope."""
    message = f"the request has {size} bytes; at most {MAX_ITEM_BYTES} fit into a message"
    result = _unjudged(request, EvalResult.INVALID, message)
    result.invalid.violations.add(field="", description=message)
    return result


def _unjudged(request: EvalRequest, outcome: EvalResult.Outcome.ValueType, message: str) -> EvalResult:
    result = EvalResult(id=request.id, outcome=outcome, compiled=False, correct=False, speedup=0.0, message=message)
    result.labels.update(request.labels)
    result.finish_time.GetCurrentTime()
    return result
