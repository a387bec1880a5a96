"""The bookkeeping of one call: packing, re-attachment, resubmission, cancellation. No I/O."""

from __future__ import annotations

import pytest

from kerneldyno.client.evaluation_ledger import EvaluationLedger
from kerneldyno.client.ledger import MAX_ITEM_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGE_IDS
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, EvaluateResponse

pytestmark = pytest.mark.pure


def ledger(*ids: str) -> EvaluationLedger:
    made = EvaluationLedger("me")
    for id in ids:
        made.add(EvalRequest(id=id, kernel_code="x"))
    return made


def messages(source: EvaluationLedger) -> list[EvaluateRequest]:
    found = []
    while (message := source.next_message()) is not None:
        found.append(message)
    return found


def ids(message: EvaluateRequest) -> list[str]:
    return [request.id for request in message.requests]


def result(id: str) -> EvaluateResponse:
    return EvaluateResponse(result=EvalResult(id=id, outcome=EvalResult.CORRECT))


def unknown(*ids: str) -> EvaluateResponse:
    return EvaluateResponse(unknown=EvaluateResponse.Unknown(ids=ids))


def test_requests_go_up_together_in_order_and_once() -> None:
    book = ledger("a", "b", "c")
    (message,) = messages(book)
    assert ids(message) == ["a", "b", "c"]
    assert message.client_id == "me"


def test_messages_are_bounded_by_count() -> None:
    book = ledger(*(f"r{i}" for i in range(2 * MAX_MESSAGE_IDS + 1)))
    assert [len(m.requests) for m in messages(book)] == [MAX_MESSAGE_IDS, MAX_MESSAGE_IDS, 1]


def test_messages_are_bounded_by_bytes() -> None:
    book = EvaluationLedger("me")
    for i in range(9):
        book.add(EvalRequest(id=f"r{i}", reference_code="r" * 2**20, kernel_code="k" * 2**20, cases_code="c" * 2**20))
    sent = messages(book)
    assert [i for m in sent for i in ids(m)] == [f"r{i}" for i in range(9)]
    assert len(sent) == 3
    assert all(m.ByteSize() <= MAX_MESSAGE_BYTES for m in sent)


def test_the_largest_request_fits_into_a_message() -> None:
    book = EvaluationLedger("c" * 100)
    request = EvalRequest(id="i" * 200)
    request.kernel_code = "k" * (MAX_ITEM_BYTES - request.ByteSize() - 10)
    while request.ByteSize() < MAX_ITEM_BYTES:
        request.kernel_code += "k"
    book.add(request)
    book.add(EvalRequest(id="small"))
    first, second = messages(book)
    assert first.ByteSize() <= MAX_MESSAGE_BYTES
    assert ids(second) == ["small"]


def test_a_result_is_delivered_once_and_only_if_it_was_asked_for() -> None:
    book = ledger("a")
    messages(book)
    assert book.receive(result("other")) is None
    delivered = book.receive(result("a"))
    assert delivered is not None
    assert delivered.id == "a"
    assert book.receive(result("a")) is None
    assert book.idle


def test_after_a_reconnect_what_was_sent_is_attached_and_what_was_not_is_sent() -> None:
    book = ledger("a", "b")
    messages(book)
    book.receive(result("a"))
    book.add(EvalRequest(id="c"))
    book.reconnected()
    attach, submit = messages(book)
    assert list(attach.attach_ids) == ["b"]
    assert ids(submit) == ["c"]


def test_what_the_scheduler_forgot_is_submitted_again_with_its_whole_body() -> None:
    book = ledger("a", "b")
    messages(book)
    book.reconnected()
    messages(book)
    book.receive(unknown("a", "stranger"))
    book.receive(unknown("a"))
    (again,) = messages(book)
    assert list(again.requests) == [EvalRequest(id="a", kernel_code="x")]
    assert book.waiting == ("a", "b")


def test_abandoned_work_is_cancelled_and_its_results_are_dropped() -> None:
    book = ledger("a")
    messages(book)
    book.add(EvalRequest(id="unsent"))
    assert [request.id for request in book.abandon()] == ["a", "unsent"]
    (message,) = messages(book)
    assert list(message.cancel_ids) == ["a"]
    assert not message.requests
    assert book.answered
    assert not book.idle
    assert book.receive(result("a")) is None
    assert book.idle


def test_a_cancellation_survives_a_reconnect_and_ends_when_the_scheduler_forgot() -> None:
    book = ledger("a")
    messages(book)
    book.abandon()
    messages(book)
    book.reconnected()
    (message,) = messages(book)
    assert list(message.attach_ids) == ["a"]
    assert list(message.cancel_ids) == ["a"]
    book.receive(unknown("a"))
    assert book.idle
    assert messages(book) == []
