"""Reports that the journal cannot be written: in the gRPC health service, and in the streams that wait.

Metrics, GetCapabilities and WatchCluster read the journal's state themselves. Nodes are served as usual, because the results
that they send meanwhile are written once the journal can be; FleetService therefore stays SERVING.
"""

from __future__ import annotations

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.v1 import reward_service_pb2, scheduler_service_pb2

#: The services that cannot work without the journal; "" is the scheduler as a whole.
_SERVICES = (
    "",
    scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].full_name,
    reward_service_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name,
)


class JournalHealth:
    """Passes on each change of `ServedJournal.stalled`."""

    def __init__(self, admission: Admission, health: HealthServicer) -> None:
        self._admission = admission
        self._health = health
        self._reported: str | None = None

    async def update(self) -> None:
        """Report the state if it has changed since the last call. Call this periodically."""
        stalled = self._admission.journal.stalled
        if stalled == self._reported:
            return
        self._reported = stalled
        status = (
            health_pb2.HealthCheckResponse.SERVING if stalled is None else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in _SERVICES:
            await self._health.set(service, status)
        # After health, so that a client that is told and then checks the health sees the same.
        for call in list(self._admission.open_calls):
            call.journal_stalled(stalled or "")
