"""Tests of client.rewards() and RewardStream with the real scheduler: no answer is lost, and none is made up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from kerneldyno.client import (
    AsyncClient,
    Client,
    ClientClosedError,
    DuplicateIdError,
    InvalidRequestError,
    NoRewardError,
    RewardSpec,
    StreamRewardsResponse,
    Turn,
    UnavailableError,
    turn,
)
from kerneldyno.client.errors import PermissionDeniedError
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.testing.scripted_node import node
from tests.scheduler.rewards_harness import fenced, outcome, paid
from tests.scheduler.scheduler_harness import sample, scheduler
from tests.scheduler.test_scheduler_process import process
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def one(name: str, script: str = "speedup=1", *, sample: int = 0, index: int = 0, id: str = "") -> Turn:
    return turn(name, sample, index, reference_code="ref", kernel_code=f"id={name} {script}", id=id)


async def collect(
    answers: AsyncIterator[StreamRewardsResponse], into: list[StreamRewardsResponse] | None = None
) -> list[StreamRewardsResponse]:
    into = [] if into is None else into
    async for answer in answers:
        into.append(answer)
    return into


# rewards()


async def test_answers_come_in_completion_order_and_turns_stay_as_they_are() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=3), AsyncClient(str(app.address)) as client:
        turns = [one("slow", "sleep=0.5 speedup=2"), one("fast"), one("middle", "sleep=0.2 outcome=INCORRECT")]
        answers = await collect(client.rewards(turns, "kevin"))
        assert [(answer.group, paid(answer)) for answer in answers] == [("fast", 1.3), ("middle", 0.0), ("slow", 2.3)]
        assert all(answer.id.startswith(f"{answer.group}/0/0/") for answer in answers)
        assert [each.request.id for each in turns] == ["", "", ""]


@pytest.mark.parametrize("kind", ["list", "generator", "async generator"])
async def test_turns_may_come_from_anywhere_and_pass_a_small_window(kind: str) -> None:
    turns = [one(f"t{i}") for i in range(40)]

    async def awaited() -> AsyncIterator[Turn]:
        for each in turns:
            await asyncio.sleep(0.001)
            yield each

    source = {"list": turns, "generator": iter(turns), "async generator": awaited()}[kind]
    async with scheduler() as (app, _), node(app.address, "n1"), AsyncClient(str(app.address), window=7) as client:
        answers = await collect(client.rewards(source, "kevin"))
        assert sorted(answer.group for answer in answers) == sorted(each.group for each in turns)


async def test_what_has_no_reward_is_told_last_by_an_exception_or_yielded_when_asked_for() -> None:
    turns = [
        one("lost", "outcome=INFRASTRUCTURE_ERROR retryable=no"),
        one("right"),
        one("ref", "outcome=REFERENCE_ERROR"),
    ]
    async with scheduler() as (app, _), node(app.address, "n1"), AsyncClient(str(app.address)) as client:
        seen: list[StreamRewardsResponse] = []
        with pytest.raises(NoRewardError) as failed:
            await collect(client.rewards(turns, "kevin"), seen)
        assert [answer.group for answer in seen] == ["right"]
        assert sorted(answer.group for answer in failed.value.answers) == ["lost", "ref"]
        answers = await collect(client.rewards(turns, "kevin", on_missing="yield"))
        assert {answer.group: paid(answer) for answer in answers} == {"lost": None, "right": 1.3, "ref": None}
        with pytest.raises(ValueError, match="on_missing"):
            client.rewards(turns, on_missing="zero")  # type: ignore[arg-type]


async def test_a_turn_that_infrastructure_failed_is_tried_again_as_often_as_asked() -> None:
    turns = [one("a", "outcome=INFRASTRUCTURE_ERROR node=bad speedup=1", id="mine")]
    async with scheduler(max_attempts=1) as (app, _), AsyncClient(str(app.address)) as client:
        async with node(app.address, "bad") as bad:
            with pytest.raises(NoRewardError, match="JUDGE_DIED"):
                await collect(client.rewards(turns, "kevin", retries=2))
            assert len(bad.started) == 3
        async with node(app.address, "good"):
            (answer,) = await collect(client.rewards(turns, "kevin", retries=1))
            assert (answer.id, paid(answer)) == ("mine", 1.3), "what is known of the first try is not the last word"


async def test_an_outage_and_nothing_else_is_mended_by_trying_again() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, AsyncClient(str(app.address)) as client:
        turns = [one(name, f"outcome={name}") for name in ("INCORRECT", "TIMEOUT", "REJECTED", "REFERENCE_ERROR")]
        await collect(client.rewards(turns, on_missing="yield"))
        assert len(fake.started) == 4


async def test_a_malformed_reward_is_refused_before_anything_is_sent() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(InvalidRequestError, match=r"reward\.preset"):
            client.rewards([one("a")], "generous")
        with pytest.raises(InvalidRequestError, match=r"reward\.speedup_clip"):
            client.reward_stream(RewardSpec(speedup_clip=0))


async def test_an_id_used_twice_is_an_error() -> None:
    async with scheduler() as (app, _), AsyncClient(str(app.address)) as client:
        with pytest.raises(DuplicateIdError):
            client.rewards([one("a", id="x"), one("b", id="x")])
        with pytest.raises(DuplicateIdError):
            await collect(client.rewards([one("a"), one("a")]))


async def test_when_the_time_is_over_turns_are_cancelled_and_have_no_reward() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, AsyncClient(str(app.address)) as client:
        turns = [one("a"), one("b", "sleep=60")]
        with pytest.raises(NoRewardError, match="DEADLINE_EXCEEDED") as failed:
            await collect(client.rewards(turns, "kevin", timeout=3.0))
        assert [answer.group for answer in failed.value.answers] == ["b"]
        await eventually(lambda: fake.cancelled == ["b"])


async def test_leaving_the_loop_cancels_and_the_same_turns_may_be_sent_again() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, AsyncClient(str(app.address)) as client:
        turns = [one("a"), one("b", "sleep=1.5 speedup=1")]
        answers = client.rewards(turns, "kevin")
        async for answer in answers:
            assert answer.group == "a"
            break
        await answers.aclose()
        await eventually(lambda: fake.cancelled == ["b"])
        again = await collect(client.rewards(turns, "kevin"))
        assert {answer.group: paid(answer) for answer in again} == {"a": 1.3, "b": 1.3}


async def test_a_scheduler_killed_in_the_middle_of_a_step_costs_nothing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/s.sqlite"
    spec = RewardSpec(preset="tiers", speedup_weight=2, correctness_weight=5)
    async with (
        process(store=store) as (first, address, _),
        node(address, "n1", lanes=8) as fake,
        AsyncClient(address) as client,
    ):
        turns = [one(f"t{i}", f"sleep={0.1 * (i % 8)} speedup={9 if i % 10 == 0 else 1.3}") for i in range(100)]
        step = asyncio.create_task(collect(client.rewards(turns, spec)))
        await eventually(lambda: len(fake.started) > 30)
        first.kill()
        await first.wait()
        async with process(store=store, listen=address):
            answers = await step
    assert sorted(answer.group for answer in answers) == sorted(f"t{i}" for i in range(100))
    assert {round(answer.reward, 6) for answer in answers} == {5 + 2.6 + 0.4, 5 + 18 + 1.0}
    assert sum(answer.HasField("remeasured") for answer in answers) == 10
    assert Counter(fake.started) == Counter(f"t{i}" for i in range(100)) + Counter(f"t{i}" for i in range(0, 100, 10))


async def test_a_scheduler_that_forgot_everything_is_given_all_of_it_again() -> None:
    async with process() as (first, address, _), node(address, "n1", lanes=8) as fake, AsyncClient(address) as client:
        step = asyncio.create_task(collect(client.rewards([one(f"t{i}", "sleep=0.5") for i in range(40)], "kevin")))
        await eventually(lambda: len(fake.started) > 10)
        first.kill()
        await first.wait()
        async with process(listen=address):
            assert len({answer.id for answer in await step}) == 40


# RewardStream


async def test_turns_scored_one_by_one_share_one_stream() -> None:
    async with (
        scheduler() as (app, _),
        node(app.address, "n1", lanes=4),
        AsyncClient(str(app.address), window=32) as client,
    ):
        async with client.reward_stream("kevin") as stream:
            assert app.registry.get_sample_value("grpc_server_started_total", _STREAMS) == 0, "not before it is used"
            answers = await asyncio.gather(*(stream.score(one(f"t{i}", f"speedup={i % 3}")) for i in range(200)))
        assert [(answer.group, paid(answer)) for answer in answers] == [(f"t{i}", 0.3 + i % 3) for i in range(200)]
        assert app.registry.get_sample_value("grpc_server_started_total", _STREAMS) == 1


_STREAMS = {
    "grpc_type": "bidi_stream",
    "grpc_service": "kerneldyno.v1.RewardService",
    "grpc_method": "StreamRewards",
}


async def test_a_step_of_768_dependent_turns_loses_nothing() -> None:
    """16 prompts x 16 samples x 3 turns: each turn needs the answer to the one before."""
    async with (
        scheduler() as (app, _),
        node(app.address, "n1", lanes=16, mean_seconds=0.05, spread=0.9),
        node(app.address, "n2", lanes=16, mean_seconds=0.05, spread=0.9),
        AsyncClient(str(app.address)) as client,
        client.reward_stream("kevin") as stream,
    ):
        finished: list[tuple[str, int, int]] = []

        async def episode(group: str, index: int) -> float:
            total, told = 0.0, "nothing yet"
            for number in range(3):
                response = fenced(f"speedup={number + 1} after {len(told)} {group} {index}")
                answer = await stream.score(turn(group, index, number, reference_code=group, response_text=response))
                assert (answer.group, answer.sample, answer.turn_index) == (group, index, number)
                finished.append((group, index, number))
                total, told = total + answer.reward, answer.feedback
            return total

        groups = [f"prompt {i}" for i in range(16)]
        totals = await asyncio.gather(*(episode(group, index) for group in groups for index in range(16)))
        assert totals == [pytest.approx(1.3 + 2.3 + 3.3)] * 256
        assert len(finished) == len(set(finished)) == 768
        assert sample(app, "turns_total", outcome="CORRECT") == 768


async def test_cancelling_one_score_cancels_that_turn_alone() -> None:
    async with (
        scheduler() as (app, _),
        node(app.address, "n1") as fake,
        AsyncClient(str(app.address), window=2) as client,
        client.reward_stream("kevin") as stream,
    ):
        given_up, kept = (asyncio.create_task(stream.score(one(name, "sleep=3 speedup=1"))) for name in ("a", "b"))
        await eventually(lambda: len(fake.started) == 2)
        waits = asyncio.create_task(stream.score(one("c")))  # the window is full
        never = asyncio.create_task(stream.score(one("d")))
        await asyncio.sleep(0)
        never.cancel()
        given_up.cancel()
        assert paid(await waits) == 1.3, "its place in the window is free"
        assert paid(await kept) == 1.3
        assert fake.cancelled == ["a"]
        assert "d" not in fake.started
        assert paid(await stream.score(one("a", "sleep=3 speedup=1"))) == 1.3, "given up once is not given up for ever"


async def test_the_limit_of_a_score_is_its_own() -> None:
    async with (
        scheduler() as (app, _),
        node(app.address, "n1") as fake,
        AsyncClient(str(app.address)) as client,
        client.reward_stream("kevin", timeout=3.0) as stream,
    ):
        with pytest.raises(NoRewardError, match="DEADLINE_EXCEEDED"):
            await stream.score(one("a", "sleep=60"))
        await eventually(lambda: fake.cancelled == ["a"])
        assert paid(await stream.score(one("b"))) == 1.3


async def test_scores_without_a_reward_and_ids_in_use_are_exceptions() -> None:
    async with (
        scheduler() as (app, _),
        node(app.address, "n1"),
        AsyncClient(str(app.address)) as client,
        client.reward_stream("kevin") as stream,
    ):
        with pytest.raises(NoRewardError, match="REFERENCE_ERROR"):
            await stream.score(one("a", "outcome=REFERENCE_ERROR"))
        first = asyncio.create_task(stream.score(one("b", "sleep=0.3")))
        await asyncio.sleep(0)
        with pytest.raises(DuplicateIdError):
            await stream.score(one("b", "sleep=0.3"))
        assert outcome(await first) == "CORRECT"
        assert outcome(await stream.score(one("b", "sleep=0.3"))) == "CORRECT", "it is answered from what is known"


@pytest.mark.parametrize("how", ["stream", "client"])
async def test_closing_cancels_what_is_outstanding_and_tells_whoever_waits(how: str) -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, AsyncClient(str(app.address)) as client:
        stream = client.reward_stream("kevin")
        waiting = [asyncio.create_task(stream.score(one(name, "sleep=60"))) for name in ("a", "b")]
        await eventually(lambda: len(fake.started) == 2)
        await (stream if how == "stream" else client).close()
        for task in waiting:
            with pytest.raises(ClientClosedError):
                await task
        await eventually(lambda: sorted(fake.cancelled) == ["a", "b"])
        with pytest.raises(ClientClosedError):
            await stream.score(one("c"))
        await stream.close()


async def test_another_event_loop_is_told_so_and_the_stream_goes_on() -> None:
    """Without this, a trainer that calls asyncio.run for each batch would wait for ever or get grpc's own error."""
    async with (
        scheduler() as (app, _),
        node(app.address, "n1"),
        AsyncClient(str(app.address)) as client,
        client.reward_stream("kevin") as stream,
    ):
        await stream.score(one("a"))
        elsewhere = (
            lambda: stream.score(one("b")),
            lambda: collect(client.rewards([one("c")], "kevin")),
            client.capabilities,
        )
        for call in elsewhere:
            with pytest.raises(ClientClosedError, match="another event loop; open one in this loop"):
                await asyncio.to_thread(lambda call=call: asyncio.run(_called(call)))
        assert paid(await stream.score(one("d"))) == 1.3


