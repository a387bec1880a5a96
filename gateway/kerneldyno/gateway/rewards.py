"""One response, one reward: what the trainers' routes and the environment share.

Turns go up one RewardStream. A turn that is sent again while it runs, or shortly after, is answered by the same evaluation:
trainers give up after a time of their own and then repeat the request, so the gateway answers 503 a little before that, lets
the turn run on, and has the reward ready when the request comes again.
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
from kerneldyno.gateway.refusals import Refusal, bad, malformed, refusal_of, unavailable
from kerneldyno.rewards.scoring import callers_fault
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rollout.problems import Problem, ProblemError
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse, Turn

#: How long an answer stays for those who ask again, in seconds, and how many do at most; without logs, some kilobytes each.
KEEP_SECONDS, KEEP_COUNT = 600.0, 5_000
#: Turns that may be under way at once; more are told to come back.
MAX_IN_FLIGHT = 2_048


class Rewards:
    """Scores responses over one reward stream.

    Parameters:
        stream: open for as long as this is used.
        options: fields of EvalRequest, in JSON form, for what a problem leaves open.
    """

    def __init__(self, stream: RewardStream, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._options = options
        self._running: dict[str, asyncio.Task[StreamRewardsResponse]] = {}
        #: Finished ones, oldest first: when, and the answer.
        self._finished: dict[str, tuple[float, StreamRewardsResponse]] = {}

    @property
    def in_flight(self) -> int:
        """Turns under way."""
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
        """Return the answer to a response; `within` bounds the wait, in seconds, not the evaluation.

        Raises:
            Refusal: 503 when there is no reward, or not yet; 422 when the reference failed; 400 for what cannot be sent.
        """
        message = self._turn(problem, response, group or problem.id, sample, turn)
        key = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()
        if (known := self._known(key)) is not None:
            return known
        task = self._running.get(key)
        if task is None:
            if len(self._running) >= MAX_IN_FLIGHT:
                raise unavailable(f"{MAX_IN_FLIGHT} turns are under way", retry_seconds=1.0)
            # An id that follows from the turn would, for a while, bring back how it was lost or cancelled before.
            message.request.id = uuid.uuid4().hex
            task = self._running[key] = asyncio.create_task(self._stream.score(message))
            task.add_done_callback(lambda done: self._keep(key, done))
        await asyncio.wait({task}, timeout=within)
        if not task.done():
            raise unavailable("the evaluation goes on; the same request again gets its reward", retry_seconds=1.0)
        try:
            return task.result()
        except NoRewardError as error:
            raise _no_reward(error) from error
        except KernelDynoError as error:
            raise refusal_of(error) from error
        except asyncio.CancelledError:
            raise unavailable("the gateway is shutting down") from None

    async def close(self) -> None:
        """Give up what is under way."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _turn(self, problem: Problem, response: str, group: str, sample: int, turn: int) -> Turn:
        try:
            request = problem.request(self._options)
        except ProblemError as error:
            raise bad(str(error)) from error
        message = Turn(group=group, sample=sample, turn_index=turn, request=request)
        # An empty one is an answer too, without code; and half a surrogate pair cannot be sent on.
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
        return Refusal(422, f"the reference failed, so there is no reward; mend the problem: {result.message}")
    if result.outcome == EvalResult.PROBLEM_TOO_LARGE:
        return Refusal(422, f"the problem is too large for every device here, so there is no reward: {result.message}")
    if callers_fault(result):
        return malformed(result)
    if result.outcome == EvalResult.CORRECT and counted_speedup(result).unmeasured:  # a repetition finds the same
        return Refusal(422, str(error))
    return unavailable(result.message or str(error))
