"""Decide which of several schedulers to try next. Pure: no I/O, and the clock is an argument.

One scheduler serves, the others are standbys. A `Rotation` keeps the one that served last until it fails. Then it tries
each other one once: first the one that a standby named, otherwise in the order of the list. After such a round it tells
the caller to pause, so that many clients do not call the standbys without end, and begins the next round.

A standby's hint is never trusted for long: it counts once a round, and an address outside the list is forgotten when it
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kerneldyno.rpc.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to connect to."""

    address: str
    """HOST:PORT, or a target that gRPC knows."""
    name: str = field(default="", compare=False)
    """The HOST:PORT that was given, if `address` is one of several that its DNS name stands for; else ""."""

    def __str__(self) -> str:
        return f"{self.address} ({self.name})" if self.name else self.address


class Rotation:
    """The endpoints of a list, which one to use now, and what those that failed have said.

    Args:
        endpoints: at least one, the preferred one first.
        clock: returns the time in seconds.
    """

    def __init__(self, endpoints: Sequence[Endpoint], clock: Callable[[], float]) -> None:
        self._endpoints = list(endpoints)
        self._clock = clock
        self._backoff = Backoff()
        self._tried: set[Endpoint] = set()  # in this round
        self._asked_pause = 0.0  # the longest that a standby asked for in this round
        self._confirmed = False  # whether `current` has served and not failed since
        #: The endpoint to use now. It is not in the list while a hint is followed.
        self.current = self._endpoints[0]
        #: What each endpoint said that has failed since one served last.
        self.said: dict[Endpoint, str] = {}
        #: Number of rounds that have ended without a scheduler that serves.
        self.rounds = 0
        #: Time before which nothing should be tried, because a round has ended.
        self.resume_at = 0.0

    @property
    def several(self) -> bool:
        """Return True if there is more than one endpoint to try."""
        return len(self._endpoints) > 1 or self.current not in self._endpoints

    def listed(self, address: str) -> Endpoint | None:
        """Return the endpoint of the list that has this address."""
        return next((one for one in self._endpoints if address == one.address), None)

    def of(self, address: str) -> list[Endpoint]:
        """Return the endpoints of the list that an address given by the user stands for."""
        return [one for one in self._endpoints if address.removeprefix("dns:///") == one.name or address == one.address]

    def served(self, endpoint: Endpoint) -> bool:
        """Note that `endpoint` serves, and use it from now on.

        Return False, and change nothing, for the late answer of an endpoint whose successor has served already.
        """
        if endpoint != self.current and self._confirmed:
            return False
        self.current, self._confirmed = endpoint, True
        self.said.clear()
        self._tried.clear()
        self._asked_pause = 0.0
        self._backoff.reset()
        return True

    def failed(
        self, endpoint: Endpoint, why: str, *, hint: Endpoint | None = None, retry_seconds: float | None = None
    ) -> None:
        """Note that `endpoint` does not serve, and turn to another one if it is the one in use.

        Args:
            endpoint: the one that was tried.
            why: what it said, for people.
            hint: the one that serves, according to `endpoint`.
            retry_seconds: the pause that it asked for. It applies after a whole round.
        """
        if endpoint != self.current and self._confirmed:
            return  # a late failure: its successor has served already
        self.said[endpoint] = why
        if endpoint != self.current:
            return  # another call has failed there before, and turned to another one
        self._confirmed = False
        self._asked_pause = max(self._asked_pause, retry_seconds or 0.0)
        self._tried.add(endpoint)
        if hint is not None and hint not in self._tried:
            self.current = hint
            return
        after = self._endpoints.index(endpoint) + 1 if endpoint in self._endpoints else 0
        following = self._endpoints[after:] + self._endpoints[:after]
        untried = [one for one in following if one not in self._tried]
        self.current = (untried or following)[0]
        if not untried:
            self.rounds += 1
            self._tried.clear()
            if self.several or self._asked_pause:  # else the caller paces its calls
                self.resume_at = self._clock() + self._backoff.pause(self._asked_pause or None)
            self._asked_pause = 0.0

    def replace(self, endpoints: Sequence[Endpoint]) -> bool:
        """Use another list, because DNS names may stand for other addresses now.

        Return True if a name turned out to stand for several addresses, so that there is more to try at once.
        """
        outside = self.current not in self._endpoints  # a hint is followed
        before, self._endpoints = self._endpoints, list(dict.fromkeys(endpoints))
        if split := any(not one.name and one not in self._endpoints for one in before):
            self.resume_at = 0.0
        self._tried.intersection_update(self._endpoints)
        self.said = {one: why for one, why in self.said.items() if one in self._endpoints}
        if self.current not in self._endpoints and not outside:
            self.current = self._endpoints[0]
        return split
