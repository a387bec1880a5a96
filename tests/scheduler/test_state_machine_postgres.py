"""The properties of the state machine on PostgreSQL. Each crash is a take-over, and the former store is refused."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings

from kerneldyno.scheduler.core.ports import RoleLostError, Store
from kerneldyno.scheduler.core.records import Drained
from kerneldyno.scheduler.store.postgres.store import PostgresStore
from tests import sampling
from tests.postgres import PostgresServer
from tests.scheduler.postgres_store import emptied, open_postgres
from tests.scheduler.test_state_machine import SchedulerMachine

pytestmark = pytest.mark.slow


class PostgresMachine(SchedulerMachine):
    """The same clients, nodes and crashes around a core whose store is in PostgreSQL."""

    url: ClassVar[str]

    def new_store(self) -> Store:
        return open_postgres(emptied(self.url))

    def reopened(self) -> Store:
        former = self.store
        assert isinstance(former, PostgresStore)
        store = open_postgres(self.url)
        with pytest.raises(RoleLostError):
            former.write([Drained("n1", True)])
        former.close()
        return store


@pytest.fixture(autouse=True, scope="module")
def _server(postgres: PostgresServer) -> None:
    PostgresMachine.url = postgres.schema()


TestPostgresMachine = PostgresMachine.TestCase
TestPostgresMachine.settings = settings(
    max_examples=sampling.examples(16),
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
