"""Error answers of the gateway: a status, one sentence, and for 503 the seconds until a retry.

400  the request is malformed or asks for something unsupported; the sentence says what to do
403, 413, 415  guard.py refuses the request
404  there is no such evaluation or episode
409  the id belongs to another request, or its evaluation was cancelled
422  the reference failed: the problem must be corrected
500  a defect of the gateway; its log has the traceback
503  an infrastructure failure, with Retry-After; the same request sent again finds running or finished work

KernelDynoError               base of all errors of KernelDyno (kerneldyno.rpc.errors)
└── GatewayError              base of this family
    ├── Refusal               an answer other than 200
    └── ListenAddressError    the address to listen on cannot be used; also a ValueError
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from kerneldyno.client.errors import (
    AlreadyFinishedError,
    EvaluationCancelledError,
    EvaluationNotFoundError,
    IdReusedError,
    InvalidRequestError,
    KernelDynoError,
)
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: Default of Retry-After, in seconds.
RETRY_SECONDS = 5.0
#: KernelGYM's error codes by status.
_CODES = {422: "VALIDATION_ERROR", 503: "SYSTEM_ERROR"}
_STATUS_OF = {
    InvalidRequestError: 400,
    EvaluationNotFoundError: 404,
    IdReusedError: 409,
    AlreadyFinishedError: 409,
    EvaluationCancelledError: 409,
}


class GatewayError(KernelDynoError):
    """The gateway cannot start or cannot answer a request. Base of all errors of this package."""


class ListenAddressError(GatewayError, ValueError):
    """The address to listen on cannot be used."""


class Refusal(GatewayError):  # noqa: N818 - an answer, not a failure of the gateway
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *, task_id: str = "", retry_seconds: float | None = None) -> None:
        if status == 503 and retry_seconds is None:
            retry_seconds = RETRY_SECONDS
        super().__init__(message, retry_seconds=retry_seconds)
        self.status = status
        self.task_id = task_id

    @property
    def kernelgym_code(self) -> str:
        """KernelGYM's error code."""
        return _CODES.get(self.status, "VALIDATION_ERROR" if self.status < 500 else "SYSTEM_ERROR")

    def body(self) -> dict[str, object]:
        """Return the body of the answer, in the form of KernelGYM's errors."""
        return {
            "error": {500: "failed", 503: "unavailable"}.get(self.status, "refused"),
            "message": self.message,
            "error_code": self.kernelgym_code,
            "task_id": self.task_id or None,
            "timestamp": datetime.now(UTC).isoformat(),
        }

    def response(self) -> JSONResponse:
        """Return the HTTP answer."""
        headers = {"X-Error-Code": self.kernelgym_code}
        if self.retry_seconds is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_seconds))
        return JSONResponse(self.body(), self.status, headers)


def bad_request(message: str, *, task_id: str = "") -> Refusal:
    """Return a 400."""
    return Refusal(400, message, task_id=task_id)


def invalid_request(result: EvalResult, *, task_id: str = "") -> Refusal:
    """Return a 400 for the outcome INVALID, if it names fields that the caller wrote."""
    wrong = "; ".join(f"{one.field}: {one.description}" for one in result.invalid.violations[:3])
    return bad_request(wrong or result.message, task_id=task_id)


def unavailable(message: str, *, task_id: str = "", retry_seconds: float | None = None) -> Refusal:
    """Return a 503: there is no verdict, for a reason that is not the candidate's."""
    return Refusal(503, f"no verdict, try again: {message}", task_id=task_id, retry_seconds=retry_seconds)


def refusal_of(error: KernelDynoError, *, task_id: str = "") -> Refusal:
    """Return the answer to a client after a failed call to the scheduler; 503 unless the client caused the failure."""
    status = next((code for kind, code in _STATUS_OF.items() if isinstance(error, kind)), 503)
    if status == 503:
        return unavailable(error.message, task_id=task_id, retry_seconds=error.retry_seconds)
    return Refusal(status, error.message, task_id=task_id)


async def answer_refusal(request: Request, error: Exception) -> JSONResponse:
    """Handle Refusal for Starlette."""
    assert isinstance(error, Refusal)
    return error.response()


async def answer_call_error(request: Request, error: Exception) -> JSONResponse:
    """Handle KernelDynoError for Starlette."""
    assert isinstance(error, KernelDynoError)
    return refusal_of(error).response()


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Handle unknown paths and methods for Starlette."""
    assert isinstance(error, HTTPException)
    text = f"{error.detail}: {request.method} {request.url.path[:100]}; docs/gateway.md lists the routes"
    response = Refusal(error.status_code, text).response()
    response.headers.update(error.headers or {})
    return response


async def answer_defect(request: Request, error: Exception) -> JSONResponse:
    """Handle all other exceptions for Starlette, which logs them."""
    return Refusal(500, f"the gateway failed; its log has the traceback: {type(error).__name__}").response()
