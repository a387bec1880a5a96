"""One StreamRewards stream: an Evaluate stream between two translations.

Turns become requests on the way up, and results become rewards on the way down; queueing, merging, caching, durability,
order and back-pressure are EvaluateStream's. A speedup that is too good is held back until a second evaluation, which goes
up the same stream, has measured it again. Everything here follows from the turns themselves, so that a client that sends
its unanswered turns again, to this process or to the next one, gets the same evaluations. The request of a turn is kept
until the turn is answered.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from kerneldyno.rewards.extraction import extract
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.presets import DEFAULT_PRESET, effective, spec
from kerneldyno.rewards.scoring import anomalous, score
from kerneldyno.rpc import errors
from kerneldyno.rpc.trace_context import decode
from kerneldyno.rpc.turns import AGAIN, AGAIN_LABEL, TURN_LABELS, check_turn, turn_id
from kerneldyno.rpc.validation import MAX_SALT_CHARS, Violation, validate
from kerneldyno.scheduler import scope
from kerneldyno.scheduler.core import TICK_SECONDS
from kerneldyno.scheduler.desk import Desk
from kerneldyno.scheduler.model import ClientKind, Evaluation, Key
from kerneldyno.scheduler.stream import MAX_BATCH_BYTES, REUSED, EvaluateStream
from kerneldyno.scheduler.translate import infrastructure_result, order_of, requirement_of
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsRequest, StreamRewardsResponse, Turn
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

MAX_TURNS = 1_000
#: A longer response is searched beside the event loop: a mebibyte takes some 50 ms.
LARGE_RESPONSE_CHARS = 64 * 1024

Write = Callable[[StreamRewardsResponse], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _OpenTurn:
    """A turn without an answer."""

    answer: StreamRewardsResponse
    """As far as it is known."""
    request: EvalRequest
    """What is evaluated."""
    reward: RewardSpec
    """In force when the turn came; every field is given."""
    came: float
    """When, by the event loop's clock."""
    violations: list[Violation] = field(default_factory=list)
    """Of the turn itself: nothing is evaluated then."""
    known: bool = False
    """Whether it was accepted before, from this stream or an earlier one."""
    cancelled: bool = False


