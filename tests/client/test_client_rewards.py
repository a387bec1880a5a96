"""The bookkeeping of rewards() and RewardStream: packing, sending again, retries, cancellation. No I/O."""

from __future__ import annotations

import pytest

from kerneldyno.client import EvalResult, NoRewardError, StreamRewardsResponse, Turn, turn
from kerneldyno.client.ledger import MAX_ITEM_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGE_IDS
from kerneldyno.client.reward_ledger import BATCH_BYTES, RewardLedger
from kerneldyno.client.sources import prepared_turn
from kerneldyno.rewards.presets import spec
from kerneldyno.rpc.turns import MAX_TURN_ID_CHARS
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_END_TO_END
from kerneldyno.v1.reward_service_pb2 import StreamRewardsRequest

pytestmark = pytest.mark.pure

REWARD = spec("tiers")


def one(id: str, code: str = "x") -> Turn:
    return turn("g", 1, 2, reference_code="r", kernel_code=code, id=id)


def ledger(*ids: str, retries: int = 1) -> RewardLedger:
    made = RewardLedger("me", REWARD, retries)
    for id in ids:
        made.add(one(id))
    return made


def messages(source: RewardLedger) -> list[StreamRewardsRequest]:
    found = []
    while (message := source.next_message()) is not None:
        found.append(message)
    return found


def ids(source: RewardLedger) -> list[str]:
    return [turn.request.id for message in messages(source) for turn in message.turns]


def rewarded(id: str) -> StreamRewardsResponse:
    return StreamRewardsResponse(id=id, reward=1.0)


def failed(id: str, cause: str = "NODE_LOST", *, retryable: bool = True) -> StreamRewardsResponse:
    answer = StreamRewardsResponse(id=id, result=EvalResult(outcome=EvalResult.INFRASTRUCTURE_ERROR))
    answer.result.infrastructure_error.cause = cause
    answer.result.infrastructure_error.retryable = retryable
    return answer


def test_every_message_says_who_sends_it_and_how_it_is_paid() -> None:
    book = ledger(*(f"t{i}" for i in range(MAX_MESSAGE_IDS + 1)))
    sent = messages(book)
    assert [len(message.turns) for message in sent] == [MAX_MESSAGE_IDS, 1]
    assert all((message.client_id, message.reward) == ("me", REWARD) for message in sent)


def test_messages_are_small_enough_not_to_hold_up_an_event_loop() -> None:
    book = ledger()
    for i in range(10):
        book.add(one(f"t{i}", "k" * 100_000))
    book.add(one("large", "k" * (MAX_ITEM_BYTES - 1000)))
    sent = messages(book)
    assert max(message.ByteSize() for message in sent[:-1]) <= BATCH_BYTES
    assert [turn.request.id for turn in sent[-1].turns] == ["large"]
    assert sent[-1].ByteSize() <= MAX_MESSAGE_BYTES


def test_after_a_reconnect_everything_unanswered_is_sent_again_in_order() -> None:
    book = ledger("a", "b")
    messages(book)
    assert book.receive(rewarded("a")) is not None
    book.add(one("c"))
    book.reconnected()
    assert ids(book) == ["b", "c"]


def test_an_answer_is_delivered_once_and_only_if_it_was_asked_for() -> None:
    book = ledger("a")
    messages(book)
    assert book.receive(rewarded("other")) is None
    assert book.receive(rewarded("a")) is not None
    assert book.receive(rewarded("a")) is None
    assert book.idle


def test_a_turn_that_infrastructure_failed_is_sent_again_and_answered_under_its_own_id() -> None:
    book = ledger("a", retries=2)
    seen = set()
    for _ in range(2):
        (sent,) = ids(book)
        seen.add(sent)
        assert book.receive(failed(sent)) is None
        assert book.waiting == ("a",)
    (last,) = ids(book)
    assert len(seen | {last}) == 3
    delivered = book.receive(failed(last))
    assert delivered is not None
    assert delivered.id == "a"
    assert book.idle


@pytest.mark.parametrize(
    ("cause", "retryable", "again"),
    [("JUDGE_DIED", True, True), ("POISON", False, False), ("CLIENT_GONE", False, True), ("CANCELLED", False, True)],
)
def test_only_what_may_help_is_tried_again(cause: str, retryable: bool, again: bool) -> None:
    book = ledger("a")
    messages(book)
    assert (book.receive(failed("a", cause, retryable=retryable)) is None) == again


def test_a_second_measurement_that_failed_is_tried_again_and_a_broken_reference_is_not() -> None:
    book = ledger("a", "b")
    messages(book)
    again = StreamRewardsResponse(id="a", remeasured=failed("a").result)
    again.result.outcome = EvalResult.CORRECT
    assert book.receive(again) is None
    assert (
        book.receive(StreamRewardsResponse(id="b", result=EvalResult(outcome=EvalResult.REFERENCE_ERROR))) is not None
    )


