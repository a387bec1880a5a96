"""One StreamRewards stream: an Evaluate stream between two translations.

Turns are translated to requests, and results to rewards. Queueing, merging, caching, durability, order and back-pressure are
those of EvaluateStream. An anomalously large speedup is held back until a second evaluation in the same stream has measured
it again. Request ids follow from the turns alone, so a client that sends its unanswered turns again, to this process or to
the next one, gets the same evaluations. The request of a turn is kept until the turn is answered.
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
from kerneldyno.rpc.profiles import decides_about_profile
from kerneldyno.rpc.trace_context import decode
from kerneldyno.rpc.turns import AGAIN, AGAIN_LABEL, TURN_LABELS, check_turn, turn_id
from kerneldyno.rpc.validation import MAX_SALT_CHARS, Violation, validate
from kerneldyno.scheduler.core.core import TICK_SECONDS
from kerneldyno.scheduler.core.model import ClientKind, Evaluation, Key
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.admission import Admission
from kerneldyno.scheduler.service.evaluate_stream import MAX_BATCH_BYTES, REUSED, EvaluateStream
from kerneldyno.scheduler.service.translate import infrastructure_result, requirement_of, submit_request_of
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsRequest, StreamRewardsResponse, Turn
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

MAX_TURNS = 1_000
#: Code is extracted from longer responses in a thread, because 1 MiB takes about 50 ms.
LARGE_RESPONSE_CHARS = 64 * 1024

Write = Callable[[StreamRewardsResponse], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _OpenTurn:
    """A turn that is not answered yet."""

    answer: StreamRewardsResponse
    """The answer, as far as it is known."""
    request: EvalRequest
    """The request that is evaluated."""
    reward: RewardSpec
    """The reward settings when the turn arrived; every field is set."""
    arrived_at: float
    """Time of arrival in seconds of the event loop's clock."""
    violations: list[Violation] = field(default_factory=list)
    """What is invalid in the turn itself. If there is anything, nothing is evaluated."""
    accepted_before: bool = False
    """True if it was accepted earlier, from this stream or another one."""
    cancelled: bool = False


