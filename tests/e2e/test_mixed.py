"""Mixed candidates, a fifth of which crash, hang or corrupt their process: verdicts are right, and nothing is left."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kerneldyno.client import AsyncClient, EvalRequest, LocalServices
from kerneldyno.evaluator.server import registry
from kerneldyno.rpc.jsonio import request_from_json
from tests import sampling
from tests.e2e.e2e_harness import (
    ON_GPU,
    PROBLEMS,
    descendants,
    main_processes,
    metric,
    orphans,
    outcome,
    page,
)
from tests.waiting import eventually

pytestmark = pytest.mark.alone

COUNT = int(os.environ.get("KERNELDYNO_E2E_CANDIDATES", "200" if ON_GPU else sampling.count(30, 12)))
#: Honest candidates that take seconds each in Triton's interpreter on the CPU. Runs of more than 100 include them.
SLOW = {"relu/slow_two_passes", "layer_norm/triton_two_pass", "max_reduction/triton_loop", "relu/triton_strided"}
#: Time limits in seconds of candidates that may reach them, lower than in expected.json to save time.
LIMITS = {
    "gelu_tanh/hangs": {"compile_timeout": 4, "correctness_timeout": 2},
    "rms_norm/sleeps_at_import": {"load_timeout": 2},
    "row_mean/fork_bomb": {"compile_timeout": 4, "correctness_timeout": 2},
}
MEBIBYTE = 1 << 20


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return COUNT candidates with unique ids, a fifth of them dangerous, in an order that is the same each time."""
    table: dict[str, dict[str, Any]] = json.loads((PROBLEMS / "expected.json").read_text())
    offered = registry.backend_names()
    usable = {
        name: row
        for name, row in table.items()
        if row["backend"] in offered and (ON_GPU or row.get("device") != "cuda")
    }
    dangerous = itertools.cycle(name for name, row in usable.items() if row.get("dangerous"))
    tame = itertools.cycle(
        name
        for name, row in usable.items()
        # Each CUDA candidate takes nvcc half a minute; test_gpu.py has one.
        if not row.get("dangerous") and row["backend"] != "cuda" and (COUNT > 100 or name not in SLOW)
    )
    names = [next(dangerous) if index % 5 == 0 else next(tame) for index in range(COUNT)]
    random.Random(2).shuffle(names)
    return ((f"{index:03d}:{name}", usable[name]) for index, name in enumerate(names))


def as_request(id: str, row: dict[str, Any]) -> EvalRequest:
    name = id.partition(":")[2]
    return request_from_json(
        {
            "id": id,
            "reference_code": (PROBLEMS / name.partition("/")[0] / "reference.py").read_text(),
            # The comment makes each candidate unique if a name comes twice.
            "kernel_code": (PROBLEMS / f"{name}.py").read_text() + f"\n# {id}\n",
            "backend": row["backend"],
            "num_correct_trials": 2,
            "num_perf_trials": 4,
            "num_warmup": 1,
            "timeouts": LIMITS.get(name, row.get("timeouts", {})),
        }
    )


def device_mebibytes() -> int:
    """Return the device memory in use, in MiB."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout)


async def warm_up(services: LocalServices) -> None:
    """Judge one candidate of each problem: memory that the judge keeps on the device for its references is no leak."""
    first = {name.partition("/")[0]: (id, row) for id, row in rows() if (name := id.partition(":")[2])}
    async with AsyncClient(services.address) as client:
        requests = [as_request(id, row) for id, row in first.values() if not row.get("dangerous")]
        assert len([result async for result in client.evaluate(requests, timeout=300)]) == len(requests)


async def settled(services: LocalServices) -> tuple[Counter[str], int]:
    """Wait until only warm spares run. Return the evaluator's processes, counted by command, and its resident bytes."""
    _, evaluator = main_processes(services)
    async with AsyncClient(services.address) as client:
        lanes = (await client.nodes())[0].devices[0].lanes
    spares = min(lanes, 8)  # the evaluator's own default

    def idle() -> bool:
        text = page(services.evaluator["metrics"])
        waiting = metric(text, "kerneldyno_spare_runners")
        return metric(text, "kerneldyno_running_attempts") == 0 and waiting >= spares

    await eventually(idle, 30, "an idle evaluator with all its spares")
    family = Counter(" ".join(process.cmdline()) for process in descendants(evaluator.pid))
    return family, evaluator.memory_info().rss


