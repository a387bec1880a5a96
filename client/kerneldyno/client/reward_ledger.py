"""The ledger of a rewards() call or a RewardStream.

After a reconnect it sends every unanswered turn again, under the same id: the scheduler knows what it already has. If
an answer has no reward and another attempt may help, the turn is sent again under a fresh id; the caller sees one
answer, with the id of the turn that it gave.
"""

from __future__ import annotations

import uuid
from collections import deque

from kerneldyno.client.evaluation_ledger import expired_result, oversize_result
from kerneldyno.client.ledger import Ledger, take_ids
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.scoring import score
from kerneldyno.rpc.candidate_files import file_faults
from kerneldyno.rpc.turns import MAX_TURN_ID_CHARS
from kerneldyno.rpc.validation import MAX_SOURCE_BYTES
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsRequest, StreamRewardsResponse, Turn

#: Largest size of a message with several turns, far below the contract's limit: writing a message blocks the trainer's
#: event loop, and this keeps that short.
BATCH_BYTES = 512 * 1024

#: Causes after which another attempt may work: the client was disconnected, or an earlier call cancelled the same turn.
_RETRYABLE_CAUSES = frozenset({"CLIENT_GONE", "CANCELLED"})


class RewardLedger(Ledger[Turn, StreamRewardsResponse, StreamRewardsRequest, StreamRewardsResponse]):
    """Turns of one call until their rewards are in. `reward` has every field."""

    def __init__(self, client_id: str, reward: RewardSpec, retries: int) -> None:
        super().__init__(client_id)
        self._reward = reward
        self._retries = retries
        self._tries: dict[str, tuple[str, int]] = {}  # of turns sent again: the caller's id, and the attempts so far

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the ids, as the caller knows them, of the turns that it still waits for."""
        return tuple(self._tries.get(id, (id, 0))[0] for id in self._waiting)

    @property
    def finished(self) -> bool:
        """Return True if every turn is answered and every cancellation sent; the end of the stream confirms those."""
        return not self._waiting and not self._cancel

    def add(self, item: Turn) -> None:
        """Take a turn whose request has an id that is not in use in this call."""
        self._waiting[item.request.id] = item
        self._unsent.append(item.request.id)

    def cancel(self, id: str) -> bool:
        """Give up one turn, by the caller's id, and return whether the caller waited for it."""
        present = next((present for present, (first, _) in self._tries.items() if first == id), id)
        self._tries.pop(present, None)
        return super().cancel(present)

    def next_message(self) -> StreamRewardsRequest | None:
        """Return the next message to send, or None if there is nothing to send."""
        if not (self._cancel or self._unsent):
            return None
        # In every message, so that no stream can ever pay by another spec than the one given.
        message = StreamRewardsRequest(client_id=self._client_id, reward=self._reward)
        if self._cancel:
            message.cancel_ids.extend(take_ids(self._cancel))
        else:
            self._pack(message.turns, BATCH_BYTES)
        return message

    def reconnected(self) -> None:
        """Start over on a new stream: send everything unanswered, and the cancellations."""
        self._unsent = deque(self._waiting)
        self._cancel = deque(self._cancelling)

    def receive(self, response: StreamRewardsResponse) -> StreamRewardsResponse | None:
        """Process an answer. Return it if the caller waits for it and another attempt is not worthwhile."""
        self._cancelling.discard(response.id)
        turn = self._waiting.pop(response.id, None)  # an answer may arrive twice, before a stream broke and after
        if turn is None:
            return None
        first, tries = self._tries.pop(response.id, (response.id, 0))
        if not response.HasField("reward") and tries < self._retries and _another_try_may_help(response):
            again = Turn()
            again.CopyFrom(turn)
            again.request.id = _fresh_id(first)
            self._tries[again.request.id] = (first, tries + 1)
            self.add(again)
            return None
        response.id = first
        return response

    def abandon(self) -> list[Turn]:
        """Give up everything unanswered, and return it under the caller's ids."""
        given_up = super().abandon()
        for turn in given_up:
            turn.request.id = self._tries.pop(turn.request.id, (turn.request.id, 0))[0]
        return given_up

    def ended(self) -> None:
        """Note that the scheduler has read everything to the end."""
        self._cancelling.clear()

    def expired(self, item: Turn, timeout: float) -> StreamRewardsResponse:
        """Return the answer of a turn that had none when its call's deadline passed: without a reward."""
        return expired_answer(item, timeout)

    def oversize(self, item: Turn) -> StreamRewardsResponse:
        """Return the answer of a turn too large for a message: the reward of a failure if the policy wrote too much."""
        answer = _answer(item, oversize_result(item.request, item.ByteSize()))
        name, text = (
            ("response_text", item.response_text) if item.response_text else ("kernel_code", item.request.kernel_code)
        )
        if (size := len(text.encode())) > MAX_SOURCE_BYTES:
            violation = answer.result.invalid.violations[0]
            violation.field = name
            violation.description = f"is {size} bytes long; at most {MAX_SOURCE_BYTES} bytes (1 MiB) are allowed"
        elif fault := next(file_faults(item.request.kernel_files), None):
            violation = answer.result.invalid.violations[0]
            violation.field, violation.description = fault
        reward, parts = score(answer.result, self._reward)
        if reward is not None:
            answer.reward = reward
            answer.parts.CopyFrom(parts)
        answer.feedback = feedback(answer.result, limit=self._reward.feedback_chars)
        return answer


def expired_answer(turn: Turn, timeout: float) -> StreamRewardsResponse:
    """Return the answer of a turn that had none within `timeout` seconds: without a reward."""
    return _answer(turn, expired_result(turn.request, timeout))


def _answer(turn: Turn, result: EvalResult) -> StreamRewardsResponse:
    return StreamRewardsResponse(
        id=turn.request.id, group=turn.group, sample=turn.sample, turn_index=turn.turn_index, result=result
    )


def _another_try_may_help(answer: StreamRewardsResponse) -> bool:
    verdict = answer.remeasured if answer.HasField("remeasured") else answer.result
    evidence = verdict.infrastructure_error
    return verdict.outcome == EvalResult.INFRASTRUCTURE_ERROR and (
        evidence.retryable or evidence.cause in _RETRYABLE_CAUSES
    )


def _fresh_id(id: str) -> str:
    mark = f"~{uuid.uuid4().hex[:12]}"
    return id[: MAX_TURN_ID_CHARS - len(mark)] + mark
