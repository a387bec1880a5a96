"""State of one call: the items it has sent, and the answers it still waits for.

The session (session.py) passes items and responses to a ledger and sends the messages that the ledger makes. With this
state a call survives a broken stream. Common code is here; evaluation_ledger.py and reward_ledger.py each implement the
contract of one call. Pure: no I/O, no clock, no tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

#: Limits of one message to the scheduler, from the contract (EvaluateRequest.requests, StreamRewardsRequest.turns).
MAX_MESSAGE_BYTES = 12 * 2**20
MAX_MESSAGE_IDS = 1000

#: Bytes of a message apart from its items: the client id, field tags and lengths.
ENVELOPE_BYTES = 1024
#: Bytes of an item apart from its contents: one tag and a length.
_ITEM_BYTES = 6

#: The largest item that fits into a message.
MAX_ITEM_BYTES = MAX_MESSAGE_BYTES - ENVELOPE_BYTES - _ITEM_BYTES


class Sized(Protocol):
    """A protobuf message."""

    def ByteSize(self) -> int:  # noqa: N802
        """Return its size on the wire."""


Item = TypeVar("Item", bound=Sized)
Answer = TypeVar("Answer")
Up = TypeVar("Up")
Down = TypeVar("Down", contravariant=True)


class Ledger(ABC, Generic[Item, Answer, Up, Down]):
    """Items of one call from the moment they are taken from the caller until they are answered."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._waiting: dict[str, Item] = {}  # unanswered, in the order given
        self._unsent: deque[str] = deque()  # ids in _waiting that will be sent next
        self._cancelling: set[str] = set()  # given up; their answers will be dropped
        self._cancel: deque[str] = deque()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the ids whose answers the caller still waits for."""
        return tuple(self._waiting)

    @property
    def answered(self) -> bool:
        """Return True if the caller waits for no answer. Cancellations may still be unconfirmed."""
        return not self._waiting

    @property
    def idle(self) -> bool:
        """Return True if nothing is outstanding in either direction."""
        return not self._waiting and not self._cancelling

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return True if nothing remains to be sent on the present stream, so that it may be half-closed."""

    @abstractmethod
    def add(self, item: Item) -> None:
        """Take an item whose id is not in use in this call."""

    @abstractmethod
    def next_message(self) -> Up | None:
        """Return the next message to send, or None if there is nothing to send."""

    @abstractmethod
    def receive(self, response: Down) -> Answer | None:
        """Process a response. Return an answer that the caller waits for, or None."""

    @abstractmethod
    def reconnected(self) -> None:
        """Start over on a new stream: it is unknown whether items sent on an earlier one arrived."""

    def ended(self) -> None:
        """Note that the scheduler ended a stream without an error, after it was half-closed."""
        return

    def cancel(self, id: str) -> bool:
        """Give up one item, and return whether the caller waited for it. An item that was sent is cancelled."""
        if self._waiting.pop(id, None) is None:
            return False
        if id in self._unsent:
            self._unsent.remove(id)
        else:
            self._cancelling.add(id)
            self._cancel.append(id)
        return True

    def abandon(self) -> list[Item]:
        """Give up everything unanswered, and return it. Items that were sent are cancelled, others dropped."""
        given_up = list(self._waiting.values())
        sent = self._waiting.keys() - set(self._unsent)
        self._cancel.extend(id for id in self._waiting if id in sent)
        self._cancelling |= sent
        self._waiting.clear()
        self._unsent.clear()
        return given_up

    @abstractmethod
    def expired(self, item: Item, timeout: float) -> Answer:
        """Return the answer of an item that had none when its call's deadline passed."""

    @abstractmethod
    def oversize(self, item: Item) -> Answer:
        """Return the answer of an item over MAX_ITEM_BYTES, for which the scheduler would have to end the stream."""

    def _pack(self, into: Any, limit_bytes: int) -> None:
        """Move unsent items into a repeated field, up to the limits of a message."""
        size = ENVELOPE_BYTES
        while self._unsent and len(into) < MAX_MESSAGE_IDS:
            item = self._waiting[self._unsent[0]]
            size += item.ByteSize() + _ITEM_BYTES
            if into and size > limit_bytes:
                break
            into.append(item)
            self._unsent.popleft()


def take_ids(ids: deque[str]) -> list[str]:
    """Remove from `ids` as many as a message may have, and return them."""
    return [ids.popleft() for _ in range(min(len(ids), MAX_MESSAGE_IDS))]
