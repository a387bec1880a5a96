"""Tests of the command line and the gateway with lists of addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from kerneldyno.doctor import roles, software
from kerneldyno.gateway.app import Settings
from kerneldyno.rpc.credentials import NONE, Credentials
from tests.client.command import NOBODY, invoke
from tests.client.fake_fleet import FakeFleet
from tests.failover.pair import Pair
from tests.failover.standby import standby
from tests.gateway.gateway_harness import PROBLEMS, PROMPT, listening, response
from tests.waiting import eventually


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as running:
        yield running


async def found(address: str, credentials: Credentials = NONE) -> list[tuple[str, str, str]]:
    """Return name, state and detail of each finding on the roles."""
    return [(check.name, str(check.state), check.detail) for check in await roles.of_each(address, credentials)]


@pytest.mark.parametrize("command", [["nodes"], ["doctor", "--no-canary"], ["gateway", "--listen", "127.0.0.1:0"]])
async def test_a_bad_list_is_a_usage_error(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "torch", lambda: iter(()))  # it takes seconds
    ran = await invoke(*command, "--address", "127.0.0.1:1,")
    assert ran.status == (1 if command[0] == "doctor" else 2)
    assert "nothing before or after a comma" in (ran.out if command[0] == "doctor" else ran.err)


async def test_commands_find_the_scheduler_that_serves(scheduler: FakeFleet) -> None:
    async with standby() as first:
        ran = await invoke("nodes", "--json", KERNELDYNO_ADDRESS=f"{NOBODY},{first.address},{scheduler.address}")
        assert (ran.status, ran.err) == (0, "")
        assert ran.json["nodes"][0]["node_id"] == "node-a"
        ran = await invoke("nodes", "--address", NOBODY + ",127.0.0.1:2")
        assert (ran.status, ran.err.count("\n")) == (3, 1)
        assert f"{NOBODY}: nothing listens there" in ran.err
        assert "127.0.0.1:2: nothing listens there" in ran.err


async def test_doctor_shows_the_role_of_each(scheduler: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "torch", lambda: iter(()))  # it takes seconds
    async with standby(scheduler.address) as first:
        address = f"{scheduler.address},{first.address},{NOBODY}"
        ran = await invoke("doctor", "--no-canary", "--json", "--address", address)
        shown = [(one["name"], one["state"], one["detail"]) for one in ran.json if one["name"].startswith("role of ")]
        assert shown == await found(address)
    assert shown[0][:2] == (f"role of {scheduler.address}", "ok")
    assert shown[0][2].startswith("serving, version ")
    assert shown[1] == (f"role of {first.address}", "ok", f"standby, it says that {scheduler.address} serves")
    assert shown[2][:2] == (f"role of {NOBODY}", "note")
    assert shown[2][2].startswith("unreachable: nothing listens there")


async def test_two_that_serve_are_a_failure(scheduler: FakeFleet) -> None:
    async with FakeFleet() as other:
        name, state, detail = (await found(f"{scheduler.address},{other.address}"))[-1]
    assert (name, state) == ("schedulers", "failed")
    assert detail.startswith("2 of these schedulers serve at once")


async def test_a_single_address_has_a_role_only_if_it_is_a_standby(scheduler: FakeFleet) -> None:
    assert await found(scheduler.address) == []
    assert await found(NOBODY) == []
    async with standby() as only:
        assert await found(only.address) == [
            (f"role of {only.address}", "ok", "standby, it knows none that serves"),
        ]


@pytest.mark.slow
async def test_reward_requests_of_the_gateway_survive_a_take_over(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(Pair(tmp_path))
        url = await stack.enter_async_context(listening(Settings(pair.address, "kevin", PROBLEMS)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60, trust_env=False))

        async def ask(number: int) -> float:
            body = {"prompt": PROMPT, "response": response("speedup=2.0 sleep=1.5", str(number)), "label": "first"}
            return float((await http.post("/rm", json=body)).json())

        async def evaluate() -> float:
            code = "# speedup=2.0 sleep=1.5\nclass ModelNew: pass\n"
            task = {"task_id": "a", "reference_code": "class Model: pass", "kernel_code": code}
            return float((await http.post("/evaluate", json=task)).json()["speedup"])

        asked = [asyncio.create_task(ask(number)) for number in range(6)]
        task = asyncio.create_task(evaluate())
        await eventually(lambda: sum((one.op, one.kind) == ("attempt", "invoke") for one in pair.events()) == 7)
        await pair.take_over()
        assert await asyncio.gather(*asked) == pytest.approx([2.3] * 6)
        assert await task == 2.0
        assert sum((one.op, one.kind) == ("attempt", "invoke") for one in pair.events()) == 7, "none ran twice"
