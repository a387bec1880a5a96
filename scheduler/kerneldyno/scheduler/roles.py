"""What a scheduler answers that is not the active one: a standby, one that has lost its role, or one that is not certain.

All of them answer UNAVAILABLE, with the address of the active scheduler where it is known, and with a time to try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.ports import RoleLostError, StoreUnreachableError

#: Seconds after which to try again when another scheduler serves.
SERVED_SECONDS = 0.1
#: Seconds that a take-over takes in addition to what is left of the lease.
TAKE_SECONDS = 1.0
#: Seconds after which a call that needed the store may be tried again.
STORE_SECONDS = 1.0


class Holding(Protocol):
    """How certain the active scheduler may be of its role."""

    @property
    def certain(self) -> bool:
        """Return True if no other scheduler can have taken over by now."""

    @property
    def lost(self) -> str | None:
        """Why this process is no longer the active one; None while it is, as far as it knows."""

    @property
    def successor(self) -> str:
        """The address of the scheduler that took over, if it is known."""

    @property
    def lease_seconds(self) -> float:
        """Seconds without a sign of life after which another one may take over."""


class StandbyRole:
    """The role of a standby, for the interceptor. `state` returns the address of the active scheduler, and a time."""

    def __init__(self, state: Callable[[], tuple[str, float]]) -> None:
        self._state = state

    def refusal(self) -> errors.KernelDynoError | None:
        """Return the refusal of every call."""
        serving, seconds = self._state()
        where = f"{serving} serves" if serving else "none serves that it knows of"
        return errors.StandbyError(f"this scheduler is a standby; {where}", serving=serving, retry_seconds=seconds)

    def translated(self, error: Exception) -> errors.KernelDynoError | None:
        """Return None: no handler runs."""
        return None


class ActiveRole:
    """The role of a scheduler on a shared store, for the interceptor."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def refusal(self) -> errors.KernelDynoError | None:
        """Return why nothing may be answered: another scheduler has taken over, or may have."""
        holding = self._holding
        if holding.certain:
            return None
        if holding.lost is not None:
            seconds = SERVED_SECONDS if holding.successor else TAKE_SECONDS
            text = f"this scheduler has lost its role: {holding.lost}"
            return errors.StandbyError(text, serving=holding.successor, retry_seconds=seconds)
        text = "this scheduler cannot reach its store, and another one may have taken over"
        return errors.StandbyError(text, retry_seconds=holding.lease_seconds / 2)

    def translated(self, error: Exception) -> errors.KernelDynoError | None:
        """Return how a call ends for which the store was needed."""
        if isinstance(error, RoleLostError):
            return self.refusal()
        if isinstance(error, StoreUnreachableError):
            return self.refusal() or errors.JournalStalledError(
                f"the scheduler cannot reach its store: {error}", retry_seconds=STORE_SECONDS
            )
        return None
