"""Tests of the shares of the fleet that `kerneldyno top` shows."""

from __future__ import annotations

from kerneldyno.testing.scripted_node import node
from tests.client.command import invoke
from tests.client.terminal import terminal
from tests.scheduler.scheduler_harness import Client, request, scheduler
from tests.waiting import eventually


async def test_each_share_is_shown_with_its_quota() -> None:
    async with scheduler(max_queued_per_client=3) as (app, stub), node(app.address, "n1", lanes=1) as fake:
        address = str(app.address)
        full, small = Client(stub, "run-7/trainer"), Client(stub, "laptop")
        await full.send(*(request(f"r{number}", "sleep=600") for number in range(3)))
        await full.until(lambda: len(full.accepted) == 3)
        await small.send(request("one", "sleep=600"))
        await small.until(lambda: small.accepted == ["one"])
        await eventually(lambda: len(fake.attempts) == 2)
        ran = await invoke("top", "--once", "--address", address, COLUMNS="120")
        rows = [line.split() for line in ran.out.splitlines()]
        assert ["share", "unfinished", "at", "most", "running", "weight"] in rows
        (row,) = [row for row in rows if row[:1] == ["run-7"]]
        assert (row[1:3], row[-1]) == (["3", "3"], "1")
        shares = (await invoke("top", "--once", "--json", "--address", address)).json["shares"]
        assert [(share["name"], share["unfinished"]) for share in shares] == [("run-7", "3"), ("laptop", "1")]
        assert sum(int(share["running"]) for share in shares) == 2
        async with terminal("top", "-d", "0.1", "--address", address, lines=30) as shown:
            screen = await shown.until(lambda screen: "run-7" in screen and "n1" in screen)
            assert len(screen.rstrip("\n").split("\n")) <= 30
            shown.press("\x03")
            assert await shown.ended() == 0


async def test_nothing_is_shown_where_nobody_has_anything() -> None:
    async with scheduler() as (app, _):
        ran = await invoke("top", "--once", "--address", str(app.address))
    assert "unfinished" not in ran.out