class RewardStream:
    """One call of StreamRewards."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stream = EvaluateStream(desk, self._check, ClientKind.REWARDS)
        self._client_id = ""
        self._reward = spec(DEFAULT_PRESET)
        self._open: dict[str, _OpenTurn] = {}
        """By the id of the request: the turn's own; that of a turn which cannot be evaluated is made up."""
        self._made_up = itertools.count()
        self._again: deque[EvalRequest] = deque()  # second measurements that are to go up
        self._changed = asyncio.Event()  # one was added, or a turn was answered

    async def run(self, messages: AsyncIterator[StreamRewardsRequest], write: Write) -> None:
        """Serve the stream to its end. `write` sends one response down, and waits while the client does not read."""

        async def write_answer(response: EvaluateResponse) -> None:
            if response.HasField("journal_stalled"):
                await write(StreamRewardsResponse(journal_stalled=response.journal_stalled))
            if not response.HasField("result"):
                return
            turn = self._open[response.result.id.removesuffix(AGAIN)]
            if self._complete(turn, response.result):
                await write(turn.answer)
                del self._open[turn.request.id]  # not before: the same turn, coming again by now, has its answer
                self._changed.set()

        async with aclosing(self._requests(messages)) as requests:
            await self._stream.run(requests, write_answer)

    # Up

    async def _requests(self, messages: AsyncIterator[StreamRewardsRequest]) -> AsyncGenerator[EvaluateRequest, None]:
        """Give the Evaluate stream what the client sent, and second measurements before it, until all is answered."""
        incoming: asyncio.Task[StreamRewardsRequest | None] | None = asyncio.ensure_future(_next(messages))
        try:
            while incoming is not None or self._open:
                self._changed.clear()
                while self._again:
                    yield EvaluateRequest(requests=[self._again.popleft()])
                if incoming is not None and incoming.done():
                    if (message := incoming.result()) is None:
                        incoming = None
                        continue
                    async for request in self._translated(message):
                        while self._again:  # what is to be cancelled has to be there
                            yield EvaluateRequest(requests=[self._again.popleft()])
                        yield request
                    incoming = asyncio.ensure_future(_next(messages))
                await _either(self._changed, incoming)
        finally:
            if incoming is not None:
                incoming.cancel()

    async def _translated(self, message: StreamRewardsRequest) -> AsyncIterator[EvaluateRequest]:
        _check_message(message)
        if message.HasField("reward"):
            self._reward = effective(message.reward)
        yield EvaluateRequest(client_id=message.client_id)  # is checked before anything else is done
        self._client_id = self._client_id or scope.own(message.client_id)
        for cancel_id in message.cancel_ids:
            if (given_up := self._open.get(cancel_id)) is not None:
                given_up.cancelled = True
            yield EvaluateRequest(cancel_ids=[cancel_id, cancel_id + AGAIN])
        for turn in message.turns:
            if (request := await self._take(turn)) is not None:
                yield EvaluateRequest(requests=[request])

    async def _take(self, turn: Turn) -> EvalRequest | None:
        """Note the turn and return its request; None when it is open already."""
        came = asyncio.get_running_loop().time()
        answer = StreamRewardsResponse(
            id=turn_id(turn), group=turn.group, sample=turn.sample, turn_index=turn.turn_index
        )
        violations = check_turn(turn)
        request = EvalRequest()
        request.CopyFrom(turn.request)
        request.id = answer.id
        if turn.response_text and not violations:
            violations = await self._extract(turn, request, answer)
        before = None
        if not violations:
            _label(request, turn)
            before = self._desk.core.get(Key(self._client_id, request.id))
            await self._decide_profiling(request, before)
            if (same := self._open.get(request.id)) is not None:
                if _untraced(same.request) == _untraced(request):
                    return None
                violations = [REUSED]
        if violations:
            request.id = f"\n{next(self._made_up)}"  # no valid id is like it
        self._open[request.id] = _OpenTurn(answer, request, self._reward, came, violations, known=before is not None)
        return request

    async def _extract(self, turn: Turn, request: EvalRequest, answer: StreamRewardsResponse) -> list[Violation]:
        """Take the candidate out of the response."""
        arguments = (turn.response_text, request.entry_point, request.toolkit)
        large = len(turn.response_text) > LARGE_RESPONSE_CHARS
        found = await asyncio.to_thread(extract, *arguments) if large else extract(*arguments)
        answer.extraction.CopyFrom(found)
        request.kernel_code = found.kernel_code
        if found.kernel_code:
            return []
        self._desk.metrics.extraction_failures.inc()
        return [Violation("response_text", f"holds no code: {found.note}")]

    async def _decide_profiling(self, request: EvalRequest, before: Evaluation | None) -> None:
        """Have a turn profiled when its reward asks for coverage, where the fleet can, unless the turn itself says."""
        if request.HasField("enable_profiling") or self._reward.coverage_weight == 0:
            return
        core = self._desk.core
        request.enable_profiling = True
        if before is not None:  # it was decided when the turn first came
            profiled = not _check_alone(request) and order_of(request).fingerprint == before.fingerprint
        else:
            # Soon after a start nobody knows what the fleet can do: a reward that depends on it has to wait.
            waited = 0.0
            while not core.knows_fleet() and waited < self._desk.settings.unmatched_seconds:
                await asyncio.sleep(TICK_SECONDS)
                waited += TICK_SECONDS
            profiled = core.knows_fleet() and core.fleet.could_offer(requirement_of(request))
        if not profiled:
            request.ClearField("enable_profiling")

    def _check(self, request: EvalRequest) -> list[Violation]:
        turn = self._open.get(request.id)
        if turn is None or turn.known:  # a second measurement, or accepted before: the fleet may have been another then
            return _check_alone(request)
        return turn.violations or self._desk.check(request)

    # Down

    def _complete(self, turn: _OpenTurn, result: EvalResult) -> bool:
        """Take a result; say whether the turn has its answer, or has to be measured again first."""
        if turn.answer.HasField("result"):
            turn.answer.remeasured.CopyFrom(result)
        else:
            result.id = turn.answer.id
            turn.answer.result.CopyFrom(result)
            if anomalous(result, turn.reward):
                if not turn.cancelled:
                    self._measure_again(turn)
                    return False
                again = infrastructure_result(turn.answer.id + AGAIN, "CANCELLED", "cancelled on request")
                turn.answer.remeasured.CopyFrom(again)
        self._pay(turn)
        return True

    def _measure_again(self, turn: _OpenTurn) -> None:
        request = turn.request
        again = EvalRequest()
        again.CopyFrom(request)
        again.id = request.id + AGAIN
        # Neither a stored nor a running evaluation may answer, and this one shall answer for no other.
        again.skip_cache = True
        again.salt = request.salt[: MAX_SALT_CHARS - len(AGAIN)] + AGAIN
        again.labels[AGAIN_LABEL] = "true"
        first = self._desk.core.get(Key(self._client_id, request.id))
        if not request.HasField("trace_context") and first is not None and (trace := decode(first.trace)) is not None:
            again.trace_context.CopyFrom(trace.message)  # nobody above knows of both, so one is below the other
        self._desk.metrics.remeasurements.inc()
        self._again.append(again)
        self._changed.set()

    def _pay(self, turn: _OpenTurn) -> None:
        answer = turn.answer
        remeasured = answer.remeasured if answer.HasField("remeasured") else None
        for verdict in (answer.result, remeasured):
            if turn.reward.speedup_kind and verdict is not None and verdict.speedup_kind:
                verdict.speedup_kind = turn.reward.speedup_kind  # what is paid counts for whoever reads the answer
        reward, parts = score(answer.result, turn.reward, remeasured)
        if reward is not None:
            answer.reward = reward
            answer.parts.CopyFrom(parts)
        answer.feedback = feedback(
            answer.result,
            limit=turn.reward.feedback_chars,
            extraction=answer.extraction if answer.HasField("extraction") else None,
            remeasured=remeasured,
        )
        outcome = EvalResult.Outcome.Name((remeasured or answer.result).outcome)
        self._desk.metrics.turn_answered(outcome, reward, asyncio.get_running_loop().time() - turn.came)


