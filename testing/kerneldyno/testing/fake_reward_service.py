"""Serve RewardService for the fake scheduler: turns come in, rewards and feedback go out.

Candidates are extracted, scored and commented on by the code that the real scheduler uses (kerneldyno.rewards), so rewards
are the real ones for the test's verdicts. A speedup that is anomalous for the reward is measured again: the judge is asked
a second time, with a request whose salt ends with "~again".
"""

# ruff: noqa: N802  (methods are named by the contract)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kerneldyno.rewards.extraction import extract
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.presets import DEFAULT_PRESET, effective, spec
from kerneldyno.rewards.scoring import anomalous, score
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.rpc.profiles import decides_about_profile
from kerneldyno.rpc.turns import AGAIN, AGAIN_LABEL, TURN_LABELS, check_turn, turn_id
from kerneldyno.rpc.validation import MAX_SALT_CHARS, Violation, validate
from kerneldyno.testing.fake_queue import Context, FakeQueue, Send
from kerneldyno.testing.fake_scheduler_service import invalid_result
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsRequest, StreamRewardsResponse, Turn
from kerneldyno.v1.reward_service_pb2_grpc import RewardServiceServicer


class FakeRewardService(RewardServiceServicer):
    """RewardService over a FakeQueue."""

    def __init__(self, queue: FakeQueue) -> None:
        self._queue = queue
        self.turns: list[Turn] = []

    async def StreamRewards(
        self, request_iterator: AsyncIterator[StreamRewardsRequest], context: Context
    ) -> AsyncIterator[StreamRewardsResponse]:
        async def read(send: Send) -> None:
            try:
                await self._read(request_iterator, send)
            except ExceptionGroup as failed:  # of the task group
                raise failed.exceptions[0] from None

        def is_result(response: StreamRewardsResponse) -> bool:
            return response.HasField("result")

        async for response in self._queue.serve(context, read, is_result):
            yield response

    async def _read(self, messages: AsyncIterator[StreamRewardsRequest], send: Send) -> None:
        reward = spec(DEFAULT_PRESET)
        client_id = ""
        # A task for each turn; they end with the stream, and evaluations continue without them.
        async with asyncio.TaskGroup() as group:
            async for message in messages:
                client_id = client_id or message.client_id
                if not client_id:
                    raise InvalidRequestError(violations=[Violation("client_id", "must have 1 to 100 characters")])
                if message.HasField("reward"):
                    reward = effective(message.reward)
                self.turns.extend(message.turns)
                for turn in message.turns:
                    group.create_task(self._send_answer(client_id, turn, reward, send))
                for id in message.cancel_ids:
                    self._queue.cancel(client_id, id)
                    self._queue.cancel(client_id, id + AGAIN)

    async def _send_answer(self, client_id: str, turn: Turn, reward: RewardSpec, send: Send) -> None:
        try:
            send(await self._answer(client_id, turn, reward))
        except Exception as error:
            send(error)

    async def _answer(self, client_id: str, turn: Turn, spec: RewardSpec) -> StreamRewardsResponse:
        answer = StreamRewardsResponse(
            id=turn_id(turn), group=turn.group, sample=turn.sample, turn_index=turn.turn_index
        )
        request = EvalRequest()
        request.CopyFrom(turn.request)
        request.id = answer.id
        violations = check_turn(turn)
        if turn.response_text and not violations:
            violations = _extract(turn, request, answer)
        if not violations:
            _prepare(request, turn, spec)
            violations = validate(request, profiling=True)
        if violations:
            answer.result.CopyFrom(invalid_result(answer.id, violations))
        else:
            answer.result.CopyFrom(await self._evaluate(client_id, request))
            if anomalous(answer.result, spec):
                answer.remeasured.CopyFrom(await self._evaluate(client_id, _again(request)))
        _add_reward(answer, spec)
        return answer

    async def _evaluate(self, client_id: str, request: EvalRequest) -> EvalResult:
        # The evaluation belongs to the client, not to the stream: it goes on when the stream breaks.
        return await asyncio.shield(self._queue.submit(client_id, request).task)


def _extract(turn: Turn, request: EvalRequest, answer: StreamRewardsResponse) -> list[Violation]:
    """Extract the candidate from the response, and return what is invalid if there is none."""
    found = extract(turn.response_text, request.entry_point, request.toolkit)
    answer.extraction.CopyFrom(found)
    request.kernel_code = found.kernel_code
    return [] if found.kernel_code else [Violation("response_text", f"contains no code: {found.note}")]


def _prepare(request: EvalRequest, turn: Turn, spec: RewardSpec) -> None:
    """Add the labels of a turn, and ask for a profile if the reward uses coverage."""
    for label, value in zip(TURN_LABELS, (turn.group, turn.sample, turn.turn_index), strict=True):
        request.labels[label] = str(value)
    if spec.coverage_weight and not decides_about_profile(request):
        request.enable_profiling = True


def _again(request: EvalRequest) -> EvalRequest:
    """Return the request of the second measurement."""
    again = EvalRequest()
    again.CopyFrom(request)
    again.id = request.id + AGAIN
    again.salt = request.salt[: MAX_SALT_CHARS - len(AGAIN)] + AGAIN
    again.skip_cache = True
    again.labels[AGAIN_LABEL] = "true"
    return again


def _add_reward(answer: StreamRewardsResponse, spec: RewardSpec) -> None:
    remeasured = answer.remeasured if answer.HasField("remeasured") else None
    for verdict in (answer.result, remeasured):
        if spec.speedup_kind and verdict is not None:
            verdict.speedup_kind = spec.speedup_kind
    reward, parts = score(answer.result, spec, remeasured)
    if reward is not None:
        answer.reward = reward
        answer.parts.CopyFrom(parts)
    answer.feedback = feedback(
        answer.result,
        limit=spec.feedback_chars,
        extraction=answer.extraction if answer.HasField("extraction") else None,
        remeasured=remeasured,
    )
