"""Tests of OpenEnv-style episodes: the messages that OpenEnv's WebSocket client sends, and the HTTP form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from kerneldyno.client import AsyncClient
from tests.gateway.gateway_harness import PROBLEMS, REFERENCE, Served, gateway, response


class Session:
    """A connection used as OpenEnv's client uses it: send a message, then wait for the answer."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def ask(self, message: Any) -> dict[str, Any]:
        await self._socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        return json.loads(await asyncio.wait_for(self._socket.recv(), 20))

    async def reset(self, **data: Any) -> dict[str, Any]:
        answer = await self.ask({"type": "reset", "data": data})
        assert answer["type"] == "observation", answer
        return answer["data"]

    async def step(self, text: str) -> dict[str, Any]:
        answer = await self.ask({"type": "step", "data": {"response": text}})
        assert answer["type"] == "observation", answer
        return answer["data"]


@asynccontextmanager
async def session(served: Served) -> AsyncIterator[Session]:
    async with connect(served.url.replace("http", "ws") + "/ws", proxy=None, max_size=None) as socket:
        yield Session(socket)


async def test_an_episode() -> None:
    async with gateway() as served, session(served) as env:
        begun = await env.reset(problem="second", episode_id="e-1")
        seen = begun["observation"]
        assert (begun["reward"], begun["done"], seen["problem"], seen["turns_left"]) == (None, False, "second", 3)
        assert PROBLEMS["second"].reference_code.strip() in seen["prompt"]
        first = await env.step(response("outcome=INCORRECT"))
        assert (first["reward"], first["done"]) == (0.0, False)
        assert first["observation"]["outcome"] == "INCORRECT"
        assert first["observation"]["feedback"] in first["observation"]["prompt"]
        second = await env.step(response("speedup=1.5"))
        assert (second["reward"], second["observation"]["turns_left"]) == (pytest.approx(1.8), 1)
        third = await env.step("no code at all")
        assert (third["reward"], third["done"], third["observation"]["correct"]) == (0.0, True, False)
        state = (await env.ask({"type": "state"}))["data"]
        assert (state["episode_id"], state["step_count"], state["done"]) == ("e-1", 3, True)
        assert state["rewards"] == pytest.approx([0.0, 1.8, 0.0])
        over = await env.ask({"type": "step", "data": {"response": response()}})
        assert (over["type"], "reset starts another" in over["data"]["message"]) == ("error", True)
        assert (await env.reset())["observation"]["turn"] == 0


async def test_a_step_tells_the_speedup_that_counts() -> None:
    async with gateway({"options": {"speedup_kind": "end-to-end"}}) as served, session(served) as env:
        await env.reset(problem="second")
        seen = await env.step(response("speedup=1.5 end_to_end=2.5"))
        assert (seen["reward"], seen["observation"]["speedup"]) == (pytest.approx(2.8), 2.5)


async def test_reset_chooses_by_seed_or_in_turn() -> None:
    async with gateway() as served, session(served) as env:
        by_seed = [(await env.reset(seed=seed))["observation"]["problem"] for seed in (0, 4, 2)]
        in_turn = [(await env.reset())["observation"]["problem"] for _ in range(3)]
        given = (await env.reset(problem={"reference_code": REFERENCE, "id": "mine"}))["observation"]["problem"]
    assert by_seed == ["first", "second", "third"]
    assert sorted(in_turn) == sorted(PROBLEMS)
    assert given == "mine"


async def test_a_step_without_reward_is_an_error_and_no_step() -> None:
    async with gateway() as served, session(served) as env:
        await env.reset(problem="first")
        answer = await env.ask(
            {"type": "step", "data": {"response": response("outcome=INFRASTRUCTURE_ERROR retryable=no")}}
        )
        assert (answer["type"], answer["data"]["code"], answer["data"]["retry_after"]) == ("error", "UNAVAILABLE", 5.0)
        state = (await env.ask({"type": "state"}))["data"]
        assert (state["step_count"], state["rewards"]) == (0, [])
        assert (await env.step(response()))["observation"]["turn"] == 1


BAD = [
    "{",
    "[]",
    '"text"',
    "[" * 50_000,
    {"type": "dance"},
    {"type": ["reset"]},
    {"type": "step"},
    {"type": "state"},
    {"type": "reset", "data": []},
    {"type": "reset", "data": {"seed": -1}},
    {"type": "reset", "data": {"seed": "x"}},
    {"type": "reset", "data": {"problem": "unknown"}},
    {"type": "reset", "data": {"problem": 7}},
    {"type": "reset", "data": {"episode_id": "x" * 300}},
]


