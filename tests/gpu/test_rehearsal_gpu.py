"""Rehearsals with real services on a GPU: who fails early gets no runner, and everybody else gets the usual verdict."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import batches
from kerneldyno.client import AsyncClient, EvalResult, LocalServices
from kerneldyno.v1.evaluation_pb2 import STAGE_LOADING

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

#: Kinds of the batch whose candidates fail in a rehearsal; the judge finds syntax errors before that.
REHEARSED = ("refused", "missing_name", "missing_module")


async def test_who_fails_early_gets_no_runner(gpu_services: LocalServices) -> None:
    made = [row for row in batches.early(7, tiny=False, per_problem=16) if row.problem in ("relu", "matmul")]
    made.sort(key=lambda row: not row.right)
    async with AsyncClient(gpu_services.address) as client:
        # Somebody is there first, so that the device is not idle when the others come.
        first = asyncio.create_task(client.evaluate_once(made[0].request(20, 1)))
        await asyncio.sleep(1.0)
        others = await asyncio.gather(*(client.evaluate_once(row.request(20, 1)) for row in made[1:]))
        results = dict(zip((row.name for row in made), [await first, *others], strict=True))
    assert [wrong for row in made if (wrong := row.mismatch(results[row.name]))] == []
    early = [results[row.name] for row in made[1:] if row.kind in REHEARSED]
    assert len(early) == 12
    loaded = [result for result in early if STAGE_LOADING in {span.stage for span in result.stages}]
    assert len(loaded) <= len(early) // 4, "only while the device was idle"
    assert {EvalResult.Outcome.Name(result.outcome) for result in early} == {"COMPILE_ERROR"}
