"""Says that the journal cannot be written, where people and programs look: in health, and in the streams that wait.

The metrics, GetCapabilities and WatchCluster ask the journal themselves. Nodes are served as ever: what they judge meanwhile
is written once it can be. So the health of FleetService stays SERVING.
"""

from __future__ import annotations

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from kerneldyno.scheduler.desk import Desk
from kerneldyno.v1 import reward_service_pb2, scheduler_service_pb2

#: What cannot do its work without the journal; "" is the scheduler as a whole.
_SERVICES = (
    "",
    scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].full_name,
    reward_service_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name,
)


class StallAlarm:
    """Tells each change of `Journal.stalled`. Have it look every now and then."""

    def __init__(self, desk: Desk, health: HealthServicer) -> None:
        self._desk = desk
        self._health = health
        self._told: str | None = None

    async def look(self) -> None:
        """Tell what has changed."""
        stalled = self._desk.journal.stalled
        if stalled == self._told:
            return
        self._told = stalled
        status = (
            health_pb2.HealthCheckResponse.SERVING if stalled is None else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in _SERVICES:
            await self._health.set(service, status)
        for customer in list(self._desk.customers):  # after health: who was told and then asks hears the same
            customer.journal_stalled(stalled or "")
