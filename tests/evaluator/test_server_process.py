"""The evaluator as a process: the ready line, signals, exit statuses, and what remains afterwards."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kerneldyno.evaluator.server import registry
from kerneldyno.evaluator.server.settings import SettingsError, find_devices, load
from kerneldyno.rpc.serving import Address
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from tests.evaluator.fleet_harness import Fleet
from tests.evaluator.fleet_harness import serving as serving_fleet
from tests.evaluator.node_harness import PASS, remaining, request
from tests.waiting import eventually

if TYPE_CHECKING:  # this type is generic only in the stubs
    Call = grpc.aio.UnaryStreamCall[pb.EvaluatorServiceEvaluateRequest, pb.EvaluatorServiceEvaluateResponse]

PROGRAM = str(Path(__file__).with_name("fake_evaluator.py"))
FLAGS = ("--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--devices=cpu", "--lanes=2", "--node-id=n1")


class Evaluator:
    """A running server process."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, str]) -> None:
        self.process = process
        self.ready = ready
        self.tree = psutil.Process(process.pid)
        self.children = self.tree.children(recursive=True)

    async def ended(self, seconds: float = 20.0) -> int:
        return await asyncio.wait_for(self.process.wait(), seconds)

    async def nobody_left(self) -> None:
        await eventually(lambda: not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in self.children))


@asynccontextmanager
async def evaluator(*flags: str) -> AsyncIterator[tuple[Evaluator, grpc.aio.Channel]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, PROGRAM, *FLAGS, *flags), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        program, word, *fields = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().split()
        assert (program, word) == ("kerneldyno-evaluator", "ready")
        ready = dict(field.split("=", 1) for field in fields)
        async with grpc.aio.insecure_channel(ready["grpc"]) as connection:
            yield Evaluator(process, ready), connection
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def evaluate(connection: grpc.aio.Channel, token: str, *steps: str) -> Call:
    stub = pb_grpc.EvaluatorServiceStub(connection)
    body = pb.EvaluatorServiceEvaluateRequest(attempt_token=token, request=request(*steps))
    return stub.Evaluate(body, timeout=30)


async def last_result(call: Call) -> eval_pb.EvalResult:
    return (await remaining(call))[-1].result


