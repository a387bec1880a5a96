"""What the fleet as a whole can run, as far as that is known. Pure."""

from __future__ import annotations

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Requirement
from kerneldyno.scheduler.core.unmatched import Unmatched


class Capabilities:
    """Answers what the fleet can run. Unknown until the first node registers, and for one lease after a restart."""

    def __init__(self, fleet: Fleet, unmatched: Unmatched, clock: Clock) -> None:
        self._fleet = fleet
        self._unmatched = unmatched
        self._clock = clock
        self._known_at = clock.monotonic()

    def unknown_for(self, seconds: float) -> None:
        """Treat the fleet as unknown for the next `seconds`: nodes of an earlier process may not have registered yet."""
        self._known_at = self._clock.monotonic() + seconds

    def known(self) -> bool:
        """Return True if work that no registered node offers cannot run."""
        return self._clock.monotonic() >= self._known_at and self._fleet.offers.backends() is not None

    def backends(self) -> list[str] | None:
        """Return the backends of all nodes, including those lost lately; None while the fleet is unknown."""
        return self._fleet.offers.backends() if self.known() else None

    def toolkits(self) -> list[str] | None:
        """Return the toolkits of all nodes, including those lost lately; None while the fleet is unknown."""
        return self._fleet.offers.toolkits() if self.known() else None

    def profiling(self) -> bool:
        """Return True if some node can profile, or may join that can."""
        return not self.known() or self._fleet.offers.profiling()

    def never_runs(self, need: Requirement) -> str | None:
        """Return why no node can ever run such work; None while one can, or may join that can."""
        return self._unmatched.never_runs(need, self._clock.monotonic()) if self.known() else None
