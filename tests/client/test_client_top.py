"""Tests of `kerneldyno top`: in a terminal, in a pipe, as JSON; with a scheduler that is killed, and without one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from kerneldyno.cli.top_meter import Meter
from kerneldyno.client import AsyncClient
from kerneldyno.client.errors import PermissionDeniedError
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.client.command import NOBODY, finished, invoke, run, started
from tests.client.fake_fleet import FakeFleet
from tests.client.scheduler_process import scheduler_process
from tests.client.terminal import COLOUR, ENTER, LEAVE, SHOW_CURSOR, terminal
from tests.scheduler.scheduler_harness import request, scheduler
from tests.waiting import free_port


@pytest.fixture
async def cluster() -> AsyncIterator[str]:
    """The address of a real scheduler with two nodes, after four evaluations."""
    async with scheduler() as (app, _):
        address = str(app.address)
        async with node(address, "n1", lanes=4, devices=2, labels={"rack": "a"}), node(address, "n2", lanes=4):
            await judge(address, "CORRECT", "CORRECT", "INCORRECT", "TIMEOUT")
            yield address


async def judge(address: str, *outcomes: str, prefix: str = "r") -> None:
    async with AsyncClient(address) as client:
        requests = [request(f"{prefix}{number}", f"outcome={name}") for number, name in enumerate(outcomes)]
        found = [result async for result in client.evaluate(requests, timeout=60)]
    assert sorted(EvalResult.Outcome.Name(one.outcome) for one in found) == sorted(outcomes)


class TestUnhappy:
    async def test_nobody_there(self) -> None:
        ran = await invoke("top", "--json", "--address", NOBODY)
        assert (ran.status, ran.out, ran.err.count("\n")) == (3, "", 1)
        assert "kerneldyno up" in ran.err

    async def test_a_scheduler_that_refuses_to_be_watched(self, scheduler: FakeFleet) -> None:
        scheduler.refusals.append(PermissionDeniedError("the role read is needed"))
        ran = await invoke("top", "--address", scheduler.address)
        assert (ran.status, ran.out) == (1, "")
        assert "the role read is needed" in ran.err

    async def test_a_reader_that_has_enough(self, cluster: str) -> None:
        command = [sys.executable, "-m", "kerneldyno.cli", "top", "--json", "-d", "0.1", "--address", cluster]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert await process.stderr.read() == b""

    async def test_the_scheduler_is_killed_and_comes_back(self) -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        async with (
            scheduler_process(port) as first,
            node(address, "n1"),
            terminal("top", "-d", "0.1", "--address", address) as shown,
        ):
            await shown.until(lambda screen: "1 of 1 nodes serving" in screen)
            await judge(address, "CORRECT", "CORRECT")
            await shown.until(lambda screen: "CORRECT" in screen)
            first.kill()
            screen = await shown.until(lambda screen: "AWAY for" in screen)
            assert "what follows is old" in screen
            assert "CORRECT" in screen
            async with scheduler_process(port):
                # The new scheduler has no history and counts from 0. (The test may see a screen that is half drawn.)
                await shown.until(
                    lambda screen: "1 of 1" in screen and not any(old in screen for old in ("AWAY", "CORRECT"))
                )
                shown.press("\x03")
                assert await shown.ended() == 0

    async def test_lines_say_that_it_is_away(self) -> None:
        port = free_port()
        async with (
            scheduler_process(port) as process,
            started("top", "-d", "0.1", "--address", f"127.0.0.1:{port}", GRPC_VERBOSITY="NONE") as top,
        ):
            assert top.stdout is not None
            assert b"0 of 0 nodes serving" in await asyncio.wait_for(top.stdout.readline(), 60)
            process.kill()
            async with asyncio.timeout(60):
                while b"the scheduler has been away for" not in await top.stdout.readline():
                    pass
            top.send_signal(signal.SIGINT)
            ran = await finished(top)
        assert (ran.status, ran.err) == (0, "")


class TestWithoutATerminal:
    async def test_once(self, cluster: str) -> None:
        ran = await invoke("top", "--once", "--address", cluster, COLUMNS="120")
        assert (ran.status, ran.err) == (0, "")
        assert "2 of 2 nodes serving, 3 of 3 devices ready, 12 lanes" in ran.out
        assert "0 running, 0 waiting, no rate yet" in ran.out
        assert next(line.split()[1:] for line in ran.out.splitlines() if line.startswith("CORRECT")) == [
            "0",
            "2",
            "50%",
        ]
        assert "rack=a" in ran.out
        assert "\x1b" not in ran.out

    async def test_once_as_json(self, cluster: str) -> None:
        ran = await invoke("top", "--once", "--json", "--address", cluster)
        assert (ran.status, ran.out.count("\n")) == (0, 1)
        found = ran.json
        assert found["outcomes"] == {"CORRECT": 2, "INCORRECT": 1, "TIMEOUT": 1}
        assert (found["rate_10s"], found["away_seconds"], found["lanes"]) == (None, None, 12)
        assert [one["node_id"] for one in found["nodes"]] == ["n1", "n2"]

    async def test_builds(self, scheduler: FakeFleet) -> None:
        here = scheduler.nodes["node-a"]
        here.running, here.builders, here.building = 5, 4, 3
        ran = await invoke("top", "--once", "--address", scheduler.address, COLUMNS="120")
        assert ran.status == 0
        assert "running (3 building)" in ran.out
        heading, *rows = [line.split() for line in ran.out.splitlines() if line.startswith("node")]
        assert heading[-3:] == ["running", "building", "labels"]
        assert next(row for row in rows if row[0] == "node-a")[-4:] == ["2/2", "3/4", "pool=a,", "zone=z1"]
        ran = await invoke("top", "--once", "--json", "--address", scheduler.address)
        assert ran.json["building"] == 3
        assert [(node["builders"], node["building"]) for node in ran.json["nodes"]] == [(4, 3), (0, 0)]

    async def test_json_lines_and_rates(self, cluster: str) -> None:
        async with started("top", "--json", "--interval", "0.1", "--address", cluster) as process:
            assert process.stdout is not None
            first = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
            assert first["rate_10s"] is None
            await judge(cluster, "CORRECT", "OUT_OF_MEMORY", prefix="s")
            async with asyncio.timeout(60):
                while (found := json.loads(await process.stdout.readline()))["outcomes"].get("OUT_OF_MEMORY") != 1:
                    pass
                while (found := json.loads(await process.stdout.readline()))["rate_10s"] is None:
                    pass
            assert found["outcomes_60s"] == {"CORRECT": 1, "OUT_OF_MEMORY": 1}
            assert 0 < found["rate_10s"] <= 2
            process.send_signal(signal.SIGTERM)
            ran = await finished(process)
        assert (ran.status, ran.err) == (0, "")

    async def test_a_terminal_that_cannot_move_its_cursor_gets_lines(self, cluster: str) -> None:
        async with terminal("top", "-d", "0.1", "--address", cluster, TERM="dumb") as shown:
            await shown.until(lambda screen: "nodes serving" in screen)
            shown.press("\x03")
            assert await shown.ended() == 0
        assert "\x1b" not in shown.written


class TestInATerminal:
    async def test_eighty_by_twenty_four(self, scheduler: FakeFleet) -> None:
        """The screen fits, the lost node is among the few nodes shown, and the terminal is restored."""
        device = pb.Device(
            name="cuda:0", kind="cuda", model="NVIDIA H200 with a name that goes on", lanes=8, ready=True
        )
        for number in range(60):
            scheduler.nodes[f"gpu-node-with-a-long-name-{number:03}"] = pb.Node(
                node_id=f"gpu-node-with-a-long-name-{number:03}",
                state=pb.NODE_STATE_SERVING,
                devices=[device] * 8,
                connected=True,
            )
        async with terminal("top", "-d", "0.1", "--address", scheduler.address) as shown:
            screen = await shown.until(lambda screen: "more nodes" in screen)
            shown.press("\x03")
            assert await shown.ended() == 0
        lines = screen.rstrip("\n").split("\n")
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        assert "61 of 62 nodes serving" in screen
        assert [line for line in lines if "node-b" in line and "lost" in line]
        assert ENTER in shown.written
        assert shown.written.rstrip().endswith(SHOW_CURSOR + LEAVE) or LEAVE in shown.written.split(SHOW_CURSOR)[-1]
        assert COLOUR.search(shown.written)
        assert "Traceback" not in shown.written

    async def test_no_color(self, cluster: str) -> None:
        async with terminal("top", "-d", "0.1", "--address", cluster, NO_COLOR="1") as shown:
            await shown.until(lambda screen: "CORRECT" in screen and "n2" in screen)
            shown.process.send_signal(signal.SIGTERM)
            assert await shown.ended() == 0
        assert not COLOUR.search(shown.written)
        assert LEAVE in shown.written

    async def test_one_that_is_too_small_is_no_error(self, cluster: str) -> None:
        async with terminal("top", "-d", "0.1", "--address", cluster, columns=20, lines=5) as shown:
            await shown.until(lambda screen: "kerneldyno" in screen)
            shown.press("\x03")
            assert await shown.ended() == 0


class TestMeter:
    def test_nothing_is_said_before_there_is_something_to_compare(self) -> None:
        meter = Meter()
        assert meter.rate(5.0, 10.0) is None
        meter.add(5.0, {"CORRECT": 1_000})
        assert meter.rate(5.5, 10.0) is None
        assert meter.rate(6.0, 10.0) == 0.0

    def test_how_long_it_has_looked(self) -> None:
        meter = Meter()
        assert meter.watched(5.0) == 0.0
        meter.add(5.0, {})
        assert (meter.watched(8.0), meter.watched(500.0)) == (3.0, 60.0)

    def test_the_last_seconds_count(self) -> None:
        meter = Meter()
        for second in range(100):
            meter.add(float(second), {"CORRECT": 2 * second, "TIMEOUT": second})
        assert meter.rate(99.0, 10.0) == pytest.approx(3.0)
        assert meter.gained(99.0) == {"CORRECT": 120, "TIMEOUT": 60}

    def test_a_cluster_that_falls_silent_comes_to_rest(self) -> None:
        """No snapshot comes while nothing changes, so the rate must fall with time alone."""
        meter = Meter()
        meter.add(0.0, {})
        meter.add(5.0, {"CORRECT": 50})
        assert meter.rate(5.0, 10.0) == pytest.approx(10.0)
        assert meter.rate(12.0, 10.0) == pytest.approx(5.0)
        assert meter.rate(20.0, 10.0) == 0.0

    def test_counts_that_fall_are_those_of_a_new_scheduler(self) -> None:
        meter = Meter()
        meter.add(0.0, {"CORRECT": 50, "TIMEOUT": 7})
        meter.add(2.0, {"CORRECT": 60, "TIMEOUT": 7})
        meter.add(4.0, {"CORRECT": 90})
        assert meter.rate(6.0, 10.0) == 0.0
        meter.add(8.0, {"CORRECT": 98})
        assert meter.rate(8.0, 10.0) == pytest.approx(2.0)


async def test_help_names_every_option() -> None:
    ran = await run("top", "--help")
    assert ran.status == 0
    for option in ("--once", "--interval", "--json", "--address", "--tls-ca", "--token-file"):
        assert option in ran.out