class RewardStream:
    """One call of StreamRewards."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._stream = EvaluateStream(admission, self._check, ClientKind.REWARDS)
        self._client_id = ""
        self._reward = spec(DEFAULT_PRESET)
        self._open: dict[str, _OpenTurn] = {}
        """Unanswered turns by the id of their request: the turn's id, or a placeholder for an invalid turn."""
        self._placeholders = itertools.count()
        self._remeasurements: deque[EvalRequest] = deque()  # second evaluations to submit
        self._changed = asyncio.Event()  # a remeasurement was added, or a turn was answered

    async def run(self, messages: AsyncIterator[StreamRewardsRequest], write: Write) -> None:
        """Serve the stream to its end. `write` sends one response, and waits while the client does not read."""

        async def write_answer(response: EvaluateResponse) -> None:
            if response.HasField("journal_stalled"):
                await write(StreamRewardsResponse(journal_stalled=response.journal_stalled))
            if not response.HasField("result"):
                return
            turn = self._open[response.result.id.removesuffix(AGAIN)]
            if self._complete(turn, response.result):
                await write(turn.answer)
                del self._open[turn.request.id]  # only now, so that the same turn sent again meanwhile was recognised
                self._changed.set()

        async with aclosing(self._requests(messages)) as requests:
            await self._stream.run(requests, write_answer)

    # Turns from the client

    async def _requests(self, messages: AsyncIterator[StreamRewardsRequest]) -> AsyncGenerator[EvaluateRequest, None]:
        """Yield the requests for the Evaluate stream until all turns are answered, second evaluations first."""
        incoming: asyncio.Task[StreamRewardsRequest | None] | None = asyncio.ensure_future(_next(messages))
        try:
            while incoming is not None or self._open:
                self._changed.clear()
                while self._remeasurements:
                    yield EvaluateRequest(requests=[self._remeasurements.popleft()])
                if incoming is not None and incoming.done():
                    if (message := incoming.result()) is None:
                        incoming = None
                        continue
                    async for request in self._translated(message):
                        while self._remeasurements:  # a second evaluation must be submitted before it can be cancelled
                            yield EvaluateRequest(requests=[self._remeasurements.popleft()])
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
        yield EvaluateRequest(client_id=message.client_id)  # the Evaluate stream validates it first
        self._client_id = self._client_id or client_scope.stored_client_id(message.client_id)
        for cancel_id in message.cancel_ids:
            if (turn_to_cancel := self._open.get(cancel_id)) is not None:
                turn_to_cancel.cancelled = True
            yield EvaluateRequest(cancel_ids=[cancel_id, cancel_id + AGAIN])
        for turn in message.turns:
            if (request := await self._open_turn(turn)) is not None:
                yield EvaluateRequest(requests=[request])

    async def _open_turn(self, turn: Turn) -> EvalRequest | None:
        """Record the turn and return its request; None if it is open already."""
        arrived_at = asyncio.get_running_loop().time()
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
            before = self._admission.core.requests.get(Key(self._client_id, request.id))
            await self._decide_profiling(request, before)
            if (same := self._open.get(request.id)) is not None:
                if _untraced(same.request) == _untraced(request):
                    return None
                violations = [REUSED]
        if violations:
            request.id = f"\n{next(self._placeholders)}"  # no valid id begins with a newline
        self._open[request.id] = _OpenTurn(
            answer, request, self._reward, arrived_at, violations, accepted_before=before is not None
        )
        return request

    async def _extract(self, turn: Turn, request: EvalRequest, answer: StreamRewardsResponse) -> list[Violation]:
        """Extract the candidate from the response, and return what is invalid if there is none."""
        arguments = (turn.response_text, request.entry_point, request.toolkit)
        large = len(turn.response_text) > LARGE_RESPONSE_CHARS
        found = await asyncio.to_thread(extract, *arguments) if large else extract(*arguments)
        answer.extraction.CopyFrom(found)
        request.kernel_code = found.kernel_code
        if found.kernel_code:
            return []
        self._admission.metrics.extraction_failures.inc()
        return [Violation("response_text", f"contains no code: {found.note}")]

    async def _decide_profiling(self, request: EvalRequest, before: Evaluation | None) -> None:
        """Turn profiling on if the reward uses coverage and the fleet can profile, unless the turn sets it itself."""
        if decides_about_profile(request) or self._reward.coverage_weight == 0:
            return
        core = self._admission.core
        request.enable_profiling = True
        if before is not None:  # it was decided when the turn first arrived
            profiled = not _violations_alone(request) and self._fingerprint(request) == before.fingerprint
        else:
            # Soon after a start it is unknown what the fleet can do, and the decision has to wait.
            waited = 0.0
            while not core.capabilities.known() and waited < self._admission.settings.unmatched_seconds:
                await asyncio.sleep(TICK_SECONDS)
                waited += TICK_SECONDS
            profiled = core.capabilities.known() and core.fleet.offers.could_match(requirement_of(request))
        if not profiled:
            request.ClearField("enable_profiling")

    def _fingerprint(self, request: EvalRequest) -> bytes:
        return submit_request_of(request, self._client_id, ClientKind.REWARDS).fingerprint

    def _check(self, request: EvalRequest) -> list[Violation]:
        turn = self._open.get(request.id)
        if turn is None or turn.accepted_before:  # a second evaluation, or accepted earlier, perhaps by another fleet
            return _violations_alone(request)
        return turn.violations or self._admission.check(request)

    # Answers to the client

    def _complete(self, turn: _OpenTurn, result: EvalResult) -> bool:
        """Add a result to the answer. Return False if the turn must be measured again first."""
        if turn.answer.HasField("result"):
            turn.answer.remeasured.CopyFrom(result)
        else:
            result.id = turn.answer.id
            turn.answer.result.CopyFrom(result)
            if anomalous(result, turn.reward):
                if not turn.cancelled:
                    self._remeasure(turn)
                    return False
                again = infrastructure_result(turn.answer.id + AGAIN, "CANCELLED", "cancelled on request")
                turn.answer.remeasured.CopyFrom(again)
        self._add_reward(turn)
        return True

    def _remeasure(self, turn: _OpenTurn) -> None:
        request = turn.request
        again = EvalRequest()
        again.CopyFrom(request)
        again.id = request.id + AGAIN
        # It needs a run of its own: no other evaluation may answer it, and it may answer no other.
        again.skip_cache = True
        again.salt = request.salt[: MAX_SALT_CHARS - len(AGAIN)] + AGAIN
        again.labels[AGAIN_LABEL] = "true"
        first = self._admission.core.requests.get(Key(self._client_id, request.id))
        if not request.HasField("trace_context") and first is not None and (trace := decode(first.trace)) is not None:
            # No parent span covers both, so the second becomes a child of the first.
            again.trace_context.CopyFrom(trace.message)
        self._admission.metrics.remeasurements.inc()
        self._remeasurements.append(again)
        self._changed.set()

    def _add_reward(self, turn: _OpenTurn) -> None:
        answer = turn.answer
        remeasured = answer.remeasured if answer.HasField("remeasured") else None
        for verdict in (answer.result, remeasured):
            if turn.reward.speedup_kind and verdict is not None and verdict.speedup_kind:
                verdict.speedup_kind = turn.reward.speedup_kind  # the answer shows the kind that the reward is based on
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
        self._admission.metrics.turn_answered(outcome, reward, asyncio.get_running_loop().time() - turn.arrived_at)


def _check_message(message: StreamRewardsRequest) -> None:
    if len(message.turns) > MAX_TURNS:
        text = f"has {len(message.turns)} turns; at most {MAX_TURNS} are allowed in one message"
        raise errors.InvalidRequestError(violations=[Violation("turns", text)])
    if (size := message.ByteSize()) > MAX_BATCH_BYTES:
        text = f"the message has {size} bytes; at most {MAX_BATCH_BYTES} (12 MiB) are allowed"
        raise errors.InvalidRequestError(violations=[Violation("turns", text)])


def _violations_alone(request: EvalRequest) -> list[Violation]:
    """Return what is invalid in `request` on any fleet."""
    return validate(request, profiling=True)


def _label(request: EvalRequest, turn: Turn) -> None:
    for label, value in zip(TURN_LABELS, (turn.group, turn.sample, turn.turn_index), strict=True):
        request.labels[label] = str(value)


def _untraced(request: EvalRequest) -> EvalRequest:
    """Return `request` without its trace context."""
    if not request.HasField("trace_context"):
        return request
    plain = EvalRequest()
    plain.CopyFrom(request)
    plain.ClearField("trace_context")
    return plain


async def _next(messages: AsyncIterator[StreamRewardsRequest]) -> StreamRewardsRequest | None:
    return await anext(messages, None)


async def _either(changed: asyncio.Event, incoming: asyncio.Task[StreamRewardsRequest | None] | None) -> None:
    """Wait until `changed` is set or `incoming` is done."""
    told = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait({told, incoming} if incoming is not None else {told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