@pytest.mark.timeout(600)
async def test_mixed_candidates_get_their_verdicts_and_leave_nothing(services: LocalServices) -> None:
    strays = orphans()
    if ON_GPU:
        await warm_up(services)
    family, resident = await settled(services)
    device_before = device_mebibytes() if ON_GPU else 0
    pages = {name: page(fields["metrics"]) for name, fields in (("s", services.scheduler), ("e", services.evaluator))}
    expected = dict(rows())
    assert len(expected) == COUNT
    assert sum(bool(row.get("dangerous")) for row in expected.values()) * 5 >= COUNT

    results = {}
    async with AsyncClient(services.address) as client:
        async for result in client.evaluate([as_request(id, row) for id, row in expected.items()], timeout=500):
            assert result.id not in results, "a second result"
            results[result.id] = result
    assert results.keys() == expected.keys()
    wrong = []
    for id, row in expected.items():
        wanted = row["outcome"] if isinstance(row["outcome"], list) else [row["outcome"]]
        found = {finding.id for finding in results[id].findings}
        if outcome(results[id]) not in wanted or not found.issuperset(row["findings"]):
            wrong.append(f"{id}: {outcome(results[id])}, not {wanted}: {results[id].message}")
    assert not wrong, "\n".join(wrong)
    assert all(result.correct == (outcome(result) == "CORRECT") for result in results.values())
    assert all(result.speedup > 0 for result in results.values() if result.correct)

    # No process and no memory is left. Processes of problems stay for a while.
    _, evaluator = main_processes(services)
    limit = sum(family.values())
    await eventually(
        lambda: len(descendants(evaluator.pid)) <= limit, 180, what="only spares among the evaluator's processes"
    )
    family_after, resident_after = await settled(services)
    assert family_after == family
    await eventually(lambda: not orphans() - strays, 10, "a machine without orphans")
    assert resident_after - resident < 100 * MEBIBYTE
    if ON_GPU:
        await eventually(lambda: device_mebibytes() - device_before <= 64, 30, "device memory as before")

    # The services still run, and their metrics show what happened.
    services.check()
    for address in (services.scheduler["grpc"], services.evaluator["grpc"]):
        async with grpc.aio.insecure_channel(address) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    await asyncio.sleep(1.5)  # judges report their counters every second
    after = {name: page(fields["metrics"]) for name, fields in (("s", services.scheduler), ("e", services.evaluator))}

    def grown(which: str, name: str, **labels: str) -> float:
        return metric(after[which], name, **labels) - metric(pages[which], name, **labels)

    for name, count in Counter(outcome(result) for result in results.values()).items():
        assert grown("s", "kerneldyno_outcomes_total", outcome=name) == count, name
        assert grown("e", "kerneldyno_attempts_total", outcome=name) == count, name
    assert grown("s", "kerneldyno_requests_total", client_kind="stream") == COUNT
    assert grown("s", "kerneldyno_placements_total") == COUNT
    assert grown("s", "kerneldyno_retries_total") == 0
    assert grown("e", "kerneldyno_judge_restarts_total") == 0, "candidates must not be able to end the judge"
    # A candidate that is not valid Python needs no process; every other candidate needs one.
    judged = sum(result.compile_error.type != "SyntaxError" for result in results.values())
    assert grown("e", "kerneldyno_runner_spawns_total") >= judged
    assert grown("e", "kerneldyno_runner_exits_total") >= judged
    assert metric(after["s"], "kerneldyno_queue_depth") == metric(after["s"], "kerneldyno_running") == 0