async def test_bad_messages_are_errors_and_the_session_goes_on() -> None:
    async with gateway() as served, session(served) as env:
        for message in BAD:
            answer = await env.ask(message)
            assert answer["type"] == "error", message
            assert answer["data"]["message"]
        await env.reset(problem="first")
        for action in ({}, {"response": 3}, {"code": "x"}):
            assert (await env.ask({"type": "step", "data": action}))["data"]["code"] == "VALIDATION_ERROR"
        assert (await env.step(response()))["reward"] == pytest.approx(2.3)


async def test_closing() -> None:
    async with gateway() as served:
        async with connect(served.url.replace("http", "ws") + "/ws", proxy=None) as socket:
            await socket.send(json.dumps({"type": "close"}))
            with pytest.raises(Exception, match="1000"):
                await asyncio.wait_for(socket.recv(), 10)
        async with connect(served.url.replace("http", "ws") + "/ws", proxy=None) as socket:
            await socket.send(b"\x00bytes")
        assert (await served.http.get("/health")).status_code == 200


async def test_64_sessions_at_once() -> None:
    async def play(served: Served, number: int) -> float:
        async with session(served) as env:
            await env.reset(problem="first")
            return float((await env.step(response(f"speedup={number + 1}", str(number))))["reward"])

    async with gateway(node={"mean_seconds": 0.05, "lanes": 16}) as served:
        rewards = await asyncio.gather(*(play(served, number) for number in range(64)))
    assert rewards == pytest.approx([1.3 + number for number in range(64)])


async def test_samples_with_the_same_answer_are_different_turns() -> None:
    async with gateway() as served, session(served) as one, session(served) as other:
        await one.reset(problem="first")
        await other.reset(problem="first")
        await asyncio.gather(one.step(response()), other.step(response()))
        async with AsyncClient(str(served.app.address)) as client:
            ids = {evaluation.id async for evaluation in client.list()}
    assert len(ids) == 2


async def test_over_http() -> None:
    async with gateway({"turns": 2}) as served:
        begun = (await served.post("/reset", {"problem": "first"})).json()
        episode = begun["observation"]["episode_id"]
        step = {"action": {"response": response()}, "episode_id": episode}
        seen = [(await served.post("/step", step)).json() for _ in range(2)]
        over = await served.post("/step", step)
        state = (await served.http.get("/state", params={"episode_id": episode})).json()
        bad = [
            await served.post("/step", {"episode_id": episode}),
            await served.post("/step", {"action": {"response": "x"}}),
            await served.post("/step", {"action": {"response": "x"}, "episode_id": "none"}),
            await served.http.get("/state"),
        ]
    assert [(one["reward"], one["done"]) for one in seen] == [(pytest.approx(2.3), False), (pytest.approx(2.3), True)]
    assert (state["step_count"], over.status_code) == (2, 409)
    assert [answer.status_code for answer in bad] == [400, 400, 404, 400]


async def test_a_step_that_is_repeated_while_it_runs_is_one_step() -> None:
    """HTTP clients give up and send again: the step is paid once. Another answer meanwhile is refused, not a step."""
    async with gateway(node={"mean_seconds": 0.5}) as served:
        episode = (await served.post("/reset", {"problem": "first"})).json()["observation"]["episode_id"]
        step = {"action": {"response": response()}, "episode_id": episode}
        other = {"action": {"response": response(mark="other")}, "episode_id": episode}
        first, again, meanwhile = await asyncio.gather(*(served.post("/step", one) for one in (step, step, other)))
        state = (await served.http.get("/state", params={"episode_id": episode})).json()
        assert (await served.post("/step", other)).status_code == 200, "now it is one"
    assert first.json() == again.json()
    assert (meanwhile.status_code, state["step_count"], len(state["rewards"])) == (409, 1, 1)


async def test_the_schema_is_what_is_sent() -> None:
    async with gateway() as served, session(served) as env:
        schema = (await served.http.get("/schema")).json()
        begun = (await env.reset(problem="first"))["observation"]
        stepped = (await env.step(response()))["observation"]
        state = (await env.ask({"type": "state"}))["data"]
    assert set(schema["observation"]["required"]) == set(begun)
    assert set(schema["observation"]["properties"]) == set(stepped)
    assert set(schema["state"]["properties"]) == set(state)
    assert schema["action"]["required"] == ["response"]


async def test_without_problems_reset_needs_one() -> None:
    async with gateway({"problems": {}}) as served:
        assert (await served.post("/reset", {})).status_code == 400
        assert (await served.post("/reset", {"problem": REFERENCE})).status_code == 200
