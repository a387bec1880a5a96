"""Scoring of one response, for the trainers' routes and the environment.

All turns go over one RewardStream. A turn that is sent again while it runs, or shortly after, gets the result of the same
evaluation. Trainers time out and then repeat the request. So the gateway answers 503 shortly before their timeout, lets the
turn continue, and has the reward ready for the repeated request.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kerneldyno.client import NoRewardError, RewardStream
from kerneldyno.client.errors import KernelDynoError
from kerneldyno.gateway.refusals import Refusal, bad_request, invalid_request, refusal_of, unavailable
from kerneldyno.rewards.scoring import callers_fault
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rollout.problems import Problem, ProblemError
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse, Turn

#: How long to keep an answer for repeated requests, in seconds, and how many to keep; each has a few kilobytes without logs.
KEEP_SECONDS, KEEP_COUNT = 600.0, 5_000
#: Largest number of unfinished turns; a request beyond it gets a 503.
MAX_IN_FLIGHT = 2_048


class Rewards:
    """Score responses over one reward stream.

    Args:
        stream: the stream, which must stay open.
        options: fields of EvalRequest, in JSON form, used where a problem does not set them.
    """

    def __init__(self, stream: RewardStream, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._options = options
        self._running: dict[str, asyncio.Task[StreamRewardsResponse]] = {}
        #: Finished turns, oldest first: time of the end (monotonic, in seconds) and answer.
        self._finished: dict[str, tuple[float, StreamRewardsResponse]] = {}

    @property
    def in_flight(self) -> int:
        """Number of unfinished turns."""
        return len(self._running)

    async def score(
        self,
        problem: Problem,
        response: str,
        *,
        within: float | None = None,
        group: str = "",
        sample: int = 0,
        turn: int = 0,
    ) -> StreamRewardsResponse:
        """Return the answer to a response.

        Args:
            problem: the problem.
            response: text of the model.
            within: longest wait, in seconds; the evaluation continues after it. None: no limit.
            group, sample, turn: identify the turn; the id of the problem is the default of `group`.

        Raises:
            Refusal: 503 if there is no reward, or not yet; 422 if the reference failed; 400 if the request is invalid.
        """
        message = self._turn(problem, response, group or problem.id, sample, turn)
        key = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()
        if (known := self._known(key)) is not None:
            return known
        task = self._running.get(key)
        if task is None:
            if len(self._running) >= MAX_IN_FLIGHT:
                raise unavailable(f"{MAX_IN_FLIGHT} turns are running", retry_seconds=1.0)
            # A new id: the scheduler keeps the outcome of an id for a while, also if that was lost or cancelled.
            message.request.id = uuid.uuid4().hex
            task = self._running[key] = asyncio.create_task(self._stream.score(message))
            task.add_done_callback(lambda done: self._keep(key, done))
        await asyncio.wait({task}, timeout=within)
        if not task.done():
            raise unavailable(
                "the evaluation continues; send the same request again to get its reward", retry_seconds=1.0
            )
        try:
            return task.result()
        except NoRewardError as error:
            raise _no_reward(error) from error
        except KernelDynoError as error:
            raise refusal_of(error) from error
        except asyncio.CancelledError:
            raise unavailable("the gateway is shutting down") from None

    async def close(self) -> None:
        """Cancel all unfinished turns."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _turn(self, problem: Problem, response: str, group: str, sample: int, turn: int) -> Turn:
        try:
            request = problem.request(self._options)
        except ProblemError as error:
            raise bad_request(str(error)) from error
        message = Turn(group=group, sample=sample, turn_index=turn, request=request)
        # An empty response is an answer without code. Half a surrogate pair cannot be sent, so replace it.
        message.response_text = response.encode(errors="replace").decode() or " "
        return message

    def _known(self, key: str) -> StreamRewardsResponse | None:
        now = time.monotonic()
        while self._finished:
            oldest = next(iter(self._finished))
            if len(self._finished) <= KEEP_COUNT and now - self._finished[oldest][0] < KEEP_SECONDS:
                break
            del self._finished[oldest]
        return self._finished[key][1] if key in self._finished else None

    def _keep(self, key: str, task: asyncio.Task[StreamRewardsResponse]) -> None:
        del self._running[key]
        if not task.cancelled() and task.exception() is None:
            answer = task.result()
            answer.result.ClearField("logs")
            if answer.HasField("remeasured"):
                answer.remeasured.ClearField("logs")
            self._finished[key] = (time.monotonic(), answer)


def _no_reward(error: NoRewardError) -> Refusal:
    result = error.answers[0].result if error.answers else EvalResult()
    if result.outcome == EvalResult.REFERENCE_ERROR:
        return Refusal(422, f"the reference failed, so there is no reward; correct the problem: {result.message}")
    if result.outcome == EvalResult.PROBLEM_TOO_LARGE:
        return Refusal(422, f"the problem is too large for every device, so there is no reward: {result.message}")
    if callers_fault(result):
        return invalid_request(result)
    if result.outcome == EvalResult.CORRECT and counted_speedup(result).unmeasured:  # a retry would give the same
        return Refusal(422, str(error))
    return unavailable(result.message or str(error))
