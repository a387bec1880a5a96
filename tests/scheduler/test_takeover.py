"""Tests of several schedulers on one PostgreSQL: standbys, kill -9, SIGSTOP, a graceful stop, a database that restarts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kerneldyno.client import AsyncClient
from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler import standby
from kerneldyno.scheduler.shared import holding_of
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.reward_service_pb2 import StreamRewardsRequest
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceStub
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.chaos.proxy import Proxy
from tests.postgres import PostgresServer
from tests.scheduler.scheduler_harness import Client, Outcome, failure, once, request, sample, scheduler, settings
from tests.waiting import eventually, free_port

pytestmark = pytest.mark.slow

LEASE = 1.5


class Scheduler:
    """A scheduler process that shares a store."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.address, self.metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._url, self._log = url, folder / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        options = ["--listen", self.address, "--metrics", self.metrics, "--advertise", self.address]
        options += [
            "--exit-with-parent",
            "--store",
            self._url,
            "--store-lease",
            str(LEASE),
            "--lease",
            "3",
            "--heartbeat",
            "0.5",
        ]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kerneldyno.scheduler", *options), stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        assert line.startswith(b"kerneldyno-scheduler ready grpc="), self.log

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; return its exit status."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), 30)

    async def page(self) -> str:
        """Return its metrics page."""
        where = f"http://{self.metrics}/metrics"
        return await asyncio.to_thread(lambda: str(urllib.request.urlopen(where, timeout=10).read(), "utf-8"))

    async def close(self) -> None:
        """Kill it if it lives."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @property
    def log(self) -> str:
        """What it wrote on standard error."""
        return self._log.read_text()


@asynccontextmanager
async def pair(postgres: PostgresServer, folder: Path) -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """Run two schedulers on one store; the first one is active."""
    url = postgres.schema()
    both = Scheduler(url, folder, "first"), Scheduler(url, folder, "second")
    try:
        await both[0].start()
        await both[1].start()
        yield both
    finally:
        for one in both:
            await one.close()


def connected(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=channel.client_options(own_connection=True))


async def health(peer: grpc.aio.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(peer)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return int(answer.status)


async def serves(address: str, seconds: float = 15) -> float:
    """Wait until the scheduler at `address` serves; return the seconds that it took."""
    began = time.monotonic()
    async with connected(address) as peer, asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                if await health(peer) == health_pb2.HealthCheckResponse.SERVING:
                    return time.monotonic() - began
            await asyncio.sleep(0.02)


async def eventually_on(one: Scheduler, line: str) -> None:
    """Wait until its metrics page has `line`."""
    async with asyncio.timeout(10):
        while line not in await one.page():  # noqa: ASYNC110 - the page of another process
            await asyncio.sleep(0.05)


async def stream_failure(call: Any, first: Any = None) -> errors.KernelDynoError:
    """Return the error that ends a stream, after `first` was sent."""

    async def drive() -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            if first is not None:
                await call.write(first)
        while await call.read() is not grpc.aio.EOF:
            pass
        if (code := await call.code()) is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                code, await call.initial_metadata(), await call.trailing_metadata(), await call.details()
            )

    return await failure(asyncio.wait_for(drive(), 10))


async def test_a_standby_refuses_each_call_and_names_the_active_one(postgres: PostgresServer) -> None:
    url, stop = postgres.schema(), asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    other = settings(store=url, store_lease_seconds=LEASE, advertise="b.example:50051")
    async with AsyncExitStack() as stack:
        running = scheduler(store=url, store_lease_seconds=LEASE, advertise="a.example:50051")
        app, _ = await stack.enter_async_context(running)
        waiting = asyncio.ensure_future(standby.turn(other, stop, lambda one, _: listening.set_result(str(one))))
        peer = await stack.enter_async_context(connected(await asyncio.wait_for(listening, 10)))
        for service in ("", "kerneldyno.v1.SchedulerService", "kerneldyno.v1.FleetService"):
            assert await health(peer, service) == health_pb2.HealthCheckResponse.NOT_SERVING
        for probe in ("liveness", "readiness"):
            assert await health(peer, probe) == health_pb2.HealthCheckResponse.SERVING
        stub, fleet = SchedulerServiceStub(peer), FleetServiceStub(peer)
        calls = [
            failure(stub.EvaluateOnce(once("a"), timeout=5)),
            failure(stub.GetEvaluation(pb.GetEvaluationRequest(id="a", client_id="c"), timeout=5)),
            failure(stub.GetCapabilities(pb.SchedulerServiceGetCapabilitiesRequest(), timeout=5)),
            failure(fleet.Synchronize(fleet_pb.SynchronizeRequest(node_id="n", instance_id="i"), timeout=5)),
            stream_failure(stub.Evaluate(), pb.EvaluateRequest(client_id="c", attach_ids=["a"])),
            stream_failure(fleet.Work(), fleet_pb.WorkRequest(node_id="n", instance_id="i")),
            stream_failure(fleet.WatchCluster(fleet_pb.WatchClusterRequest())),
            stream_failure(RewardServiceStub(peer).StreamRewards(), StreamRewardsRequest(client_id="c")),
        ]
        for call in calls:
            refused = await call
            assert isinstance(refused, errors.StandbyError), refused
            assert (refused.code, refused.serving) == (grpc.StatusCode.UNAVAILABLE, "a.example:50051")
            assert refused.retry_seconds == 0.1
        assert (sample(app, "epoch"), sample(app, "role", role="active"), sample(app, "takeovers_total")) == (1, 1, 0)
        assert (sample(app, "store_seconds_count", operation="recover") or 0) == 1
    # The active one ended in order, and released its role.
    turn = await asyncio.wait_for(waiting, 10)
    assert turn is not None
    held = holding_of(turn[1])
    assert held is not None
    assert (held.epoch, held.takeovers, held.certain) == (2, 0, True), "it waited for no lease to end"
    assert turn[0].listen == listening.result(), "it keeps its port"
    assert turn[1].recover().jobs == []
    await asyncio.to_thread(turn[1].close)


async def test_a_standby_that_is_told_to_stop_ends(postgres: PostgresServer) -> None:
    url, stop, listening = postgres.schema(), asyncio.Event(), asyncio.Event()
    async with scheduler(store=url, store_lease_seconds=LEASE):
        waiting = asyncio.ensure_future(standby.turn(settings(store=url), stop, lambda *_: listening.set()))
        await listening.wait()
        stop.set()
        assert await asyncio.wait_for(waiting, 5) is None


async def test_kill_9_of_the_active_scheduler_under_load_loses_and_doubles_nothing(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    count = 300
    results: dict[str, list[EvalResult]] = {}

    async with pair(postgres, tmp_path) as (first, second), Proxy(first.address) as front, AsyncExitStack() as nodes:

        async def evaluate(name: str) -> None:
            async with AsyncClient(front.address, client_id=name, window=40) as client:
                requests = [request(f"{name}-{i}", "sleep=0.02", work=f"{name}-{i // 2}") for i in range(count // 2)]
                results[name] = [result async for result in client.evaluate(requests)]

        fakes = [await nodes.enter_async_context(node(front.address, f"n{i}", lanes=2)) for i in range(2)]
        clients = [asyncio.ensure_future(evaluate(name)) for name in ("a", "b")]
        await eventually(lambda: sum(len(fake.acknowledged) for fake in fakes) > 30)
        first.signal(signal.SIGKILL)
        began = time.monotonic()
        front.upstream = ("127.0.0.1", int(second.address.rpartition(":")[2]))
        await serves(second.address)
        assert time.monotonic() - began < LEASE + 5
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        await eventually(lambda: not any(fake.attempts for fake in fakes))
        assert "event=role_taken epoch=2 former_released=False" in second.log
    for name, answers in results.items():
        assert sorted(r.id for r in answers) == sorted(f"{name}-{i}" for i in range(count // 2)), "each once"
        assert {r.outcome for r in answers} == {Outcome.CORRECT}
    assert all(fake.duplicates == [] for fake in fakes)


async def unanswered(call: Any) -> errors.KernelDynoError | None:
    """Return the error that refused a call; None if the scheduler ended before it had read the question."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    if "Connection refused" in str(failed.value.details()):
        return None
    error = errors.from_rpc_error(failed.value)
    assert error is not None, failed.value
    assert failed.value.code() is error.code
    return error