def _check_message(message: StreamRewardsRequest) -> None:
    if len(message.turns) > MAX_TURNS:
        text = f"has {len(message.turns)} turns; at most {MAX_TURNS} a message are allowed"
        raise errors.InvalidRequestError(violations=[Violation("turns", text)])
    if (size := message.ByteSize()) > MAX_BATCH_BYTES:
        text = f"the message has {size} bytes; at most {MAX_BATCH_BYTES} (12 MiB) are allowed"
        raise errors.InvalidRequestError(violations=[Violation("turns", text)])


def _check_alone(request: EvalRequest) -> list[Violation]:
    """Return what is wrong with `request`, whatever the fleet offers."""
    return validate(request, profiling=True)


def _label(request: EvalRequest, turn: Turn) -> None:
    for label, value in zip(TURN_LABELS, (turn.group, turn.sample, turn.turn_index), strict=True):
        request.labels[label] = str(value)


def _untraced(request: EvalRequest) -> EvalRequest:
    """Return what is asked for, whichever trace it is in."""
    if not request.HasField("trace_context"):
        return request
    plain = EvalRequest()
    plain.CopyFrom(request)
    plain.ClearField("trace_context")
    return plain


async def _next(messages: AsyncIterator[StreamRewardsRequest]) -> StreamRewardsRequest | None:
    return await anext(messages, None)


async def _either(changed: asyncio.Event, incoming: asyncio.Task[StreamRewardsRequest | None] | None) -> None:
    """Wait until one of the two comes about."""
    told = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait({told, incoming} if incoming is not None else {told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
