"""What one call has asked for, and what it still waits for.

The session (session.py) feeds a ledger items and responses and sends the messages it makes. It is the memory that makes a
broken stream harmless. What is common is here; evaluation_ledger.py and reward_ledger.py know the contract of one call
each. Pure: no I/O, no clock, no tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

#: Bounds of one message up the stream, from the contract (EvaluateRequest.requests, StreamRewardsRequest.turns).
MAX_MESSAGE_BYTES = 12 * 2**20
MAX_MESSAGE_IDS = 1000

#: Bytes that a message needs beside its items: the client id, field tags and lengths.
ENVELOPE_BYTES = 1024
#: Bytes that an item needs beside its own: one tag and a length.
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
        self._unsent: deque[str] = deque()  # those of _waiting that go up next
        self._cancelling: set[str] = set()  # given up; their answers will be dropped
        self._cancel: deque[str] = deque()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids whose answers the caller still waits for."""
        return tuple(self._waiting)

    @property
    def answered(self) -> bool:
        """True when the caller waits for no answer. Cancellations may still be under way."""
        return not self._waiting

    @property
    def idle(self) -> bool:
        """True when nothing is owed in either direction."""
        return not self._waiting and not self._cancelling

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True when nothing remains to be said on the present stream: it may be half-closed."""

    @abstractmethod
    def add(self, item: Item) -> None:
        """Takes an item whose id is not in use in this call."""

    @abstractmethod
    def next_message(self) -> Up | None:
        """Makes the next message to send, or None when there is nothing to say."""

    @abstractmethod
    def receive(self, response: Down) -> Answer | None:
        """Takes note of a response. Returns an answer that the caller waits for, or None."""

    @abstractmethod
    def reconnected(self) -> None:
        """Starts over on a new stream: an earlier one may have brought up anything that was sent, or not."""

    def ended(self) -> None:
        """Takes note that the scheduler has ended a stream well, after it was half-closed."""
        return

    def cancel(self, id: str) -> bool:
        """Gives up one item, and says whether the caller waited for it. What was sent is cancelled."""
        if self._waiting.pop(id, None) is None:
            return False
        if id in self._unsent:
            self._unsent.remove(id)
        else:
            self._cancelling.add(id)
            self._cancel.append(id)
        return True

    def abandon(self) -> list[Item]:
        """Gives up everything unanswered, and returns it. What was sent is cancelled, what was not is forgotten."""
        given_up = list(self._waiting.values())
        sent = self._waiting.keys() - set(self._unsent)
        self._cancel.extend(id for id in self._waiting if id in sent)
        self._cancelling |= sent
        self._waiting.clear()
        self._unsent.clear()
        return given_up

    @abstractmethod
    def expired(self, item: Item, timeout: float) -> Answer:
        """Makes the answer of an item that had none when its call's deadline passed."""

    @abstractmethod
    def oversize(self, item: Item) -> Answer:
        """Makes the answer of an item over MAX_ITEM_BYTES; the scheduler would have to break the stream over it."""

    def _pack(self, into: Any, limit_bytes: int) -> None:
        """Moves unsent items into a repeated field, up to the bounds of a message."""
        size = ENVELOPE_BYTES
        while self._unsent and len(into) < MAX_MESSAGE_IDS:
            item = self._waiting[self._unsent[0]]
            size += item.ByteSize() + _ITEM_BYTES
            if into and size > limit_bytes:
                break
            into.append(item)
            self._unsent.popleft()


def take_ids(ids: deque[str]) -> list[str]:
    """Removes from `ids` as many as a message may have, and returns them."""
    return [ids.popleft() for _ in range(min(len(ids), MAX_MESSAGE_IDS))]
