"""What a session reports about each of its items. This class records nothing; RequestSpans makes spans of it."""

from __future__ import annotations

from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse, Turn


class ItemSpans:
    """What becomes of the items of one call. This one is for calls that are not traced: it takes note of nothing."""

    def begin(self, item: EvalRequest | Turn) -> None:
        """An item goes on its way. It is told which trace it is in."""

    def end(self, answer: EvalResult | StreamRewardsResponse) -> None:
        """Its answer is there."""

    def drop(self, id: str, error: str = "CANCELLED") -> None:
        """It was given up. `error` says why, in one word."""

    def close(self, error: str = "CANCELLED") -> None:
        """All that have no answer were given up."""
