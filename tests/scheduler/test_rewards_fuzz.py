"""Mutated turns and specs: every stream ends with an expected status, and the scheduler works afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, SpeedupTier, StreamRewardsRequest, Turn
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceStub
from tests.scheduler.rewards_harness import fenced
from tests.scheduler.scheduler_harness import connect, scheduler
from tests.scheduler.test_scheduler_fuzz import ANSWERS, Mutator, drained, good_request, handled, works

STREAMS = 60
MESSAGES = 8


def good_turn(name: str, script: str) -> Turn:
    """Return a valid turn with many fields set."""
    turn = Turn(group="g", sample=1, turn_index=2, request=good_request(name))
    if script:
        turn.request.ClearField("kernel_code")
        turn.response_text = fenced(f"id={name} {script}")
    return turn


def good_spec() -> RewardSpec:
    return RewardSpec(
        preset="tiers", coverage_weight=0.5, tiers=[SpeedupTier(min_speedup=1, bonus=1)], feedback_chars=100
    )


async def test_streams_of_turns() -> None:
    async with (
        scheduler(unmatched_seconds=0.2) as (app, stub),
        node(app.address, "n1", lanes=8, profiling=True) as fake,
        connect(app) as peer,
    ):
        await fake.at_work.wait()
        mutator = Mutator(11)
        rewards: Any = RewardServiceStub(peer)
        answered = set()
        for number in range(STREAMS):
            call = rewards.StreamRewards()
            try:
                for step in range(MESSAGES):
                    script = mutator.dice.choice(["", "speedup=9 again.speedup=2", "outcome=INCORRECT"])
                    turns = [good_turn(f"r{number}-{step}", script)]
                    message = StreamRewardsRequest(client_id="fuzz", turns=turns, reward=good_spec())
                    which = mutator.dice.random()
                    mutator.mutate(message.turns[0].request if which < 0.5 else message.turns[0])
                    if which > 0.9:
                        mutator.mutate(message.reward if which < 0.95 else message)
                    await call.write(message)
                await call.done_writing()
                async with asyncio.timeout(20):
                    while (response := await call.read()) is not grpc.aio.EOF:
                        answered.add(EvalResult.Outcome.Name(response.result.outcome))
                        unpaid = response.result.outcome in (
                            EvalResult.INFRASTRUCTURE_ERROR,
                            EvalResult.REFERENCE_ERROR,
                            EvalResult.PROBLEM_TOO_LARGE,
                        )
                        assert not (unpaid and response.HasField("reward"))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await drained(call)  # the stream ended before all was sent
        codes = handled(app, "StreamRewards")
        assert codes <= ANSWERS
        assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= codes
        assert {"CORRECT", "INCORRECT", "INVALID"} <= answered
        await works(app, stub)
