"""Reports that the journal cannot be written, or that this scheduler is not certain of its role.

It reports in the gRPC health service, and in the streams that wait.

Metrics, GetCapabilities and WatchCluster read the journal's state themselves. Nodes are served as usual, because the results
that they send meanwhile are written once the journal can be; FleetService therefore stays SERVING, unless another
scheduler may be the active one.
"""

from __future__ import annotations

from collections.abc import Callable

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from kerneldyno.scheduler.probes import READINESS
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.v1 import fleet_service_pb2, reward_service_pb2, scheduler_service_pb2

#: What cannot be done without the journal; "" is the scheduler as a whole.
_SERVICES = (
    "",
    READINESS,
    scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].full_name,
    reward_service_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name,
)
_FLEET = fleet_service_pb2.DESCRIPTOR.services_by_name["FleetService"].full_name


class JournalHealth:
    """Passes on each change of `ServedJournal.stalled`, and of the certainty that this scheduler is the active one."""

    def __init__(self, admission: Admission, health: HealthServicer, certain: Callable[[], bool]) -> None:
        """Create it.

        Args:
            admission: Has the journal, and the calls that are open.
            health: The health service.
            certain: Returns True if no other scheduler can have taken over by now.
        """
        self._admission = admission
        self._health = health
        self._certain = certain
        self._reported: str | None = None
        self._reported_certain = True

    @property
    def certain(self) -> bool:
        """Return True if no other scheduler can have taken over by now."""
        return self._certain()

    async def update(self) -> None:
        """Report the state if it has changed since the last call. Call this periodically."""
        stalled, certain = self._admission.journal.stalled, self._certain()
        if certain != self._reported_certain:
            self._reported_certain = certain
            await self._health.set(_FLEET, _status(certain))
        elif stalled == self._reported:
            return
        for service in _SERVICES:
            await self._health.set(service, _status(certain and stalled is None))
        if stalled == self._reported:
            return
        self._reported = stalled
        # After health, so that a client that is told and then checks the health sees the same.
        for call in list(self._admission.open_calls):
            call.journal_stalled(stalled or "")


def _status(serving: bool) -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    return health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
