"""Exceptions of the client. They describe the call; the fate of a candidate is an outcome in a result.

KernelDynoError              base; its subclasses in kerneldyno.rpc.errors are the errors that servers return:
│                            InvalidRequestError (names fields), EvaluationNotFoundError, IdReusedError,
│                            QueueFullError (retry_seconds), NoMatchingDeviceError, AlreadyFinishedError, ...
├── UnavailableError         the service cannot be reached; `outstanding` lists ids without a result
├── DeadlineExceededError    a call got no answer within its timeout
├── CandidateFilesError      the files at a path are no candidate (also a ValueError)
├── DuplicateIdError         two requests of one call have the same id (also a ValueError)
├── ClientClosedError        the client was closed while it was in use
├── NoRewardError            turns have no reward because infrastructure or a reference failed; `answers` says why
└── CallFailedError          any other status of a call; `status` says which
    └── WrongServiceError    the server at the address is not a scheduler
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import grpc
import grpc.aio

from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rpc import unreachable
from kerneldyno.rpc.credentials import NONE, Credentials
from kerneldyno.rpc.errors import (
    AddressError,
    AlreadyFinishedError,
    CredentialsError,
    EvaluationCancelledError,
    EvaluationNotFoundError,
    IdReusedError,
    InvalidRequestError,
    KernelDynoError,
    NodeNotFoundError,
    NodeStoppingError,
    NoMatchingDeviceError,
    PermissionDeniedError,
    QuarantineNotFoundError,
    QueueFullError,
    RateLimitedError,
    ShuttingDownError,
    StandbyError,
    UnauthenticatedError,
    from_rpc_error,
)
from kerneldyno.rpc.failover import NoneServesError
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse

__all__ = [
    "AddressError",
    "AlreadyFinishedError",
    "CallFailedError",
    "CandidateFilesError",
    "ClientClosedError",
    "CredentialsError",
    "DeadlineExceededError",
    "DuplicateIdError",
    "EvaluationCancelledError",
    "EvaluationNotFoundError",
    "IdReusedError",
    "InvalidRequestError",
    "KernelDynoError",
    "LocalServiceError",
    "NoMatchingDeviceError",
    "NoRewardError",
    "NodeNotFoundError",
    "NodeStoppingError",
    "PermissionDeniedError",
    "QuarantineNotFoundError",
    "QueueFullError",
    "RateLimitedError",
    "ShuttingDownError",
    "UnauthenticatedError",
    "UnavailableError",
    "WrongServiceError",
    "from_call",
    "is_temporary",
]


class UnavailableError(KernelDynoError):
    """The service cannot be reached, or was unreachable for longer than the client may wait."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"

    def __init__(self, message: str, outstanding: Sequence[str] = ()) -> None:
        count = len(outstanding)
        owed = f"; {count} result{'s are' if count > 1 else ' is'} outstanding" if count else ""
        super().__init__(message + owed)
        #: Ids of the requests that were taken and have no result. The scheduler may still finish them.
        self.outstanding = tuple(outstanding)


class DeadlineExceededError(KernelDynoError):
    """The call's timeout passed without an answer."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class CandidateFilesError(KernelDynoError, ValueError):
    """The files at a path are no candidate: a file has another kind or name, or none is the Python module."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "CANDIDATE_FILES"