async def _called(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


async def test_an_idle_stream_outlives_a_restart_and_pays_by_the_same_spec() -> None:
    spec = RewardSpec(preset="kevin", correctness_weight=7)
    async with process() as (first, address, _), AsyncClient(address) as client, client.reward_stream(spec) as stream:
        async with node(address, "n1"):
            assert paid(await stream.score(one("a"))) == 8.0
        first.kill()
        await first.wait()
        async with process(listen=address), node(address, "n1"):
            assert paid(await stream.score(one("b"))) == 8.0


async def test_a_stream_that_failed_opens_again_with_the_next_turn() -> None:
    async with (
        process() as (first, address, _),
        AsyncClient(address, reconnect_timeout=3.0) as client,
        client.reward_stream("kevin") as stream,
    ):
        first.kill()
        await first.wait()
        lost = await asyncio.gather(*(stream.score(one(f"t{i}")) for i in range(3)), return_exceptions=True)
        assert [type(error) for error in lost] == [UnavailableError] * 3
        async with process(listen=address), node(address, "n1"):
            assert paid(await stream.score(one("t0"))) == 1.3


async def test_two_streams_of_one_client_do_not_mix() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=4), AsyncClient(str(app.address)) as client:
        turns = [one(f"t{i}", "speedup=2 sleep=0.05") for i in range(60)]
        async with client.reward_stream("kevin") as kevin, client.reward_stream("tiers") as tiers:
            scored = [asyncio.gather(*(stream.score(each) for each in turns)) for stream in (kevin, tiers)]
            listed = asyncio.create_task(
                collect(client.rewards(turns, RewardSpec(correctness_weight=9, speedup_weight=0)))
            )
            assert {paid(answer) for answer in await scored[0]} == {2.3}
            assert {paid(answer) for answer in await scored[1]} == {0.8}
            assert [paid(answer) for answer in await listed] == [9.0] * 60


