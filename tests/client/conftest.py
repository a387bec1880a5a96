"""A fake scheduler on a real socket for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fake_scheduler import FakeScheduler


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeScheduler]:
    async with FakeScheduler() as scheduler:
        yield scheduler