async def test_a_scheduler_that_was_stopped_tells_nobody_anything_after_the_take_over(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with pair(postgres, tmp_path) as (first, second), connected(first.address) as peer:
        old = SchedulerServiceStub(peer)
        stream = Client(old, "before")
        await stream.send(request("waits"))
        await stream.until(lambda: stream.accepted == ["waits"])
        first.signal(signal.SIGSTOP)
        await serves(second.address)
        async with connected(second.address) as new_peer, node(second.address, "n1") as fake:
            new = SchedulerServiceStub(new_peer)
            await fake.at_work.wait()
            told = (await new.EvaluateOnce(once("after", client_id="c"), timeout=10)).result
            assert told.outcome == Outcome.CORRECT
            again = Client(new, "before")
            await again.send(attach=("waits",))
            assert (await again.finish())["waits"].outcome == Outcome.CORRECT
            # What comes first when it continues: questions that it would answer wrongly, and work.
            questions = [
                asyncio.ensure_future(unanswered(call))
                for call in (
                    old.GetEvaluation(pb.GetEvaluationRequest(id="after", client_id="c"), timeout=20),
                    old.ListEvaluations(pb.ListEvaluationsRequest(), timeout=20),
                    old.EvaluateOnce(once("third", client_id="c"), timeout=20),
                    FleetServiceStub(peer).Synchronize(
                        fleet_pb.SynchronizeRequest(node_id="n1", instance_id="other", attempt_tokens=["t"]), timeout=20
                    ),
                )
            ]
            await stream.send(request("another"), attach=("unknown here",))
            await asyncio.sleep(0.3)
            first.signal(signal.SIGCONT)
            for question in questions:
                refused = await question
                if refused is not None:
                    assert isinstance(refused, errors.StandbyError), refused
                    assert refused.serving in ("", second.address)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stream.read_to_the_end(10)
            assert isinstance(errors.from_rpc_error(ended.value), errors.StandbyError)
            assert (stream.accepted, stream.unknown, stream.results) == (["waits"], [], {})
            assert await first.ended() == 1
            assert "another scheduler has taken over the store" in first.log
            listed = await new.ListEvaluations(pb.ListEvaluationsRequest(), timeout=10)
            assert {one.id for one in listed.evaluations} == {"waits", "after"}
            # It comes back as a standby of the second one.
            await first.start()
            refused = await failure(old.EvaluateOnce(once("fourth"), timeout=10, wait_for_ready=True))
            assert isinstance(refused, errors.StandbyError)
            assert refused.serving == second.address


async def test_a_scheduler_that_is_cut_off_from_the_database_ends_and_the_other_one_serves(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.schema()
    async with Proxy(f"127.0.0.1:{postgres.port}") as cable:
        first = Scheduler(postgres.over(cable.address, url), tmp_path, "first")
        second = Scheduler(url, tmp_path, "second")
        try:
            await first.start()
            await second.start()
            async with connected(first.address) as peer:
                old, stream = SchedulerServiceStub(peer), Client(SchedulerServiceStub(peer), "before")
                await stream.send(request("waits"))
                await stream.until(lambda: stream.accepted == ["waits"])
                cable.stall()  # nothing is closed, and no packet is refused: a switch that drops everything
                await stream.send(request("lost"))
                await serves(second.address)
                refused = await failure(old.GetEvaluation(pb.GetEvaluationRequest(id="x", client_id="c"), timeout=10))
                assert isinstance(refused, errors.StandbyError), "it cannot know, but it doubts"
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await stream.read_to_the_end(10)
                assert isinstance(errors.from_rpc_error(ended.value), errors.StandbyError)
                assert (stream.accepted, stream.results) == (["waits"], {})
                assert await health(peer) == health_pb2.HealthCheckResponse.NOT_SERVING
                await cable.heal()
                assert await first.ended() == 1
            async with connected(second.address) as peer, node(second.address, "n1"):
                again = Client(SchedulerServiceStub(peer), "before")
                await again.send(attach=("waits", "lost"))
                assert (await again.finish())["waits"].outcome == Outcome.CORRECT
                assert again.unknown == ["lost"], "it was told to nobody"
        finally:
            for one in (first, second):
                await one.close()


async def test_after_a_graceful_stop_the_standby_serves_at_once(postgres: PostgresServer, tmp_path: Path) -> None:
    async with pair(postgres, tmp_path) as (first, second):
        assert 'kerneldyno_role{role="active"} 1.0' in await first.page()
        await eventually_on(second, 'kerneldyno_role{role="standby"} 1.0')
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        assert await serves(second.address) < 5
        await eventually_on(second, 'kerneldyno_role{role="active"} 1.0')
        assert "\nkerneldyno_epoch 2.0" in await second.page()
        assert re.search(r"event=role_taken epoch=2 former_released=True .* takeovers=0", second.log)


async def test_a_restart_of_the_database_changes_no_role_and_loses_no_node(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        url = server.schema()
        async with (
            scheduler(store=url, store_lease_seconds=LEASE, lease_seconds=1.5, heartbeat_seconds=0.4) as (app, stub),
            node(app.address, "n1", lanes=2) as fake,
            AsyncClient(str(app.address), client_id="c", window=10) as client,
        ):
            await fake.at_work.wait()
            requests = [request(f"r{i}", "sleep=0.1") for i in range(60)]

            async def evaluate() -> list[EvalResult]:
                return [result async for result in client.evaluate(requests)]

            running = asyncio.ensure_future(evaluate())
            await eventually(lambda: len(fake.acknowledged) > 10)
            await asyncio.to_thread(server.stop, signal.SIGQUIT)
            peer = connected(str(app.address))
            await eventually(lambda: sample(app, "role", role="uncertain") == 1, 10)
            for service in ("", "kerneldyno.v1.FleetService", "readiness"):
                assert await health(peer, service) == health_pb2.HealthCheckResponse.NOT_SERVING
            assert await health(peer, "liveness") == health_pb2.HealthCheckResponse.SERVING
            refused = await failure(stub.GetEvaluation(pb.GetEvaluationRequest(id="r0", client_id="c"), timeout=5))
            assert isinstance(refused, errors.StandbyError)
            assert (refused.serving, (refused.retry_seconds or 0) > 0.5) == ("", True)
            await asyncio.sleep(1.6)  # longer than the lease of the node
            await asyncio.to_thread(server.start)
            results = await asyncio.wait_for(running, 30)
            assert sorted(result.id for result in results) == sorted(one.id for one in requests)
            assert {result.outcome for result in results} == {Outcome.CORRECT}
            assert {result.attempts for result in results} == {1}
            assert sum((sample(app, "nodes_lost_total", why=why) or 0) for why in ("lease_expired", "found_dead")) == 0
            assert (sample(app, "epoch"), sample(app, "takeovers_total")) == (1, 0)
            assert await health(peer) == health_pb2.HealthCheckResponse.SERVING
            await peer.close()
    finally:
        server.close()
