"""Metrics of the store, and of the role of a scheduler among several on one store."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kerneldyno.rpc.metric_series import Series

#: Operations of a store that are timed.
OPERATIONS = ("write", "find", "cached", "list", "trim", "recover")
ROLES = ("active", "standby", "uncertain")


class RoleMetrics:
    """Gauges of role and epoch, and the number of take-overs. A scheduler with a store of its own is always active."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Series(registry)
        self._role = make.gauge("role", "1 for the role that this scheduler has.", role=ROLES)
        self._epoch = make.gauge("epoch", "Epoch of the active scheduler, as far as this one knows.")
        self._takeovers = make.counter("takeovers", "Take-overs from a scheduler that had not ended in order.")
        self._counted = 0

    def show_standby(self, epoch: int, takeovers: int) -> None:
        """Set what a standby reads in the store."""
        self._show("standby", epoch, takeovers)

    def show_active(self, epoch: int, takeovers: int, *, certain: bool) -> None:
        """Set what an active scheduler knows."""
        self._show("active" if certain else "uncertain", epoch, takeovers)

    def _show(self, role: str, epoch: int, takeovers: int) -> None:
        for one in ROLES:
            self._role.labels(one).set(one == role)
        self._epoch.set(epoch)
        if takeovers > self._counted:
            self._takeovers.inc(takeovers - self._counted)
            self._counted = takeovers
