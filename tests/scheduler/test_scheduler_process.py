"""Tests of the scheduler's process: its ready line, its metrics page, `buf curl`, how it stops, and kill -9."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from kerneldyno.client import AsyncClient
from kerneldyno.rpc import channel, errors
from kerneldyno.scheduler.__main__ import main
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.fleet_service_pb2 import ListNodesRequest
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2 import EvaluateOnceRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.scheduler_harness import Client, Outcome, request
from tests.waiting import eventually, free_port

BUF = str(Path(sys.executable).with_name("buf"))


@asynccontextmanager
async def process(
    *options: str, store: str = "memory", listen: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, str]]:
    """Run a scheduler process; yield it, its address, and the address of its metrics."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.scheduler", "--listen", listen, "--metrics", "127.0.0.1:0"),
        *("--store", store, "--exit-with-parent", *options),
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        line = (await asyncio.wait_for(started.stdout.readline(), 30)).decode()
        ready = re.fullmatch(r"kerneldyno-scheduler ready grpc=(127\.0\.0\.1:\d+) metrics=(127\.0\.0\.1:\d+)\n", line)
        assert ready, line
        yield started, ready[1], ready[2]
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def curl(address: str, *arguments: str) -> str:
    """Run `buf curl`, the grpcurl of this repository, and return what it printed."""
    first, *rest = arguments
    where = [f"http://{address}/{first}"] if "/" in first else [f"http://{address}", first]
    done = await asyncio.to_thread(
        subprocess.run,
        [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *where, *rest],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_people_can_explore_it_and_evaluate_by_curl() -> None:
    async with process() as (_, address, metrics), node(address, "n1"):
        methods = (await curl(address, "--list-methods")).split()
        assert {"kerneldyno.v1.SchedulerService/EvaluateOnce", "grpc.health.v1.Health/Check"} <= set(methods)
        service = '{"service": "kerneldyno.v1.SchedulerService"}'
        assert json.loads(await curl(address, "grpc.health.v1.Health/Check", "-d", service)) == {"status": "SERVING"}

        body = {"request": {"reference_code": "ref", "kernel_code": "outcome=INCORRECT"}}
        answer = json.loads(await curl(address, "kerneldyno.v1.SchedulerService/EvaluateOnce", "-d", json.dumps(body)))
        assert answer["result"]["outcome"] == "INCORRECT"

        page = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10).read().decode()
        )
        assert 'kerneldyno_outcomes_total{outcome="INCORRECT"} 1.0' in page
        assert 'kerneldyno_outcomes_total{outcome="REJECTED"} 0.0' in page, "every outcome is there from the start"
        assert 'kerneldyno_requests_total{client_kind="once"} 1.0' in page
        assert re.search(r'grpc_server_handled_total{grpc_code="OK",grpc_method="EvaluateOnce",.*} 1\.0', page)
        for name in (
            *("queue_depth", "queue_seconds_count", "evaluation_seconds_count", "placements_total", "retries_total"),
            *("nodes", "devices", "running", "nodes_lost_total", "stale_completions_total", "quarantines_total"),
            *("deduplicated_total", "journal_pending_records", "journal_stalled", "journal_commit_seconds_count"),
            *("quarantined_work", "event_loop_lag_seconds_count", "build_info"),
        ):
            assert re.search(rf"^kerneldyno_{name}[{{ ]", page, re.MULTILINE), name


async def test_memory_stays_bounded_while_a_thousand_large_requests_pass() -> None:
    async with (
        process("--max-queued", "50", "--retain-results", "100") as (started, address, _),
        node(address, "n1", lanes=4),
        node(address, "n2", lanes=4),
    ):
        memory = psutil.Process(started.pid).memory_info
        before = memory().rss
        script = "size=20000 #" + "x" * 200_000

        async def one_client(name: str) -> int:
            options = channel.client_options(own_connection=True)
            async with grpc.aio.insecure_channel(address, options=options) as peer, asyncio.TaskGroup() as group:
                client = Client(SchedulerServiceStub(peer), name)
                group.create_task(client.until(lambda: len(client.results) == 250, 60))
                for start in range(0, 250, 10):
                    await client.send(*(request(f"r{i}", script) for i in range(start, start + 10)))
            return len(client.results)

        assert await asyncio.gather(*(one_client(f"client{i}") for i in range(4))) == [250] * 4
        grown = memory().rss - before
        assert grown < 140 << 20, f"grew by {grown >> 20} MiB while 200 MiB went in and 20 MiB came out"


