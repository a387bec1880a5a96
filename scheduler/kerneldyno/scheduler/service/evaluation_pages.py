"""ListEvaluations: pages of the stored evaluations, newest first."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass

from kerneldyno.rpc import errors
from kerneldyno.rpc.validation import Violation
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.ports import Filter, Store
from kerneldyno.scheduler.core.records import StoredEvaluation
from kerneldyno.scheduler.service import client_scope
from kerneldyno.scheduler.service.translate import evaluation_of
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import scheduler_service_pb2 as pb

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
#: Bytes of evaluations in one page. Full results may be large, and the size of a message is limited.
PAGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A valid request for one page."""

    which: Filter
    before: int | None
    size: int
    full_results: bool
    filter_digest: str
    """Digest of the filters. A page token is only valid for the filters that it was made for."""


def parse(request: pb.ListEvaluationsRequest) -> PageRequest:
    """Validate and translate a request.

    Raises:
        InvalidRequestError: A field is invalid.
    """
    violations = []
    if not 0 <= request.page_size <= MAX_PAGE:
        violations.append(
            Violation("page_size", f"is {request.page_size}; it must be 1 to {MAX_PAGE}, or 0 for the default")
        )
    known = evaluation_pb2.EvalResult.Outcome.values()
    for index, outcome in enumerate(request.outcomes):
        if outcome not in known or not outcome:
            violations.append(Violation(f"outcomes[{index}]", f"{outcome} is not the outcome of a finished evaluation"))
    digest = b""
    try:
        digest = bytes.fromhex(request.digest)
    except ValueError:
        violations.append(Violation("digest", "is not hexadecimal"))
    filters = pb.ListEvaluationsRequest()
    filters.CopyFrom(request)
    for name in ("page_size", "page_token", "full_results"):
        filters.ClearField(name)
    filter_digest = hashlib.sha256(filters.SerializeToString(deterministic=True)).hexdigest()[:12]
    times: dict[str, float | None] = {}
    for name in ("accepted_after", "accepted_before"):
        try:
            times[name] = _wall(request, name)
        except ValueError:
            violations.append(Violation(name, "is not a time between the years 1 and 9999"))
    before = None
    if request.page_token:
        before = _read_token(request.page_token, filter_digest)
        if before is None:
            violations.append(
                Violation("page_token", "does not belong to these filters; start again without a page_token")
            )
    if violations:
        raise errors.InvalidRequestError(violations=violations)
    which = Filter(
        client_id=client_scope.possible_client_ids(request.client_id)[-1] if request.client_id else "",
        share=client_scope.visible_share(),
        outcomes=frozenset(evaluation_pb2.EvalResult.Outcome.Name(outcome) for outcome in request.outcomes),
        unfinished=request.unfinished,
        labels=tuple(sorted(request.labels.items())),
        accepted_from_wall=times["accepted_after"],
        accepted_before_wall=times["accepted_before"],
        digest=digest,
    )
    return PageRequest(which, before, request.page_size or DEFAULT_PAGE, request.full_results, filter_digest)


def find(store: Store, asked: PageRequest) -> list[StoredEvaluation]:
    """Return the evaluations of a page, and one more if there is a next page. May be called in any thread."""
    return store.list(asked.which, asked.before, asked.size + 1)


def response(core: Core, found: list[StoredEvaluation], asked: PageRequest) -> pb.ListEvaluationsResponse:
    """Return one page of what `find` returned."""
    page = pb.ListEvaluationsResponse()
    size = 0
    for index, stored in enumerate(found):
        if index == asked.size or size >= PAGE_BYTES:
            page.next_page_token = _token(found[index - 1].number, asked.filter_digest)
            break
        message = evaluation_of(core.requests.current(stored), full_result=asked.full_results)
        size += message.ByteSize()
        page.evaluations.append(message)
    return page


def _wall(request: pb.ListEvaluationsRequest, name: str) -> float | None:
    return getattr(request, name).ToNanoseconds() / 10**9 if request.HasField(name) else None  # type: ignore[arg-type]


def _token(number: int, filter_digest: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([number, filter_digest]).encode()).decode()


def _read_token(token: str, filter_digest: str) -> int | None:
    try:
        number, its_digest = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, RecursionError):
        return None
    return number if its_digest == filter_digest and isinstance(number, int) and 0 <= number < 2**63 else None