def test_an_id_for_another_try_is_never_too_long() -> None:
    book = RewardLedger("me", REWARD, retries=1)
    book.add(one("i" * MAX_TURN_ID_CHARS))
    messages(book)
    book.receive(failed("i" * MAX_TURN_ID_CHARS))
    (again,) = ids(book)
    assert len(again) == MAX_TURN_ID_CHARS


def test_one_turn_is_given_up_sent_or_not_or_on_its_second_try() -> None:
    book = ledger("sent")
    messages(book)
    book.add(one("unsent"))
    assert book.cancel("unsent")
    assert book.cancel("sent")
    assert not book.cancel("unknown")
    (message,) = messages(book)
    assert (list(message.cancel_ids), list(message.turns)) == (["sent"], [])
    assert not book.idle, "its end is not confirmed"
    assert book.receive(failed("sent", "CANCELLED")) is None
    assert book.idle

    book.add(one("again"))
    messages(book)
    book.receive(failed("again"))
    (fresh,) = ids(book)
    assert book.cancel("again")
    (message,) = messages(book)
    assert list(message.cancel_ids) == [fresh]


def test_what_is_abandoned_is_cancelled_and_the_end_of_the_stream_confirms_it() -> None:
    book = ledger("a", "b")
    messages(book)
    book.receive(failed("b"))
    (fresh,) = ids(book)
    book.add(one("unsent"))
    assert [turn.request.id for turn in book.abandon()] == ["a", "b", "unsent"], "as the caller knows them"
    assert (book.answered, book.finished, book.idle) == (True, False, False)
    book.reconnected()
    (message,) = messages(book)
    assert (set(message.cancel_ids), list(message.turns)) == ({"a", fresh}, [])
    assert (book.finished, book.idle) == (True, False)
    book.ended()
    assert book.idle


def test_answers_of_the_clients_own_pay_nothing_or_what_a_failure_pays() -> None:
    book = ledger()
    late = book.expired(one("a"), 3.0)
    assert (late.id, late.group, late.sample, late.turn_index) == ("a", "g", 1, 2)
    assert not late.HasField("reward")
    assert late.result.infrastructure_error.cause == "DEADLINE_EXCEEDED"
    large = book.oversize(one("b", "k" * (MAX_ITEM_BYTES + 1)))
    assert (large.reward, large.parts.fixed) == (REWARD.failure_reward, REWARD.failure_reward)
    assert large.result.outcome == EvalResult.INVALID
    ours = one("c")
    ours.request.reference_code = "r" * (MAX_ITEM_BYTES + 1)
    assert not book.oversize(ours).HasField("reward"), "the policy did not write the reference"
    assert large.feedback.startswith("INVALID: your program is "), large.feedback
    assert "kernel_code" not in large.feedback


def test_a_turn_is_copied_and_named_by_its_contents() -> None:
    given = turn("g", 0, 0, reference_code="r", response_text="x")
    first, second = prepared_turn(given), prepared_turn(given)
    assert given.request.id == ""
    assert first.request.id == second.request.id
    assert first.request.id != prepared_turn(turn("g", 0, 0, reference_code="r", response_text="y")).request.id
    assert prepared_turn(one("mine")).request.id == "mine"


def test_the_exception_counts_the_causes() -> None:
    reference = StreamRewardsResponse(id="c", result=EvalResult(outcome=EvalResult.REFERENCE_ERROR, message="no torch"))
    error = NoRewardError([failed("a"), failed("b"), reference])
    assert "3 turns have no reward: 2 x NODE_LOST (), 1 x REFERENCE_ERROR (no torch)" in str(error)
    assert [answer.id for answer in error.answers] == ["a", "b", "c"]


def test_the_error_says_when_the_time_that_is_paid_was_not_measured() -> None:
    told = "not timed end to end, which is the time that counts: its evaluator is too old"
    older, newer = (StreamRewardsResponse(id=id) for id in "ab")
    for verdict in (older.result, newer.result, newer.remeasured):
        verdict.outcome, verdict.message = EvalResult.CORRECT, "all outputs of 5 trials are right"
        verdict.speedup_kind = SPEEDUP_KIND_END_TO_END
        verdict.candidate_timing.median_seconds = 1e-3
    assert f"1 turn has no reward: 1 x CORRECT ({told})" in str(NoRewardError([older]))
    newer.result.candidate_end_to_end.median_seconds = 2e-3
    assert told in str(NoRewardError([newer])), "the second measurement lacks it"
    newer.remeasured.candidate_end_to_end.median_seconds = 2e-3
    assert "all outputs of 5 trials are right" in str(NoRewardError([newer]))
