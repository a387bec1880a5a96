"""Row 28: the disk is full, the log is torn, and the scheduler dies in the middle of a commit."""

from __future__ import annotations

import asyncio
import random
import resource
from pathlib import Path

import grpc
import grpc.aio

from kerneldyno.rpc import errors
from kerneldyno.v1.evaluation_pb2 import EvalRequest
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest
from tests.chaos.clients import connected, request, workload
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_least, audit_all, exactly, kept, of_kind, run_clients
from tests.waiting import eventually

ROWS = (28,)
TITLE = "Disk full, torn write-ahead log, SIGKILL within a commit"


async def run(plan: Plan) -> list[Figure]:
    """Fill the disk, then tear the log. The full disk is a limit on file sizes, which can be lifted at run time."""
    full, torn = plan.directory / "full", plan.directory / "torn"
    full.mkdir()
    torn.mkdir()
    figures = []
    async with Cluster(full, nodes=3, seed=plan.seed) as cluster:
        figures += await _full(plan, cluster)
    async with Cluster(torn, nodes=3, seed=plan.seed) as cluster:
        figures += await _torn(plan, cluster, torn / "store.sqlite-wal")
    return figures


async def _full(plan: Plan, cluster: Cluster) -> list[Figure]:
    """Set the limit below the end of the write-ahead log: every write to it fails. The scheduler's own log still fits.

    The evaluations before the fault write about 6 MiB. After 16 MiB the write-ahead log is moved to the store's file
    and starts again; then it would have room below the limit for some writes.
    """
    await run_clients(cluster, {"before": _large("b", 80)}, limit_seconds=120)
    store = cluster.directory / "store.sqlite"
    assert store.stat().st_size < 100_000, "the log was moved to the file: fewer evaluations before the fault"
    scheduler, log = cluster.scheduler.pid, len(cluster.scheduler_log())
    assert store.with_name(store.name + "-wal").stat().st_size > log + 1_000_000, "more evaluations before the fault"
    limits = resource.prlimit(scheduler, resource.RLIMIT_FSIZE)
    resource.prlimit(scheduler, resource.RLIMIT_FSIZE, (log + 500_000, limits[1]))
    cluster.history.note("fault", "info", what="disk full", target="store")
    load = _large("f", plan.count(1_000, 100))
    clients = asyncio.create_task(run_clients(cluster, {"during": load}, limit_seconds=180))
    await eventually(lambda: bool(of_kind(cluster.events(), "submit", "invoke", client="during")), 30, "a submit")
    await asyncio.sleep(3)
    accepted = len(of_kind(cluster.events(), "submit", "ok", client="during"))
    refusal = await _refusal(cluster)
    resource.prlimit(scheduler, resource.RLIMIT_FSIZE, limits)
    cluster.history.note("fault", "info", what="space again", target="store")
    await clients
    died = not cluster.scheduler.alive
    await cluster.kill_scheduler()
    await cluster.start_scheduler()
    events = await audit_all(cluster)
    return [
        exactly(28, "1", "the scheduler survived a full disk", not died, True),
        exactly(28, "1", "evaluations accepted meanwhile", accepted, 0),
        exactly(28, "7", "what a caller was told meanwhile", refusal, "UNAVAILABLE JournalStalledError, with a delay"),
        *kept(28, "1 2", events),
    ]


def _large(prefix: str, count: int) -> list[EvalRequest]:
    return [request(f"{prefix}{i}", f"{prefix}{i}", more="#" + "x" * 20_000) for i in range(count)]


async def _refusal(cluster: Cluster) -> str:
    async with connected(cluster.address) as stub:
        try:
            await stub.EvaluateOnce(EvaluateOnceRequest(client_id="once", request=request("o", "o")), timeout=20)
        except grpc.aio.AioRpcError as error:
            meant = errors.from_rpc_error(error)
            delay = "with" if meant is not None and meant.retry_seconds else "without"
            return f"{error.code().name} {type(meant).__name__}, {delay} a delay"
    return "accepted"


async def _torn(plan: Plan, cluster: Cluster, log: Path) -> list[Figure]:
    """Kill the scheduler in a transaction in each round, and append garbage to its log, as a loss of power does."""
    rounds = plan.count(50, 2)
    draw = random.Random(plan.seed)
    died = 0
    for number in range(rounds):
        await cluster.kill_scheduler()
        assert await cluster.start_scheduler(f"during_commit=kill#{draw.randint(2, 8)}"), (
            "it must start on what it left"
        )
        load = workload(f"t{number}", 30, draw, seconds=(0.01, 0.05))
        name = f"t{number}"
        clients = asyncio.create_task(run_clients(cluster, {name: load}, limit_seconds=120))
        await eventually(lambda: clients.done() or not cluster.scheduler.alive, 120, "an end of either")  # noqa: B023
        if not cluster.scheduler.alive:
            died += 1
            cluster.history.note("fault", "info", what="died", target="scheduler")
            _spoil(log, draw.randbytes(draw.randint(1, 9_000)))
            assert await cluster.start_scheduler(), "it must start on a torn log"
        await clients
    events = await audit_all(cluster)
    return [
        at_least(28, "1", f"deaths within a commit, in {rounds} rounds, with garbage after the log", died, rounds / 2),
        *kept(28, "1 2 3", events),
    ]


def _spoil(log: Path, garbage: bytes) -> None:
    if log.exists():
        with log.open("ab") as file:
            file.write(garbage)
