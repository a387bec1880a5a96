"""Errors of a call, one class per reason, and their form on the wire.

Services raise these. The interceptor turns them into a gRPC status with `ErrorInfo` (and `BadRequest`, `RetryInfo`)
details; clients turn such a status back into an error with `from_rpc_error`. These errors describe the call only: the
fate of a candidate is never an error, but an outcome in a result.

    KernelDynoError
    ├── InvalidRequestError      INVALID_ARGUMENT     names each bad field
    ├── EvaluationNotFoundError  NOT_FOUND
    ├── AttemptNotFoundError     NOT_FOUND            unknown or stale token
    ├── IdReusedError            ALREADY_EXISTS       same id, other body
    ├── TokenInUseError          ALREADY_EXISTS
    ├── NodeIdInUseError         ALREADY_EXISTS
    ├── NodeNotFoundError        NOT_FOUND
    ├── NotSynchronizedError     FAILED_PRECONDITION  synchronize, then open the Work stream
    ├── StreamReplacedError      ABORTED              the same node opened a newer Work stream
    ├── NodeStoppingError        FAILED_PRECONDITION
    ├── QuarantineNotFoundError  NOT_FOUND
    ├── JournalStalledError      UNAVAILABLE          says when to retry
    ├── QueueFullError           RESOURCE_EXHAUSTED   says when to retry
    ├── LanesFullError           RESOURCE_EXHAUSTED   says when to retry
    ├── NoMatchingDeviceError    FAILED_PRECONDITION
    ├── AlreadyFinishedError     FAILED_PRECONDITION
    ├── ShuttingDownError        UNAVAILABLE          says when to retry
    ├── StandbyError             UNAVAILABLE          says which scheduler serves, if it knows
    ├── EvaluationCancelledError CANCELLED            the awaited evaluation was cancelled
    ├── UnauthenticatedError     UNAUTHENTICATED      no token, or an unknown one
    ├── PermissionDeniedError    PERMISSION_DENIED    the token does not have the role
    ├── RateLimitedError         RESOURCE_EXHAUSTED   says when to retry
    ├── CredentialsError         FAILED_PRECONDITION  files or settings; raised locally, never sent
    └── AddressError             INVALID_ARGUMENT     invalid address; raised locally, never sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import grpc
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from kerneldyno.rpc.validation import Violation

#: `ErrorInfo.domain` of every error.
DOMAIN = "kerneldyno"

#: Limits of a status: its text (characters) and its list of fields (bytes). gRPC replaces a status over 16 KiB by an
#: unrelated RESOURCE_EXHAUSTED, and the real code is lost.
MAX_MESSAGE_CHARS = 1_000
MAX_DETAILS_BYTES = 4_096


class KernelDynoError(Exception):
    """Base of all errors of a call."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN
    reason: ClassVar[str] = "UNKNOWN"

    def __init__(self, message: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_seconds = retry_seconds


class InvalidRequestError(KernelDynoError):
    """The request is malformed or exceeds a published limit."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"

    def __init__(
        self, message: str = "", *, violations: Sequence[Violation] = (), retry_seconds: float | None = None
    ) -> None:
        super().__init__(
            message or "; ".join(f"{v.field}: {v.description}" for v in violations), retry_seconds=retry_seconds
        )
        self.violations = tuple(violations)


class EvaluationNotFoundError(KernelDynoError):
    """No evaluation has this id, or the scheduler no longer keeps its result."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "EVALUATION_NOT_FOUND"


class AttemptNotFoundError(KernelDynoError):
    """No attempt has this token, or its result was collected or has expired."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "ATTEMPT_NOT_FOUND"


class IdReusedError(KernelDynoError):
    """The id was used for a different request."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "ID_REUSED"


class TokenInUseError(KernelDynoError):
    """An attempt with this token already exists."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "TOKEN_IN_USE"


class NodeIdInUseError(KernelDynoError):
    """Another running process uses this node id."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "NODE_ID_IN_USE"


class NodeNotFoundError(KernelDynoError):
    """No such node is registered."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "NODE_NOT_FOUND"


class NotSynchronizedError(KernelDynoError):
    """The node has no lease under this name and instance; it has to synchronize first."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_SYNCHRONIZED"


class StreamReplacedError(KernelDynoError):
    """The same node opened a newer stream."""

    code = grpc.StatusCode.ABORTED
    reason = "STREAM_REPLACED"


class NodeStoppingError(KernelDynoError):
    """The node is draining because it is being stopped."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NODE_STOPPING"


class QuarantineNotFoundError(KernelDynoError):
    """No such node or work is in quarantine."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "QUARANTINE_NOT_FOUND"


class JournalStalledError(KernelDynoError):
    """The scheduler cannot write its journal at present, so it accepts no work."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "JOURNAL_STALLED"


class QueueFullError(KernelDynoError):
    """The scheduler's queue is full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"


class LanesFullError(KernelDynoError):
    """Every lane of the node is in use and its short queue is full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "LANES_FULL"


class NoMatchingDeviceError(KernelDynoError):
    """No registered device matches the request."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NO_MATCHING_DEVICE"


class AlreadyFinishedError(KernelDynoError):
    """The evaluation has finished, so it cannot be cancelled."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "ALREADY_FINISHED"


class ShuttingDownError(KernelDynoError):
    """The server is shutting down or draining."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "SHUTTING_DOWN"


class StandbyError(KernelDynoError):
    """The scheduler is a standby: another one serves, or will do so soon. Nothing was done for the call."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "STANDBY"

    def __init__(self, message: str, *, serving: str = "", retry_seconds: float | None = None) -> None:
        super().__init__(message, retry_seconds=retry_seconds)
        #: HOST:PORT of the scheduler that serves, as far as the standby knows; "" if it does not know.
        self.serving = serving


class EvaluationCancelledError(KernelDynoError):
    """The evaluation was cancelled before it ended."""

    code = grpc.StatusCode.CANCELLED
    reason = "EVALUATION_CANCELLED"


class UnauthenticatedError(KernelDynoError):
    """The call has no token, or one that the server does not know."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(KernelDynoError):
    """The token has none of the roles that the call needs."""

    code = grpc.StatusCode.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class RateLimitedError(KernelDynoError):
    """The token's calls exceed its rate limit."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "RATE_LIMITED"


class CredentialsError(KernelDynoError, ValueError):
    """Tokens, certificates or listening addresses cannot be used or are not safe; nothing was sent."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CREDENTIALS"


class AddressError(KernelDynoError, ValueError):
    """An address is not valid, for example because it has no port; nothing was sent."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "ADDRESS"


_BY_REASON: dict[str, type[KernelDynoError]] = {kind.reason: kind for kind in KernelDynoError.__subclasses__()}


def to_status(error: KernelDynoError) -> grpc.Status:
    """Return `error` as a rich gRPC status, small enough that gRPC does not replace it."""
    rich = status_pb2.Status(code=code_pb2.Code.Value(error.code.name), message=error.message[:MAX_MESSAGE_CHARS])
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if isinstance(error, StandbyError) and error.serving:
        info.metadata["serving"] = error.serving
    rich.details.add().Pack(info)
    if error.retry_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_seconds * 1e9))
        rich.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if isinstance(error, InvalidRequestError):
        bad_request = error_details_pb2.BadRequest()
        for violation in error.violations:
            one = bad_request.field_violations.add(field=violation.field, description=violation.description)
            if bad_request.ByteSize() > MAX_DETAILS_BYTES:
                bad_request.field_violations.remove(one)
                break
        rich.details.add().Pack(bad_request)
    return cast(grpc.Status, rpc_status.to_status(rich))


def from_rpc_error(error: grpc.RpcError) -> KernelDynoError | None:
    """Return the KernelDyno error that `error` carries, or None if the status did not come from a KernelDyno server."""
    call = cast(Any, error)  # a failed call is both an RpcError and a Call; the stubs know only the former
    if call.trailing_metadata() is None:
        return None
    rich = rpc_status.from_call(call)
    if rich is None:
        return None
    kind: type[KernelDynoError] | None = None
    retry_seconds: float | None = None
    serving = ""
    violations: list[Violation] = []
    for detail in rich.details:
        info, retry, bad = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info) and info.domain == DOMAIN:
            kind = _BY_REASON.get(info.reason, KernelDynoError)
            serving = info.metadata.get("serving", "")
        elif detail.Unpack(retry):
            retry_seconds = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(bad):
            violations = [Violation(v.field, v.description) for v in bad.field_violations]
    if kind is None:
        return None
    if kind is InvalidRequestError:
        return InvalidRequestError(rich.message, violations=violations, retry_seconds=retry_seconds)
    if kind is StandbyError:
        return StandbyError(rich.message, serving=serving, retry_seconds=retry_seconds)
    return kind(rich.message, retry_seconds=retry_seconds)
