"""Rewards for turns: a whole step's turns with rewards(), or one by one through a RewardStream.

Both are sessions (session.py) with a RewardLedger. An answer without a reward is never returned as if it had one: it is
an exception, or it is marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from kerneldyno.client.errors import ClientClosedError, DuplicateIdError, NoRewardError, check_loop
from kerneldyno.client.request_tracing import current
from kerneldyno.client.reward_ledger import expired_answer
from kerneldyno.client.session import Session
from kerneldyno.client.sources import prepared_turn
from kerneldyno.v1.evaluation_pb2 import EvalRequest, TraceContext
from kerneldyno.v1.reward_service_pb2 import StreamRewardsRequest, StreamRewardsResponse, Turn

OnMissing = Literal["raise", "yield"]
RewardSession = Session[Turn, StreamRewardsResponse, StreamRewardsRequest, StreamRewardsResponse]


def turn(
    group: str,
    sample: int,
    turn_index: int,
    *,
    reference_code: str,
    response_text: str = "",
    kernel_code: str = "",
    **request_fields: Any,
) -> Turn:
    """Make a Turn: a model's raw answer, or a candidate's source, against a reference.

    Args:
        group: name of the prompt.
        sample, turn_index: index of the sample in its group, and of the turn in its episode, from 0.
        reference_code: source of the reference.
        response_text: the model's raw answer; give this or `kernel_code`.
        kernel_code: the candidate's source.
        request_fields: further fields of EvalRequest, for example backend="cuda", or kernel_files for a candidate of
            several files.
    """
    request = EvalRequest(reference_code=reference_code, kernel_code=kernel_code, **request_fields)
    return Turn(group=group, sample=sample, turn_index=turn_index, request=request, response_text=response_text)


async def rewards_of(session: RewardSession, on_missing: OnMissing) -> AsyncGenerator[StreamRewardsResponse, None]:
    """Yield the answers of a session; raise those without a reward at the end, or yield them, as `on_missing` says."""
    missing = []
    async with aclosing(session.results()) as answers:
        async for answer in answers:
            if on_missing == "raise" and not answer.HasField("reward"):
                missing.append(answer)
            else:
                yield answer
    if missing:
        raise NoRewardError(missing)


@dataclass(slots=True, eq=False)
class _Score:
    """One call of score()."""

    turn: Turn
    answer: asyncio.Future[StreamRewardsResponse]
    trace: TraceContext | None
    id: str = ""


class RewardStream:
    """A gRPC stream for any number of turns, each scored by its own call. AsyncClient.reward_stream makes one.

    The first score() opens the stream, and the next one after a failure opens it again. Leaving the block cancels all
    outstanding turns.
    """

    def __init__(self, open_session: Callable[[AsyncIterator[Turn]], RewardSession], timeout: float | None) -> None:
        self._open_session = open_session
        self._timeout = timeout
        self._scores: set[_Score] = set()  # those still waiting
        self._by_id: dict[str, _Score] = {}  # of these, those that a session has taken
        self._inbox: asyncio.Queue[_Score] = asyncio.Queue()
        self._session: RewardSession | None = None
        self._serving: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def score(self, turn: Turn) -> StreamRewardsResponse:
        """Return the answer to `turn`, which has a reward. Cancelling this call cancels the turn.

        Any number of calls may wait at once; those beyond the client's window wait here.

        Raises:
            NoRewardError: infrastructure failed even after retries, the reference failed, `timeout` passed, or a field
                of the turn that the policy did not write is malformed.
            DuplicateIdError: another turn with the same id is waiting.
            ClientClosedError: the stream was closed meanwhile.
            UnavailableError, KernelDynoError: as for AsyncClient.rewards.
        """
        if self._closed:
            raise ClientClosedError("the reward stream is closed")
        if self._serving is not None:
            check_loop("reward stream", self._serving.get_loop())
        self._serve()
        score = _Score(turn, asyncio.get_running_loop().create_future(), current())
        self._scores.add(score)
        self._inbox.put_nowait(score)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await score.answer
        except TimeoutError:
            raise NoRewardError([expired_answer(prepared_turn(turn), self._timeout or 0.0)]) from None
        finally:
            self._scores.discard(score)
            if self._by_id.get(score.id) is score:
                del self._by_id[score.id]
                if score.answer.cancelled() and self._session is not None:
                    self._session.cancel(score.id)
        if not answer.HasField("reward"):
            raise NoRewardError([answer])
        return answer

    async def close(self) -> None:
        """Cancel all outstanding turns, and end the stream. Waiting score() calls get a ClientClosedError."""
        self._closed = True
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            if not self._serving.cancelled():
                self._serving.result()

    def _serve(self) -> None:
        if self._serving is None or self._serving.done():
            self._session = self._open_session(self._turns())
            self._serving = asyncio.create_task(self._distribute(self._session), name="kerneldyno-rewards")

    async def _turns(self) -> AsyncIterator[Turn]:
        # Turns are copied and named here, not in score(): hundreds of calls at once would block the event loop.
        while True:
            score = await self._inbox.get()
            if score.answer.done():  # the caller gave it up
                continue
            turn = prepared_turn(score.turn)
            if turn.request.id in self._by_id:
                score.answer.set_exception(DuplicateIdError(turn.request.id))
                continue
            if score.trace is not None and not turn.request.HasField("trace_context"):
                turn.request.trace_context.CopyFrom(score.trace)
            score.id = turn.request.id
            self._by_id[score.id] = score
            yield turn

    async def _distribute(self, session: RewardSession) -> None:
        why: Exception = ClientClosedError("the reward stream was closed")
        try:
            async with aclosing(session.results()) as answers:
                async for answer in answers:
                    score = self._by_id.get(answer.id)
                    if score is not None and not score.answer.done():
                        score.answer.set_result(answer)
        except Exception as error:
            why = error
        finally:
            for score in self._scores:
                if not score.answer.done():
                    score.answer.set_exception(why)
