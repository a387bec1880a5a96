"""Hundreds of requests from four clients at once against one CPU node: none lost, none doubled, memory bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from kerneldyno.client import AsyncClient, LocalServices
from tests import sampling
from tests.e2e.e2e_harness import main_processes, metric, outcome, page, request
from tests.waiting import eventually

pytestmark = pytest.mark.slow

CLIENTS, EACH = 4, sampling.count(60, 40)
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def cpu_services() -> Iterator[LocalServices]:
    """Services of this file alone, so that their memory is that of this load; on the CPU even if there is a GPU."""
    with LocalServices(devices="cpu") as running:
        yield running


async def one_client(address: str, name: str, most: int = EACH) -> list[tuple[str, str, bool]]:
    """Judge `most` different candidates. All clients use the same ids, but each client has ids of its own."""
    async with AsyncClient(address, client_id=name) as client:
        requests = [request(f"r{number}", mark_of(name, number)) for number in range(most)]
        return [(result.id, outcome(result), result.correct) async for result in client.evaluate(requests)]


def mark_of(name: str, number: int) -> str:
    """Return a statement without effect that makes the candidate unique, so that clients do not share work."""
    return f"_ = {name!r}, {number}"


@pytest.mark.timeout(400)
async def test_hundreds_of_requests_from_four_clients(cpu_services: LocalServices) -> None:
    address = cpu_services.address
    await one_client(address, "warm-up", 10)  # what the services load once does not count as growth
    scheduler, evaluator = main_processes(cpu_services)
    resident = {process: process.memory_info().rss for process in (scheduler, evaluator)}
    highest = Counter(resident)
    before = page(cpu_services.scheduler["metrics"])
    deepest = 0.0

    async def watch() -> None:
        nonlocal deepest
        while True:
            for process in resident:
                highest[process] = max(highest[process], process.memory_info().rss)
            text = await asyncio.to_thread(page, cpu_services.scheduler["metrics"])
            deepest = max(deepest, metric(text, "kerneldyno_queue_depth"))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(350):
        answers = await asyncio.gather(*(one_client(address, f"client-{number}") for number in range(CLIENTS)))
    watching.cancel()

    for mine in answers:
        ids = Counter(id for id, _, _ in mine)
        assert ids.keys() == {f"r{number}" for number in range(EACH)}, "none lost"
        assert set(ids.values()) == {1}, "none doubled"
        assert Counter((verdict, correct) for _, verdict, correct in mine) == {("CORRECT", True): EACH}
    assert deepest > CLIENTS * EACH / 2, "they were queued all at once"
    for process, name in ((scheduler, "scheduler"), (evaluator, "evaluator")):
        grown = highest[process] - resident[process]
        assert grown < 150 * MEBIBYTE, f"the {name} grew by {grown / MEBIBYTE:.0f} MiB"

    def drained() -> bool:
        text = page(cpu_services.scheduler["metrics"])
        return metric(text, "kerneldyno_queue_depth") == metric(text, "kerneldyno_running") == 0

    await eventually(drained, 10, "an empty queue")
    after = page(cpu_services.scheduler["metrics"])
    for name, labels in (
        ("kerneldyno_requests_total", {"client_kind": "stream"}),
        ("kerneldyno_outcomes_total", {"outcome": "CORRECT"}),
        ("kerneldyno_placements_total", {}),
    ):
        assert metric(after, name, **labels) - metric(before, name, **labels) == CLIENTS * EACH, name
    cpu_services.check()
