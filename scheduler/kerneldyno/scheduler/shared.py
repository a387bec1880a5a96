"""Access to a store that several schedulers share, without its driver until it is used: the driver is an extra."""

from __future__ import annotations

from typing import Protocol

from kerneldyno.scheduler.core.ports import Store, StoreError
from kerneldyno.scheduler.roles import Holding
from kerneldyno.scheduler.settings import Settings
from kerneldyno.v1 import fleet_service_pb2, reward_service_pb2, scheduler_service_pb2

#: The services of a scheduler.
SERVICES = [
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (scheduler_service_pb2, "SchedulerService"),
        (fleet_service_pb2, "FleetService"),
        (reward_service_pb2, "RewardService"),
    )
]


class ServedHolding(Holding, Protocol):
    """The role of the active scheduler, as the metrics show it."""

    @property
    def epoch(self) -> int:
        """The epoch that each batch must name."""

    @property
    def takeovers(self) -> int:
        """How often a scheduler took over from one that had not ended in order."""


def require_driver() -> None:
    """Raise StoreError if the driver of PostgreSQL is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StoreError(
            f"a store in PostgreSQL needs a driver: pip install 'kerneldyno[postgres]' ({error})"
        ) from error


def shared_store(settings: Settings) -> Store:
    """Wait until the store is free, and take it. Raises StoreError, StoreUnreachableError."""
    require_driver()
    from kerneldyno.scheduler.store.postgres.contender import Contender

    contender = Contender(
        settings.store,
        settings.store_name,
        address=settings.advertise,
        lease_seconds=settings.store_lease_seconds,
    )
    contender.prepare()
    return contender.wait()


def holding_of(store: Store) -> ServedHolding | None:
    """Return the role of the scheduler that opened `store`; None if no other one can open the store meanwhile."""
    return getattr(store, "tenure", None)