async def test_serves_from_the_ready_line_to_sigterm_without_torch() -> None:
    """At its end the launcher asserts that torch, triton and numpy were not imported; otherwise the status is not 0."""
    async with evaluator() as (server, connection):
        assert server.ready["node"] == "n1"
        assert server.ready["devices"] == "cpu:0"
        health = health_pb2_grpc.HealthStub(connection)
        for service in ("", "kerneldyno.v1.EvaluatorService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert (await last_result(evaluate(connection, "t1", *PASS))).outcome == eval_pb.EvalResult.CORRECT
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{server.ready['metrics']}").read())
        for line in (
            b'kerneldyno_attempts_total{outcome="CORRECT"} 1.0',
            b'kerneldyno_build_info{version="',
            b'kerneldyno_judge_restarts_total{cause="zygote",device="cpu:0"} 0.0',
            b"kerneldyno_event_loop_lag_seconds_count",
            b'kerneldyno_spare_runners{device="cpu:0"}',
        ):
            assert line in page
        assert len(server.children) == 2
        server.process.terminate()
        assert await server.ended() == 0
        await server.nobody_left()


async def test_sigterm_finishes_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    gate, fleet = tmp_path / "gate", Fleet()
    async with (
        serving_fleet(fleet) as port,
        evaluator(f"--scheduler=127.0.0.1:{port}", "--advertise=example:1") as (server, connection),
    ):
        await eventually(lambda: bool(fleet.heard))
        assert fleet.last.address == "example:1"
        assert list(fleet.last.attempt_tokens) == []
        calls = [evaluate(connection, f"t{i}", f"await-file {gate}", "result CORRECT") for i in range(3)]
        for call in calls:
            await call.read()
        server.process.terminate()
        await eventually(lambda: fleet.last.state == fleet_pb.NODE_STATE_DRAINING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await evaluate(connection, "late", *PASS).read()
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        health = health_pb2_grpc.HealthStub(connection)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        gate.touch()
        outcomes = [(await last_result(call)).outcome for call in calls]
        assert outcomes == [eval_pb.EvalResult.CORRECT] * 3
        assert await server.ended() == 0
        await server.nobody_left()


async def at_work(fleet: Fleet, *assignments: tuple[str, ...]) -> None:
    """Wait for the node's Work stream, and assign tokens with their scripts to the node."""
    await eventually(lambda: bool(fleet.streams) and bool(fleet.stream.messages))
    for token, *steps in assignments:
        fleet.stream.assign(token, *steps)
    await eventually(lambda: {token for token, *_ in assignments} <= {e.attempt_token for e in fleet.stream.events})


async def test_sigterm_waits_until_the_scheduler_has_the_results(tmp_path: Path) -> None:
    gate, fleet = tmp_path / "gate", Fleet()
    async with (
        serving_fleet(fleet) as port,
        evaluator(f"--scheduler=127.0.0.1:{port}", "--label=rack=a") as (server, _),
    ):
        await at_work(fleet, ("t1", f"await-file {gate}", "result CORRECT"), ("t2", *PASS))
        assert fleet.last.address == server.ready["grpc"]
        assert dict(fleet.last.labels) == {"rack": "a"}
        server.process.terminate()
        await eventually(lambda: fleet.last.state == fleet_pb.NODE_STATE_DRAINING)
        fleet.stream.assign("late", *PASS)
        await eventually(lambda: "late" in fleet.stream.refusals)
        assert fleet.stream.refusals["late"].why == fleet_pb.AttemptRefusal.WHY_DRAINING
        gate.touch()
        await eventually(lambda: bool(fleet.stream.results("t1") and fleet.stream.results("t2")))
        fleet.stream.say(acknowledged_attempt_tokens=["t1"])
        heard = len(fleet.heard)  # wait for longer than the time limit of a step of a stop
        await eventually(lambda: len(fleet.heard) > heard + 35 and list(fleet.last.attempt_tokens) == ["t2"], 30)
        assert server.process.returncode is None, "it still has a result, and its lease"
        fleet.stream.say(acknowledged_attempt_tokens=["t2"])
        assert await server.ended() == 0
        assert fleet.stream.half_closed
        assert len(fleet.streams) == 1
        await server.nobody_left()


async def test_the_scheduler_gets_what_is_unfinished_at_the_drain_limit() -> None:
    fleet = Fleet()
    fleet.acknowledges = True
    flags = "--drain-timeout=0.3", "--advertise=off"
    async with serving_fleet(fleet) as port, evaluator(f"--scheduler=127.0.0.1:{port}", *flags) as (server, _):
        await at_work(fleet, ("t1", "hang"))
        assert fleet.last.address == ""
        server.process.terminate()
        await eventually(lambda: bool(fleet.stream.results("t1")))
        evidence = fleet.stream.results("t1")[0].infrastructure_error
        assert (evidence.cause, evidence.retryable) == ("NODE_STOPPED", True)
        assert await server.ended() == 0
        assert fleet.stream.half_closed


async def test_a_stop_waits_for_a_scheduler_that_is_gone_no_longer_than_the_lease() -> None:
    fleet = Fleet()
    fleet.answer.lease.FromSeconds(1)
    async with evaluator_of(fleet, "--drain-timeout=3600") as (server, stop):
        await at_work(fleet, ("t1", *PASS))
        await eventually(lambda: bool(fleet.stream.results("t1")))
        await stop()
        server.process.terminate()
        assert await server.ended(60) == 0
        await server.nobody_left()


@asynccontextmanager
async def evaluator_of(fleet: Fleet, *flags: str) -> AsyncIterator[tuple[Evaluator, Callable[[], Awaitable[None]]]]:
    """Run an evaluator whose scheduler is `fleet`. Yield it, and a function that ends the scheduler."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving_fleet(fleet))
        async with evaluator(f"--scheduler=127.0.0.1:{port}", *flags) as (server, _):
            yield server, stack.aclose


async def test_what_is_unfinished_at_the_drain_limit_is_handed_back() -> None:
    async with evaluator("--drain-timeout=0.3") as (server, connection):
        call = evaluate(connection, "t1", "hang")
        await call.read()
        server.process.terminate()
        result = await last_result(call)
        assert (result.infrastructure_error.cause, result.infrastructure_error.retryable) == ("NODE_STOPPED", True)
        assert await server.ended() == 0
        await server.nobody_left()


async def test_a_second_signal_skips_the_wait() -> None:
    async with evaluator() as (server, connection):
        call = evaluate(connection, "t1", "hang")
        await call.read()
        server.process.terminate()
        await asyncio.sleep(0.5)
        assert server.process.returncode is None
        server.process.send_signal(signal.SIGINT)
        assert (await last_result(call)).infrastructure_error.cause == "NODE_STOPPED"
        assert await server.ended(10) == 0
        await server.nobody_left()


async def test_no_process_survives_a_killed_server() -> None:
    async with evaluator() as (server, connection):
        await evaluate(connection, "t1", "hang").read()
        server.process.kill()
        await server.ended()
        await server.nobody_left()


async def run(*flags: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, PROGRAM, *FLAGS, *flags), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert output == b""
    return process.returncode, errors.decode()


async def test_a_judge_that_refuses_makes_the_server_exit_with_the_reason() -> None:
    status, said = await run("--sandbox=require", "--judge=--fatal=no user namespaces here")
    assert status == 3
    assert said.splitlines()[-1] == "kerneldyno-evaluator: cpu:0: no user namespaces here"


async def test_settings_that_cannot_be_used_are_named() -> None:
    for flag, words in (
        ("--listen=nowhere", "'nowhere' is not HOST:PORT"),
        ("--lanes=-1", "--lanes and"),
        ("--spares=0", "--spares must be"),
    ):
        status, said = await run(flag)
        assert status == 2
        assert words in said
    async with evaluator() as (server, _):
        for flag in (f"--listen={server.ready['grpc']}", f"--metrics={server.ready['metrics']}"):
            status, said = await run(flag)
            assert status == 2
            assert flag.partition("=")[2] in said


@pytest.mark.parametrize(
    ("wanted", "nodes", "visible", "devices"),
    [
        ("auto", 0, None, ("cpu:0",)),
        ("auto", 2, None, ("cuda:0", "cuda:1")),
        ("auto", 2, "", ("cpu:0",)),
        ("auto", 2, "-1", ("cpu:0",)),
        ("auto", 4, "3,1", ("cuda:0", "cuda:1")),
        ("auto", 4, "3,-1,1", ("cuda:0",)),
        ("auto", 2, "GPU-0123,GPU-4567", ("cuda:0", "cuda:1")),
        ("cuda", 1, None, ("cuda:0",)),
        ("cuda:1,cuda:1", 2, None, ("cuda:1",)),
        ("cpu", 2, None, ("cpu:0",)),
    ],
)
def test_devices_are_found_without_cuda(
    wanted: str, nodes: int, visible: str | None, devices: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(nodes))):
        (tmp_path / "dev" / name).touch()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert find_devices(wanted, environ, tmp_path) == devices


def test_devices_are_found_in_proc_before_their_nodes_exist(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:00:1e.0").mkdir(parents=True)
    assert find_devices("auto", {}, tmp_path) == ("cuda:0",)


@pytest.mark.parametrize("wanted", ["cuda", "cuda:0", "cuda:0,tpu", "gpu", "cuda:x", ""])
def test_devices_that_are_not_there_are_refused(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--devices"):
        find_devices(wanted, {}, tmp_path)


@pytest.mark.parametrize(
    "labels",
    [
        ["rack"],
        ["=a"],
        ["rack=a\n"],
        ["rack=a", "rack=b"],
        ["k" * 151 + "=v"],
        ["k=" + "v" * 151],
        [f"k{index}=v" for index in range(17)],
    ],
)
def test_bad_labels_are_named(labels: list[str]) -> None:
    with pytest.raises(SettingsError, match="--label"):
        load(["--devices=cpu", *(f"--label={label}" for label in labels)])


def test_labels_are_read() -> None:
    assert load(["--devices=cpu", "--label=rack=a=b", "--label", "spot="]).labels == {"rack": "a=b", "spot": ""}
    assert load(["--devices=cpu"]).labels == {}


def test_an_address_that_nobody_else_can_use_is_not_advertised() -> None:
    here = Address("127.0.0.1", 7)
    assert load(["--devices=cpu", "--scheduler=localhost:1"]).address(here) == "127.0.0.1:7"
    assert load(["--devices=cpu", "--scheduler=example:1"]).address(here) == ""
    assert load(["--devices=cpu", "--scheduler=example:1", "--advertise=me:7"]).address(here) == "me:7"
    assert load(["--devices=cpu", "--scheduler=example:1", "--advertise=off"]).address(Address("0.0.0.0", 7)) == ""


def test_what_is_left_out_is_derived(tmp_path: Path) -> None:
    cpu = load(["--devices=cpu"])
    assert cpu.lanes >= 1
    assert 1 <= cpu.spares <= 4
    assert cpu.address(Address("127.0.0.1", 7)) == "127.0.0.1:7"
    assert not cpu.address(Address("0.0.0.0", 7)).startswith("0.0.0.0")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (gpu,) = load(["--lanes=3", "--spares=1", "--sandbox=require"], {}, tmp_path).cells()
    assert (gpu.device, gpu.lanes, gpu.spares, gpu.sandbox) == ("cuda:0", 3, 1, "require")


def test_servers_of_tests_have_a_build_cache_of_their_own() -> None:
    """tests/own_caches.py sets it up; the user's own cache would make tests depend on earlier runs."""
    cache = load(["--devices=cpu"]).build_cache
    assert cache.parts[-2:] == ("kerneldyno", "builds")
    assert cache.is_relative_to(tempfile.gettempdir())


def test_each_judge_is_told_which_share_of_the_host_is_its_devices(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(4):
        (tmp_path / f"dev/nvidia{number}").touch()
    commands = [cell.judge(3, 4) for cell in load(["--devices=cuda:1,cuda:3"], {}, tmp_path).cells()]
    for number, command in enumerate(commands):
        assert {f"--device=cuda:{2 * number + 1}", f"--number={number}", "--devices=2"} <= set(command)


@pytest.mark.parametrize(
    ("cores", "memory", "lanes"),
    [(64, 141 << 30, 8), (64, None, 8), (16, 80 << 30, 8), (16, 24 << 30, 4), (6, 80 << 30, 3), (1, 4 << 30, 1)],
)
def test_lanes_of_a_gpu_follow_from_cores_and_its_memory(
    cores: int, memory: int | None, lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    asked: list[list[str]] = []
    monkeypatch.setattr("kerneldyno.evaluator.shared.nvml.smallest_memory", lambda names: asked.append(names) or memory)
    (cell,) = load([], {}, tmp_path).cells()
    assert (cell.lanes, cell.spares) == (lanes, lanes)
    (tmp_path / "dev/nvidia1").touch()
    load(["--devices=cuda:1"], {"CUDA_VISIBLE_DEVICES": "1, GPU-5c0f"}, tmp_path)
    assert asked == [["0"], ["GPU-5c0f"]]


def test_names_come_from_entry_points_without_importing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kerneldyno.backends]\nmojo = no_such_module:BACKEND\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(registry.backend_names()) >= {"triton", "cuda", "torch", "mojo"}
    assert registry.toolkit_names() == ("kernelbench", "kernel_simple")
