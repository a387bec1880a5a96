"""Work that no node can run: it fails at once if waiting cannot help, and waits while suitable nodes may still come."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import pytest

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.model import Device, Requirement
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import DeviceSelector
from tests.scheduler.scheduler_harness import Client, World, cause, failure, once, request, scheduler
from tests.waiting import eventually

CUDA = Requirement("triton", "kernelbench", device_kind="cuda")
GPU = (Device("cuda:0", "cuda", "H200", 1, 1, True),)


def test_a_complete_fleet_refuses_at_once_what_none_of_its_nodes_can_run() -> None:
    world = World(settle_seconds=30)
    world.report("n1")
    early = world.submit("early", need=CUDA)
    world.pass_by(29, "n1")
    assert cause(early) is None, "nodes that are started together come one after the other"
    world.pass_by(2, "n1")
    assert cause(early) == "NO_MATCHING_DEVICE"
    late = world.submit("late", need=CUDA)
    world.core.tick()
    assert cause(late) == "NO_MATCHING_DEVICE"
    assert late.verdict is not None
    assert late.verdict.failure is not None
    assert "needs a device (kind cuda) for backend triton" in late.verdict.failure.detail
    assert late.verdict.failure.detail.endswith("; the fleet has 1 x cpu (CPU)")
    assert not late.verdict.failure.retryable


def test_no_node_at_all_is_not_never_nor_is_one_that_was_lost_lately() -> None:
    world = World(settle_seconds=30, unmatched_seconds=300)
    nobody = world.submit("nobody", need=CUDA)
    world.pass_by(200)
    assert cause(nobody) is None
    world.report("n1")
    world.report("gpu", devices=GPU)
    assert world.placed() == {"nobody": "gpu"}
    world.core.nodes.lose(world.node("gpu"), "it died")
    world.pass_by(100, "n1")
    assert cause(nobody) is None
    world.pass_by(201, "n1")
    assert cause(nobody) == "NO_MATCHING_DEVICE"


def test_a_new_node_starts_the_wait_anew_and_a_fleet_that_grows_on_demand_always_waits() -> None:
    world, grows = World(settle_seconds=30), World(settle_seconds=math.inf, unmatched_seconds=300)
    for one in (world, grows):
        one.report("n1")
        one.pass_by(100, "n1")
    waits = grows.submit("a", need=CUDA)
    world.report("n2")
    again = world.submit("a", need=CUDA)
    world.pass_by(20, "n1", "n2")
    grows.pass_by(200, "n1")
    assert (cause(again), cause(waits)) == (None, None)
    grows.report("gpu", devices=GPU)
    assert grows.placed() == {"a": "gpu"}


@pytest.mark.parametrize("settle", [0.0, 1.0])
async def test_streams_and_single_calls_are_refused_by_the_same_rule(settle: float) -> None:
    async with scheduler(settle_seconds=settle) as (app, stub), node(app.address, "n1") as fake:
        await fake.at_work.wait()
        for selector in (DeviceSelector(kind="cuda"), DeviceSelector(min_devices=3), DeviceSelector(model="B200")):
            refused = await failure(stub.EvaluateOnce(once("", device=selector)))
            assert isinstance(refused, errors.NoMatchingDeviceError)
            client = Client(stub, f"c {selector}")
            await client.send(request("a", device=selector))
            result = (await client.finish())["a"]
            assert result.infrastructure_error.cause == "NO_MATCHING_DEVICE"
            assert result.infrastructure_error.detail == str(refused)


async def test_the_command_says_at_once_that_there_is_no_such_device(tmp_path: Path) -> None:
    for name in ("reference.py", "candidate.py"):
        (tmp_path / name).write_text("pass")
    async with scheduler(settle_seconds=0.0) as (app, _), node(app.address, "n1"):
        await eventually(lambda: bool(app.core.fleet.nodes))
        command = ("evaluate", "--device", "cuda", "--address", str(app.address))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kerneldyno.cli", *command),
            *(str(tmp_path / "reference.py"), str(tmp_path / "candidate.py")),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert "NO_MATCHING_DEVICE" in out.decode()
    assert "1 x cpu (Fake CPU)" in " ".join(out.decode().split())