class DuplicateIdError(KernelDynoError, ValueError):
    """An id was given to two requests of one call."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "DUPLICATE_ID"

    def __init__(self, id: str) -> None:
        super().__init__(f"two requests of this call have the id {id!r}")
        self.id = id


class ClientClosedError(KernelDynoError):
    """The client was closed, never opened, or opened in another event loop."""

    code = grpc.StatusCode.CANCELLED
    reason = "CLIENT_CLOSED"


def check_loop(what: str, loop: asyncio.AbstractEventLoop | None) -> None:
    """Raise ClientClosedError when called in another event loop than `loop`; such a call would never return."""
    if asyncio.get_running_loop() is not loop:
        text = f"the {what} was opened in another event loop; open one in this loop, or use kerneldyno.client.Client"
        raise ClientClosedError(text)


class NoRewardError(KernelDynoError):
    """Turns could not be evaluated, so they have no reward.

    Infrastructure failed even after retries, the reference failed, the turn is malformed, or the evaluator did not
    measure the time that the reward uses. These turns have no reward, which differs from a reward of 0: leave their
    samples out, or stop.
    """

    code = grpc.StatusCode.UNAVAILABLE
    reason = "NO_REWARD"

    def __init__(self, answers: Sequence[StreamRewardsResponse]) -> None:
        causes = Counter(_why_unpaid(answer) for answer in answers)
        listed = ", ".join(f"{count} x {cause}" for cause, count in causes.most_common())
        super().__init__(f"{len(answers)} turn{'s have' if len(answers) > 1 else ' has'} no reward: {listed}")
        #: The answers without a reward.
        self.answers = tuple(answers)


def _why_unpaid(answer: StreamRewardsResponse) -> str:
    verdict = answer.remeasured if answer.HasField("remeasured") else answer.result
    for measured in (answer.result, verdict):
        if measured.outcome == EvalResult.CORRECT and (counted := counted_speedup(measured)).unmeasured:
            return f"CORRECT (not timed {counted.words}, which is the time that counts: its evaluator is too old)"
    if verdict.outcome == EvalResult.INFRASTRUCTURE_ERROR:
        return f"{verdict.infrastructure_error.cause} ({verdict.infrastructure_error.detail[:200]})"
    return f"{EvalResult.Outcome.Name(verdict.outcome)} ({verdict.message[:200]})"


class LocalServiceError(KernelDynoError):
    """A scheduler or evaluator on this machine could not be started, or ended unexpectedly."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "LOCAL_SERVICE"


class CallFailedError(KernelDynoError):
    """A call ended with a status that has no class of its own here."""

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status


class WrongServiceError(CallFailedError):
    """The server at the address does not know the call: it is not a scheduler, or is older than this client."""


def from_call(error: grpc.aio.AioRpcError, address: str, credentials: Credentials = NONE) -> KernelDynoError:
    """Return the error for a failed call to the scheduler at `address`; `credentials` are what the client sent."""
    known = from_rpc_error(error)
    if isinstance(known, StandbyError):  # which waits for its turn: to the caller, nobody serves
        return UnavailableError(f"no scheduler serves at {address}: {known.message}")
    if known is not None:
        return known
    details = error.details() or ""
    if isinstance(error, NoneServesError):
        return UnavailableError(f"no scheduler serves at {address}: {details}")
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(f"cannot reach {address}: {unreachable.advice(details, credentials)} [{details}]")
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(f"{address} gave no answer within the call's timeout")
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        text = f"{address} does not serve this call ({details}): {unreachable.NOT_A_SCHEDULER}"
        return WrongServiceError(error.code(), text)
    return CallFailedError(error.code(), details)


def unreachable_for(
    address: str,
    credentials: Credentials,
    seconds: float,
    details: str,
    outstanding: Sequence[str] = (),
    report: str = "",
) -> UnavailableError:
    """Return the error for a scheduler unreachable for `seconds`.

    Args:
        address: where it was expected; it may be a list.
        credentials: what the client sent.
        seconds: for how long the client tried.
        details: gRPC's words on the last attempt.
        outstanding: ids of the requests without a result.
        report: what each of several addresses said; "" if there is one.
    """
    if report:
        return UnavailableError(f"no scheduler served at {address} for more than {seconds:g} s: {report}", outstanding)
    why = unreachable.advice(details, credentials)
    return UnavailableError(f"{address} was away for more than {seconds:g} s: {why} [{details}]", outstanding)


#: Status codes of a stream that ended for reasons unrelated to its contents. A server that stops may send CANCELLED.
_TEMPORARY_CODES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}


def is_temporary(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a stream broke for a temporary reason, not by refusal, so that a new one may work."""
    # A write that fails while the stream ends hides the server's status behind this one (grpc/grpc issue 36066).
    # A new stream shows which it was: a refusal is repeated, and is then visible.
    hidden = error.code() is grpc.StatusCode.INTERNAL and error.details() == "Internal error from Core"
    return hidden or error.code() in _TEMPORARY_CODES
