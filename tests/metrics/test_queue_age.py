"""Tests of the queue's depth and oldest wait: a real scheduler without nodes, before and after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kerneldyno.client import AsyncClient, turn
from tests.e2e.e2e_harness import REFERENCE, Service, candidate, kill, request, scheduler
from tests.metrics.scraped import Scrape
from tests.waiting import eventually

DEPTH, OLDEST = "kerneldyno_queue_depth", "kerneldyno_queue_oldest_seconds"


def page(service: Service) -> Scrape:
    return Scrape.of(f"http://{service.ready['metrics']}/metrics")


async def read(answers: AsyncIterator[Any]) -> None:
    async for _ in answers:
        raise AssertionError("there is no node")


async def test_the_queue_by_priority_and_kind_of_client(tmp_path: Path) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'scheduler.sqlite'}", "--drain-timeout", "0"]
    urgent = [request(name, priority="PRIORITY_HIGH") for name in ("h1", "h2")]
    turns = [turn("g", 0, 0, reference_code=REFERENCE, kernel_code=candidate(), backend="torch")]
    with scheduler(*store) as first:
        async with AsyncClient(first.address, client_id="c") as client, asyncio.TaskGroup() as group:
            calls = [read(client.evaluate(urgent)), read(client.rewards(turns, reward="kevin"))]
            waiting = [group.create_task(call) for call in calls]
            await eventually(lambda: page(first).value(DEPTH) == 3)
            waiting.append(group.create_task(client.evaluate_once(request("o", priority="PRIORITY_LOW"))))
            await eventually(lambda: page(first).value(DEPTH, priority="low", client_kind="once") == 1)
            await asyncio.sleep(1.0)
            seen = page(first)
            kill(first.process)
            for task in waiting:
                task.cancel()
    assert seen.value(DEPTH, priority="high", client_kind="stream") == 2
    assert seen.value(DEPTH, priority="normal", client_kind="rewards") == 1
    assert seen.value(DEPTH) == seen.value("kerneldyno_backlog_evaluations") == 4
    old, new = (seen.value(OLDEST, priority=p, client_kind=kind) for p, kind in (("high", "stream"), ("low", "once")))
    assert 0.7 < new < old < 20
    assert seen.value(OLDEST, priority="low", client_kind="stream") == 0, "nothing of it waits"
    with scheduler(*store) as second:
        await eventually(lambda: page(second).value(DEPTH) == 4)
        after = page(second)
    assert after.value(DEPTH, priority="high", client_kind="recovered") == 2
    assert after.value(OLDEST, priority="high", client_kind="recovered") > old, (
        "it goes on waiting since its acceptance"
    )
