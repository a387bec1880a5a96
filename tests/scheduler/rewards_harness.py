"""A trainer's end of a StreamRewards stream, message by message, and turns with candidates for scripted nodes."""

from __future__ import annotations

from typing import Any

import grpc

from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsRequest, StreamRewardsResponse, Turn
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceStub
from tests.scheduler.scheduler_harness import Stream

#: A spec that pays nothing for coverage, so that no turn has to wait until the fleet is known.
PLAIN = RewardSpec(preset="kevin")


def turn(name: str, script: str = "", *, index: int = 0, response: str = "", **fields: Any) -> Turn:
    """Return a turn called `name`. Nodes use the same name for it."""
    code = "" if response else f"id={name} {script}"
    request = EvalRequest(**{"id": name, "reference_code": "ref", "kernel_code": code, **fields})
    return Turn(group=f"group {name}", sample=3, turn_index=index, request=request, response_text=response)


def fenced(script: str) -> str:
    """Return a model's answer with a candidate whose script is `script`."""
    return f"I think that this is fast:\n\n```python\nclass ModelNew:  # {script}\n    pass\n```\nDone."


class Trainer(Stream):
    """A client's end of one stream. `answers` has the answers by id, `order` has them in order of arrival."""

    def __init__(self, peer: grpc.aio.Channel, client_id: str = "t") -> None:
        stub: Any = RewardServiceStub(peer)
        super().__init__(stub.StreamRewards(), client_id)
        self.answers: dict[str, StreamRewardsResponse] = {}
        self.order: list[StreamRewardsResponse] = []

    async def send(self, *turns: Turn, reward: RewardSpec | None = PLAIN, cancel: tuple[str, ...] = ()) -> None:
        """Send one message."""
        await self.call.write(
            StreamRewardsRequest(client_id=self.client_id, turns=turns, reward=reward, cancel_ids=cancel)
        )

    async def finish(self, seconds: float = 20) -> dict[str, StreamRewardsResponse]:
        """Half-close, read to the end, and return the answers."""
        await self.read_to_the_end(seconds)
        assert await self.call.code() is grpc.StatusCode.OK
        return self.answers

    def _take(self, response: StreamRewardsResponse) -> None:
        self.order.append(response)
        self.answers[response.id] = response


def outcome(answer: StreamRewardsResponse) -> str:
    """Return the name of the first verdict's outcome."""
    return EvalResult.Outcome.Name(answer.result.outcome)


def paid(answer: StreamRewardsResponse) -> float | None:
    """Return the reward, or None if there is none."""
    return answer.reward if answer.HasField("reward") else None


def fields(answer: StreamRewardsResponse) -> list[str]:
    """Return the fields for which a turn is INVALID."""
    return [violation.field for violation in answer.result.invalid.violations]
