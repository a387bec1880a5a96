"""Who waits for what: the unfinished evaluations by client, quotas of shares, deadlines, and clients that went away.

Pure; `core` is its only user.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter

from kerneldyno.scheduler.model import Evaluation, Key


class Clients:
    """Unfinished evaluations, and the calls that wait for them."""

    def __init__(self, quota: int, grace_seconds: float) -> None:
        """`quota`: unfinished evaluations that a share may have. `grace_seconds`: the longest grace, see `gone`."""
        self.count = 0
        """Unfinished evaluations."""
        self._quota = quota
        self._grace = grace_seconds
        self._quotas: dict[str, int] = {}
        self._unfinished: dict[str, dict[Key, Evaluation]] = {}
        self._by_share: Counter[str] = Counter()
        self._deadlines: list[tuple[float, int, Evaluation]] = []
        self._order = itertools.count()
        self._calls: Counter[str] = Counter()
        self._gone_since: dict[str, float] = {}

    def enter(self, evaluation: Evaluation) -> None:
        """Take in an evaluation that has no verdict."""
        key = evaluation.key
        self._unfinished.setdefault(key.client_id, {})[key] = evaluation
        self._by_share[key.share] += 1
        self.count += 1
        if evaluation.deadline_at is not None:
            heapq.heappush(self._deadlines, (evaluation.deadline_at, next(self._order), evaluation))
        if len(self._deadlines) > 2 * self.count + 1_024:
            self._deadlines = [entry for entry in self._deadlines if entry[2].verdict is None]
            heapq.heapify(self._deadlines)

    def leave(self, evaluation: Evaluation) -> None:
        """Let go of one that has its verdict."""
        key = evaluation.key
        mine = self._unfinished[key.client_id]
        del mine[key]
        if not mine:
            del self._unfinished[key.client_id]
            self._gone_since.pop(key.client_id, None)
        self._by_share[key.share] -= 1
        if not self._by_share[key.share]:
            del self._by_share[key.share]
        self.count -= 1

    def unfinished(self, client_id: str) -> list[Evaluation]:
        """Return the evaluations of a client."""
        return list(self._unfinished.get(client_id, {}).values())

    def by_share(self) -> Counter[str]:
        """Return how many unfinished evaluations each share has; only of shares that have any."""
        return Counter(self._by_share)

    def quota(self, share: str) -> int:
        """Return how many unfinished evaluations `share` may have."""
        return self._quotas.get(share, self._quota)

    def set_quota(self, share: str, quota: int | None) -> None:
        """Give `share` a quota of its own, or with None everybody's."""
        if quota is None:
            self._quotas.pop(share, None)
        else:
            self._quotas[share] = quota

    def has_room(self, share: str) -> bool:
        """Say whether `share` may have one more."""
        return self._by_share[share] < self.quota(share)

    # Calls

    def arrive(self, client_id: str) -> None:
        """Note that a call of this client is open."""
        self._calls[client_id] += 1
        self._gone_since.pop(client_id, None)

    def depart(self, client_id: str, now: float) -> None:
        """Note that it has ended."""
        self._calls[client_id] -= 1
        if self._calls[client_id] <= 0:
            del self._calls[client_id]
            self.miss(client_id, now)

    def miss(self, client_id: str, now: float) -> None:
        """Note that no call of this client is open, though it has unfinished evaluations."""
        if client_id in self._unfinished and not self._calls[client_id]:
            self._gone_since.setdefault(client_id, now)

    # Time

    def late(self, now: float) -> list[Evaluation]:
        """Return the evaluations whose deadline has passed; each once."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            found.append(heapq.heappop(self._deadlines)[2])
        return [evaluation for evaluation in found if evaluation.verdict is None]

    def gone(self, now: float) -> list[tuple[Evaluation, float]]:
        """Return the evaluations whose client had no open call for their grace, each with that grace in seconds."""
        return [
            (evaluation, grace)
            for client_id, since in self._gone_since.items()
            for evaluation in self.unfinished(client_id)
            if now - since >= (grace := self._grace_of(evaluation))
        ]

    def _grace_of(self, evaluation: Evaluation) -> float:
        own = evaluation.grace_seconds
        return self._grace if own is None else min(own, self._grace)
