"""The time in which this process is the active scheduler: it shows that it lives, and knows when it is not certain of it."""

from __future__ import annotations

import logging
import threading

from kerneldyno.scheduler.clock import lived_seconds
from kerneldyno.scheduler.core.ports import StoreUnreachableError
from kerneldyno.scheduler.store.postgres.role import Claim, RoleRows

_log = logging.getLogger(__name__)

#: Beats in one lease. Four may fail.
BEATS_IN_LEASE = 5
#: Share of the lease after which an active scheduler whose beats fail stops answering. The rest is for clocks that run at
#: different rates, and for answers that are on their way.
BELIEVED_SHARE = 0.8


class Tenure:
    """Raises the beat in a thread of its own until it is closed or lost. Attributes may be read in any thread."""

    def __init__(self, rows: RoleRows, claim: Claim, taken_at: float) -> None:
        """Begin.

        Args:
            rows: The rows, used by nobody else from now on.
            claim: What they say since this process took them.
            taken_at: `lived_seconds()` from before it took them.
        """
        self.claim = claim
        self.lost: str | None = None
        """Why this process is no longer the active one; None while it is, as far as it knows."""
        self.successor = ""
        """The address of the scheduler that took over, if it is known."""
        self._rows = rows
        self._believed_until = taken_at + BELIEVED_SHARE * claim.lease_seconds
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="tenure", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """The epoch that each batch must name."""
        return self.claim.epoch

    @property
    def takeovers(self) -> int:
        """How often a scheduler took over from one that had not ended in order."""
        return self.claim.takeovers

    @property
    def lease_seconds(self) -> float:
        """Seconds without a beat after which another scheduler may take over."""
        return self.claim.lease_seconds

    @property
    def certain(self) -> bool:
        """Return True if no other scheduler can have taken over by now."""
        return self.lost is None and lived_seconds() < self._believed_until

    def end(self, epoch: int, address: str) -> None:
        """Note that another scheduler has taken over, with a higher epoch, at this address ("" if it does not say)."""
        if self.lost is None:
            self.successor = address
            self.lost = (
                f"another one ({address or 'no address'}) took over with epoch {epoch}; this one had {self.epoch}"
            )
            reason = self.lost
            _log.error("event=role_lost epoch=%d reason=%r", self.epoch, reason)

    def close(self) -> None:
        """Stop the beats, and let a standby begin at once. Call it after the last batch."""
        self._closing.set()
        self._thread.join()
        try:
            if self.lost is None:
                self._rows.release(self.epoch)
        except StoreUnreachableError as error:
            _log.warning("event=role_not_released epoch=%d reason=%r", self.epoch, str(error))
        self._rows.close()

    def _run(self) -> None:
        while not self._closing.wait(self.claim.lease_seconds / BEATS_IN_LEASE) and self.lost is None:
            began = lived_seconds()
            try:
                if not self._rows.beat(self.epoch):
                    now = self._rows.read()
                    self.end(now.epoch, now.address)
                    return
            except StoreUnreachableError as error:
                if not self._failing:
                    _log.warning("event=beat_failed epoch=%d reason=%r", self.epoch, str(error))
                self._failing = True
            else:
                if self._failing:
                    _log.warning("event=beat_works_again epoch=%d", self.epoch)
                self._failing = False
                self._believed_until = began + BELIEVED_SHARE * self.claim.lease_seconds
