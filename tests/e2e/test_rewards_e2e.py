"""Rewards from real verdicts: responses with fenced kernels, judged in sandboxed runners, by every kind of client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kerneldyno.client import AsyncClient, Client, LocalServices, RewardSpec, StreamRewardsResponse, Turn, turn
from kerneldyno.v1.reward_service_pb2 import Extraction
from tests.e2e.e2e_harness import ON_GPU, PROBLEMS, REFERENCE, candidate, evaluator, kill, outcome, scheduler

BUF = str(Path(sys.executable).with_name("buf"))
#: Fields of requests that take milliseconds each, because nothing is timed.
FAST = {"backend": "torch", "num_correct_trials": 1, "stress_inputs": False, "run_performance": False}


def fenced(code: str) -> str:
    """Return a model's response with this code."""
    return f"<think>Let me see.</think>\nHere is my kernel.\n\n```python\n{code}\n```\n\nIt should be fast."


def respond(name: str, response: str, **fields: Any) -> Turn:
    return turn(name, 0, 0, reference_code=REFERENCE, response_text=response, **FAST | fields)


def curl(address: str, body: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Send one message with `buf curl`, which the tests use like grpcurl."""
    method = f"http://{address}/kerneldyno.v1.RewardService/StreamRewards"
    command = [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", method, "-d", json.dumps(body)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_step_of_responses_is_paid_by_what_they_are_worth(services: LocalServices) -> None:
    spec = RewardSpec(preset="drkernel", incorrect_reward=-0.1, failure_reward=-0.2, rejected_reward=-0.3)
    turns = [
        respond("right", fenced(candidate())),
        respond("wrong", fenced(candidate("x = x + 1"))),
        respond("raises", fenced(candidate("raise KeyError(1)"))),
        respond("syntax", fenced("class ModelNew(:")),
        respond("talks", "I would rather talk about it."),
    ]
    with Client(services.address) as client:
        answers = {answer.group: answer for answer in client.rewards(turns, spec)}
    rewards = {name: answer.reward for name, answer in answers.items()}
    assert rewards == {"right": 0.5, "wrong": -0.1, "raises": -0.2, "syntax": -0.2, "talks": -0.2}
    assert answers["right"].extraction.method == Extraction.METHOD_FENCED_ENTRY_POINT
    assert "KeyError" in answers["raises"].feedback
    assert "fenced" in answers["talks"].feedback
    assert all(answer.feedback for answer in answers.values())


def test_a_triton_kernel_is_timed_and_paid_for_its_speed(services: LocalServices) -> None:
    softmax = PROBLEMS / "softmax"
    one = turn(
        "softmax",
        0,
        0,
        reference_code=(softmax / "reference.py").read_text(),
        response_text=fenced((softmax / "triton_rows.py").read_text()),
        num_correct_trials=1,
        num_perf_trials=5,
        stress_inputs=False,
    )
    with Client(services.address) as client:
        (answer,) = client.rewards([one], RewardSpec(preset="drkernel", remeasure_above=0.0))
    assert outcome(answer.result) == "CORRECT"
    assert outcome(answer.remeasured) == "CORRECT", "any speedup at all is doubted here"
    assert not answer.remeasured.cached
    assert answer.parts.paid_speedup == min(answer.result.speedup, answer.remeasured.speedup, 3.0)
    assert answer.result.HasField("profile") == ON_GPU, "coverage is paid for where it can be measured"
    assert answer.reward == 0.5 + 0.5 * answer.parts.paid_speedup + 0.5 * answer.parts.paid_coverage


async def test_an_episode_learns_from_feedback_while_others_run(services: LocalServices) -> None:
    """Several episodes share one stream. Each writes its second answer after the feedback on the first."""

    async def episode(index: int) -> list[StreamRewardsResponse]:
        body, answers = "raise ValueError('first try')", []
        for number in range(2):
            one = turn(
                "g", index, number, reference_code=REFERENCE, response_text=fenced(candidate(body, str(index))), **FAST
            )
            answers.append(await stream.score(one))
            body = "pass" if "first try" in answers[-1].feedback else body
        return answers

    async with AsyncClient(services.address) as client, client.reward_stream("drkernel") as stream:
        for first, second in await asyncio.gather(*(episode(index) for index in range(4))):
            assert (outcome(first.result), outcome(second.result)) == ("RUNTIME_ERROR", "CORRECT")
            assert (first.reward, second.reward) == (0.0, 0.5)


def test_a_turn_is_scored_by_hand(services: LocalServices) -> None:
    """The command of docs/evaluating.md, with `buf curl` instead of grpcurl."""
    body = {
        "client_id": "me",
        "reward": {"preset": "kevin"},
        "turns": [
            {
                "group": "by-hand",
                "request": {"reference_code": REFERENCE, **FAST},
                "response_text": fenced(candidate("x = x - 1")),
            }
        ],
    }
    done = curl(services.address, body)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["group"], answer["reward"], answer["result"]["outcome"]) == ("by-hand", 0, "INCORRECT")
    assert answer["id"].startswith("by-hand/0/0/")
    error = json.loads(curl(services.address, body | {"reward": {"preset": "generous"}}).stderr)
    assert error["code"] == "invalid_argument"
    assert "reward.preset" in error["message"]


async def test_an_evaluator_that_dies_is_no_candidates_fault() -> None:
    """The evaluator is killed during a turn. The next evaluator judges the turn, and the reward is the full one."""
    slow = respond("slow", fenced(candidate("time.sleep(4)")))
    with scheduler() as service, evaluator(service.address) as doomed:
        async with AsyncClient(service.address) as client, client.reward_stream("kevin") as stream:
            scoring = asyncio.create_task(stream.score(slow))
            await eventually_running(client)
            kill(doomed.process)
            with evaluator(service.address):
                answer = await scoring
    assert (outcome(answer.result), answer.result.attempts, answer.reward) == ("CORRECT", 2, 0.3)


async def eventually_running(client: AsyncClient) -> None:
    """Wait until an evaluation runs."""
    async for snapshot in client.watch():
        if snapshot.running:
            return