async def test_kill_9_under_load_loses_nothing_and_the_client_library_does_not_notice(tmp_path: Path) -> None:
    store, count, kills = f"sqlite:{tmp_path / 'journal.sqlite'}", 400, 2
    results: dict[str, list[EvalResult]] = {}
    listen = f"127.0.0.1:{free_port()}"

    async def evaluate(name: str) -> None:
        async with AsyncClient(listen, client_id=name, window=40) as client:
            requests = [request(f"{name}-{i}", "sleep=0.02", work=f"{name}-{i // 2}") for i in range(count // 2)]
            results[name] = [result async for result in client.evaluate(requests)]

    async with AsyncExitStack() as nodes, asyncio.TaskGroup() as group:
        fakes = [await nodes.enter_async_context(node(listen, f"n{i}", lanes=2)) for i in range(2)]
        clients = [group.create_task(evaluate(name)) for name in ("a", "b")]
        for _ in range(kills):
            async with process(store=store, listen=listen) as (started, _, _metrics):
                before = sum(len(fake.acknowledged) for fake in fakes)
                await eventually(lambda before=before: sum(len(f.acknowledged) for f in fakes) > before + 15, 30)  # type: ignore[misc]
                started.send_signal(signal.SIGKILL)
                await started.wait()
        assert not all(client.done() for client in clients), "it was killed under load"
        async with process(store=store, listen=listen):
            await asyncio.wait(clients, timeout=60)
            assert all(client.done() for client in clients)
            await eventually(lambda: not any(fake.attempts for fake in fakes))
    for name, answers in results.items():
        assert sorted(r.id for r in answers) == sorted(f"{name}-{i}" for i in range(count // 2)), "each once"
        assert {r.outcome for r in answers} == {Outcome.CORRECT}
    started_names = [name for fake in fakes for name in fake.started]
    assert set(started_names) == {f"{name}-{i}" for name in "ab" for i in range(count // 4)}
    repeated = len(started_names) - len(set(started_names))
    assert repeated < 8 * kills, "only what ran when the process died may have run twice"


async def test_sigterm_lets_what_runs_finish_and_tells_clients_to_come_back() -> None:
    async with (
        process("--drain-timeout", "20") as (started, address, _),
        node(address, "n1", lanes=1) as fake,
        grpc.aio.insecure_channel(address, options=channel.client_options()) as peer,
    ):
        stub = SchedulerServiceStub(peer)
        client = Client(stub)
        await client.send(request("a", "sleep=1"), request("b", "sleep=1"), request("queued"))
        await eventually(lambda: len(fake.started) == 2)
        started.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.EvaluateOnce(EvaluateOnceRequest(request=request("late")))
        assert isinstance(errors.from_rpc_error(refused.value), errors.ShuttingDownError)
        nodes = (await FleetServiceStub(peer).ListNodes(ListNodesRequest())).nodes
        assert [n.node_id for n in nodes] == ["n1"], "nodes go on being served"
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await client.finish()
        assert {k: r.outcome for k, r in client.results.items()} == {"a": Outcome.CORRECT, "b": Outcome.CORRECT}
        assert isinstance(errors.from_rpc_error(ended.value), errors.ShuttingDownError)
        assert await asyncio.wait_for(started.wait(), 10) == 0


async def test_a_second_signal_does_not_wait_and_the_nodes_are_told() -> None:
    async with (
        process("--drain-timeout", "60") as (started, address, _),
        node(address, "n1") as fake,
        grpc.aio.insecure_channel(address, options=channel.client_options()) as peer,
    ):
        client = Client(SchedulerServiceStub(peer))
        await client.send(request("a", "sleep=60"))
        await eventually(lambda: fake.started == ["a"])
        started.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        started.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(started.wait(), 15) == 0
        assert fake.cancelled == ["a"]


async def test_it_ends_with_the_process_that_started_it() -> None:
    options = ["-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0", "--metrics", "off", "--store", "memory"]
    options += ["--exit-with-parent"]
    start = f"p = subprocess.Popen([sys.executable, *{options}])"
    launcher = f"import subprocess, sys; {start}; print(p.pid, flush=True); p.wait()"
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", launcher, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(await asyncio.wait_for(parent.stdout.readline(), 30)))
    assert b"ready" in await asyncio.wait_for(parent.stdout.readline(), 30)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_bad_settings_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, word in (
        (["--max-queued", "0"], "max_queued"),
        (["--lease", "1", "--heartbeat", "2"], "lease_seconds"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--store", "postgres:"], "store"),
        (["--colour", "red"], "--colour"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert word in capsys.readouterr().err


async def test_a_taken_port_is_an_error_and_not_a_silent_share() -> None:
    async with process() as (_, address, _metrics):
        second = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "kerneldyno.scheduler",
                "--listen",
                address,
                "--metrics",
                "off",
                "--store",
                "memory",
            ),
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await asyncio.wait_for(second.communicate(), 30)
        assert second.returncode == 1
        assert f"cannot listen on {address}: a service is already there; stop it" in err.decode()


async def test_a_taken_port_for_metrics_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kerneldyno.scheduler", "--listen", "127.0.0.1:0"),
            *("--metrics", address, "--store", "memory"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await asyncio.wait_for(second.communicate(), 30)
    assert second.returncode == 1
    assert f"cannot serve metrics on {address}: a service is already there; stop it" in err.decode()
