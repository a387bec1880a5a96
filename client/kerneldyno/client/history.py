"""List the evaluations that a scheduler knows, page by page, as one iteration."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp

from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.scheduler_service_pb2 import Evaluation, ListEvaluationsRequest, ListEvaluationsResponse

#: Most ids of one CancelEvaluations call, from the contract.
MAX_CANCEL_IDS = 10_000

Outcome: TypeAlias = "EvalResult.Outcome.ValueType | str"  # the former exists in the stub's .pyi only


def listing(
    *,
    client_id: str,
    outcomes: Iterable[Outcome],
    unfinished: bool,
    labels: Mapping[str, str],
    accepted_after: datetime | None,
    accepted_before: datetime | None,
    digest: str,
    full_results: bool,
    page_size: int,
) -> ListEvaluationsRequest:
    """Return the request for the first page.

    Raises:
        ValueError: an outcome does not exist, or a time has no time zone.
    """
    return ListEvaluationsRequest(
        page_size=page_size,
        client_id=client_id,
        outcomes=[EvalResult.Outcome.Value(one) if isinstance(one, str) else one for one in outcomes],
        unfinished=unfinished,
        labels=labels,
        accepted_after=_timestamp(accepted_after),
        accepted_before=_timestamp(accepted_before),
        digest=digest,
        full_results=full_results,
    )


async def pages(
    request: ListEvaluationsRequest, ask: Callable[[ListEvaluationsRequest], Awaitable[ListEvaluationsResponse]]
) -> AsyncGenerator[Evaluation, None]:
    """Yield the evaluations of every page. The next page is fetched when the caller has taken all of the last."""
    while True:
        page = await ask(request)
        for evaluation in page.evaluations:
            yield evaluation
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone; give one, for example datetime.now(UTC)")
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp
