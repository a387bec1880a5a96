"""The unfinished evaluations by client, the quotas of shares, deadlines, and which clients have an open call. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter

from kerneldyno.scheduler.core.model import Evaluation, Key


class Clients:
    """Unfinished evaluations, and the open calls of their clients."""

    def __init__(self, quota: int, grace_seconds: float) -> None:
        """Create an empty table.

        Args:
            quota: Unfinished evaluations that a share may have, unless `set_quota` gives it another number.
            grace_seconds: Upper limit of the grace of all evaluations; see `abandoned`.
        """
        self.count = 0
        """Number of unfinished evaluations."""
        self._quota = quota
        self._grace = grace_seconds
        self._quotas: dict[str, int] = {}
        self._unfinished: dict[str, dict[Key, Evaluation]] = {}
        self._by_share: Counter[str] = Counter()
        self._deadlines: list[tuple[float, int, Evaluation]] = []
        self._order = itertools.count()
        self._open_calls: Counter[str] = Counter()
        self._absent_since: dict[str, float] = {}

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation that has no verdict."""
        key = evaluation.key
        self._unfinished.setdefault(key.client_id, {})[key] = evaluation
        self._by_share[key.share] += 1
        self.count += 1
        if evaluation.deadline_at is not None:
            heapq.heappush(self._deadlines, (evaluation.deadline_at, next(self._order), evaluation))
        if len(self._deadlines) > 2 * self.count + 1_024:
            self._deadlines = [entry for entry in self._deadlines if entry[2].verdict is None]
            heapq.heapify(self._deadlines)

    def remove(self, evaluation: Evaluation) -> None:
        """Remove an evaluation that has got its verdict."""
        key = evaluation.key
        mine = self._unfinished[key.client_id]
        del mine[key]
        if not mine:
            del self._unfinished[key.client_id]
            self._absent_since.pop(key.client_id, None)
        self._by_share[key.share] -= 1
        if not self._by_share[key.share]:
            del self._by_share[key.share]
        self.count -= 1

    def unfinished(self, client_id: str) -> list[Evaluation]:
        """Return the unfinished evaluations of a client."""
        return list(self._unfinished.get(client_id, {}).values())

    def by_share(self) -> Counter[str]:
        """Return the number of unfinished evaluations of each share that has any."""
        return Counter(self._by_share)

    def quota(self, share: str) -> int:
        """Return how many unfinished evaluations `share` may have."""
        return self._quotas.get(share, self._quota)

    def set_quota(self, share: str, quota: int | None) -> None:
        """Give `share` a quota of its own; None gives it the default quota again."""
        if quota is None:
            self._quotas.pop(share, None)
        else:
            self._quotas[share] = quota

    def has_room(self, share: str) -> bool:
        """Return True if `share` may have one more unfinished evaluation."""
        return self._by_share[share] < self.quota(share)

    # Open calls

    def call_opened(self, client_id: str) -> None:
        """Record that a call of this client was opened."""
        self._open_calls[client_id] += 1
        self._absent_since.pop(client_id, None)

    def call_closed(self, client_id: str, now: float) -> None:
        """Record that a call of this client has ended."""
        self._open_calls[client_id] -= 1
        if self._open_calls[client_id] <= 0:
            del self._open_calls[client_id]
            self.mark_absent(client_id, now)

    def mark_absent(self, client_id: str, now: float) -> None:
        """Start the grace of the client's unfinished evaluations, if it has any and no open call."""
        if client_id in self._unfinished and not self._open_calls[client_id]:
            self._absent_since.setdefault(client_id, now)

    # Time

    def past_deadline(self, now: float) -> list[Evaluation]:
        """Return the unfinished evaluations whose deadline has passed, each once."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            found.append(heapq.heappop(self._deadlines)[2])
        return [evaluation for evaluation in found if evaluation.verdict is None]

    def abandoned(self, now: float) -> list[tuple[Evaluation, float]]:
        """Return the evaluations whose client had no open call for their grace, each with that grace in seconds."""
        return [
            (evaluation, grace)
            for client_id, since in self._absent_since.items()
            for evaluation in self.unfinished(client_id)
            if now - since >= (grace := self._grace_of(evaluation))
        ]

    def _grace_of(self, evaluation: Evaluation) -> float:
        own = evaluation.grace_seconds
        return self._grace if own is None else min(own, self._grace)