async def test_owners_of_tokens_share_neither_turns_nor_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {name: f"{name}-is-who-this-token-belongs-to" for name in ("ann", "bob", "node")}
    roles = {"ann": "submit", "bob": "submit", "node": "node"}
    monkeypatch.setenv("KERNELDYNO_TOKENS", ",".join(f"{name}:{roles[name]}:{tokens[name]}" for name in tokens))
    async with (
        scheduler() as (app, _),
        node(app.address, "n1", credentials=Credentials(token=tokens["node"])),
        AsyncClient(str(app.address), client_id="c", token=tokens["ann"]) as ann,
        AsyncClient(str(app.address), client_id="c", token=tokens["bob"]) as bob,
    ):
        kept = asyncio.create_task(collect(ann.rewards([one("a", "sleep=1 speedup=1", id="same")], "kevin")))
        async with bob.reward_stream("kevin") as stream:
            given_up = asyncio.create_task(stream.score(one("b", "sleep=60", id="same")))
            await eventually(lambda: len(app.core.attempts) == 2)
            given_up.cancel()
        assert [paid(answer) for answer in await kept] == [1.3]
        async with AsyncClient(str(app.address), token=tokens["node"]) as stranger:
            with pytest.raises(PermissionDeniedError):
                await collect(stranger.rewards([one("a")], "kevin"))


# Client


def test_a_plain_program_has_the_same() -> None:

    def turns() -> Iterator[Turn]:
        yield one("a", "speedup=2")
        yield one("b", "outcome=REFERENCE_ERROR")

    async def services() -> None:
        async with scheduler() as (app, _), node(app.address, "n1"):
            address = str(app.address)
            await asyncio.to_thread(use, address)

    def use(address: str) -> None:
        with Client(address) as client:
            answers = client.rewards(turns(), "kevin")
            assert paid(next(answers)) == 2.3
            with pytest.raises(NoRewardError):
                next(answers)
            assert len(list(client.rewards(list(turns()), "kevin", on_missing="yield"))) == 2

    asyncio.run(services())
