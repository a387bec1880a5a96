"""What one evaluate() call has asked for, and what it still waits for.

The session (session.py) feeds it requests and responses and sends the messages it makes. It is the memory that makes a
broken stream harmless: after a reconnect it asks for everything unanswered by id, and submits again what the scheduler
has forgotten. Pure: no I/O, no clock, no tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

#: Bounds of one message up the stream, from the contract (EvaluateRequest.requests).
MAX_MESSAGE_BYTES = 12 * 2**20
MAX_MESSAGE_IDS = 1000

#: Bytes that a message needs beside its requests: the client id, field tags and lengths.
_ENVELOPE_BYTES = 1024
#: Bytes that a request needs beside its own: one tag and a length.
_ITEM_BYTES = 6

#: The largest request that fits into a message.
MAX_REQUEST_BYTES = MAX_MESSAGE_BYTES - _ENVELOPE_BYTES - _ITEM_BYTES


class Ledger:
    """Requests of one call from the moment they are taken from the caller until their result is in."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._waiting: dict[str, EvalRequest] = {}  # unanswered, in the order given
        self._unsent: deque[str] = deque()  # those of _waiting that go up next
        self._cancelling: set[str] = set()  # given up; their results will be dropped
        self._attach: deque[str] = deque()
        self._cancel: deque[str] = deque()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids whose results the caller still waits for."""
        return tuple(self._waiting)

    @property
    def idle(self) -> bool:
        """True when nothing is owed in either direction."""
        return not self._waiting and not self._cancelling

    @property
    def answered(self) -> bool:
        """True when the caller waits for no result. Cancellations may still be under way."""
        return not self._waiting

    def add(self, request: EvalRequest) -> None:
        """Takes a request whose id is not in use in this call."""
        self._waiting[request.id] = request
        self._unsent.append(request.id)

    def next_message(self) -> EvaluateRequest | None:
        """Makes the next message to send, or None when there is nothing to say."""
        if not (self._attach or self._cancel or self._unsent):
            return None
        message = EvaluateRequest(client_id=self._client_id)
        # Ids and requests travel apart, so that neither bound can be passed by the sum of both.
        if self._attach or self._cancel:
            message.attach_ids.extend(_take(self._attach))
            message.cancel_ids.extend(_take(self._cancel))
            return message
        size = _ENVELOPE_BYTES
        while self._unsent and len(message.requests) < MAX_MESSAGE_IDS:
            request = self._waiting[self._unsent[0]]
            size += request.ByteSize() + _ITEM_BYTES
            if message.requests and size > MAX_MESSAGE_BYTES:
                break
            message.requests.append(request)
            self._unsent.popleft()
        return message

    def reconnected(self) -> None:
        """Starts over on a new stream: ask for everything that an earlier one may have submitted."""
        unsent = set(self._unsent)
        self._attach = deque(id for id in self._waiting if id not in unsent)
        self._attach.extend(self._cancelling)
        self._cancel = deque(self._cancelling)

    def receive(self, response: EvaluateResponse) -> EvalResult | None:
        """Takes note of a response. Returns a result that the caller waits for, or None."""
        match response.WhichOneof("event"):
            case "result":
                self._cancelling.discard(response.result.id)
                # A result may come twice: once before a stream broke, once because its id was attached again.
                if self._waiting.pop(response.result.id, None) is not None:
                    return response.result
            case "unknown":
                self._resubmit(response.unknown.ids)
        return None

    def abandon(self) -> list[EvalRequest]:
        """Gives up everything unanswered, and returns it. What was sent is cancelled, what was not is forgotten."""
        given_up = list(self._waiting.values())
        sent = self._waiting.keys() - set(self._unsent)
        self._cancel.extend(id for id in self._waiting if id in sent)
        self._cancelling |= sent
        self._waiting.clear()
        self._unsent.clear()
        self._attach.clear()
        return given_up

    def _resubmit(self, ids: Iterable[str]) -> None:
        queued = set(self._unsent)
        for id in ids:
            self._cancelling.discard(id)
            if id in self._waiting and id not in queued:
                self._unsent.append(id)


def _take(ids: deque[str]) -> list[str]:
    return [ids.popleft() for _ in range(min(len(ids), MAX_MESSAGE_IDS))]
