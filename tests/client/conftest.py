"""A fixture: a fake scheduler on a real socket, a new one for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.client.fake_fleet import FakeFleet


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as scheduler:
        yield scheduler
