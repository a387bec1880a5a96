"""What the gateway answers when it has no verdict to give: a status, one sentence, and when to come back.

400  the request is malformed, or asks for what is not supported; the sentence says what to do
403, 413, 415  what guard.py refuses
404  no such evaluation or episode
409  the id is that of another request, or its evaluation was cancelled
422  the reference failed: the problem is to be mended
500  a defect of the gateway; its log has the traceback
503  infrastructure, with Retry-After; the same request again finds what is running or done
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from kerneldyno.client.errors import (
    AlreadyFinishedError,
    EvaluationCancelledError,
    EvaluationNotFoundError,
    IdReusedError,
    InvalidRequestError,
    KernelDynoError,
)
from kerneldyno.v1.evaluation_pb2 import EvalResult
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

#: When to come back if nobody said, in seconds.
RETRY_SECONDS = 5.0
#: KernelGYM's names for what went wrong, by status.
_CODES = {422: "VALIDATION_ERROR", 503: "SYSTEM_ERROR"}
_STATUS_OF = {
    InvalidRequestError: 400,
    EvaluationNotFoundError: 404,
    IdReusedError: 409,
    AlreadyFinishedError: 409,
    EvaluationCancelledError: 409,
}


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the gateway
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *, task_id: str = "", retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.task_id = task_id
        self.retry_seconds = RETRY_SECONDS if status == 503 and retry_seconds is None else retry_seconds

    @property
    def code(self) -> str:
        """KernelGYM's error code."""
        return _CODES.get(self.status, "VALIDATION_ERROR" if self.status < 500 else "SYSTEM_ERROR")

    def body(self) -> dict[str, object]:
        """The answer's body, in the form of KernelGYM's errors."""
        return {
            "error": {500: "failed", 503: "unavailable"}.get(self.status, "refused"),
            "message": self.message,
            "error_code": self.code,
            "task_id": self.task_id or None,
            "timestamp": datetime.now(UTC).isoformat(),
        }

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {"X-Error-Code": self.code}
        if self.retry_seconds is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_seconds))
        return JSONResponse(self.body(), self.status, headers)


def bad(message: str, *, task_id: str = "") -> Refusal:
    """A 400."""
    return Refusal(400, message, task_id=task_id)


def malformed(result: EvalResult, *, task_id: str = "") -> Refusal:
    """What an INVALID for a field that the caller wrote is answered with."""
    wrong = "; ".join(f"{one.field}: {one.description}" for one in result.invalid.violations[:3])
    return bad(wrong or result.message, task_id=task_id)


def unavailable(message: str, *, task_id: str = "", retry_seconds: float | None = None) -> Refusal:
    """A 503: no verdict, through no fault of the candidate's."""
    return Refusal(503, f"no verdict, try again: {message}", task_id=task_id, retry_seconds=retry_seconds)


def refusal_of(error: KernelDynoError, *, task_id: str = "") -> Refusal:
    """What a failed call to the scheduler means to a client of the gateway. What is not the client's fault is a 503."""
    status = next((code for kind, code in _STATUS_OF.items() if isinstance(error, kind)), 503)
    if status == 503:
        return unavailable(error.message, task_id=task_id, retry_seconds=error.retry_seconds)
    return Refusal(status, error.message, task_id=task_id)


async def answer_refusal(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of Refusal."""
    assert isinstance(error, Refusal)
    return error.response()


async def answer_call_error(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of KernelDynoError."""
    assert isinstance(error, KernelDynoError)
    return refusal_of(error).response()


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    text = f"{error.detail}: {request.method} {request.url.path[:100]}; docs/gateway.md lists the routes"
    response = Refusal(error.status_code, text).response()
    response.headers.update(error.headers or {})
    return response


async def answer_defect(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of everything else, which it logs."""
    return Refusal(500, f"the gateway failed, its log says where: {type(error).__name__}").response()
