"""The server interceptor: admits calls, maps errors to statuses, counts, times and audits.

Both servers install it. Metric names and labels are those of go-grpc-prometheus, so that stock dashboards work. Each
handler is wrapped once per method. If a handler raises anything but a `KernelDynoError`, the call ends with INTERNAL
"internal error"; the traceback goes to the log, never to the caller.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry, Counter, Histogram

from kerneldyno.rpc import audit, errors, trace_context
from kerneldyno.rpc.auth import Gate
from kerneldyno.rpc.metric_series import SECONDS

_log = logging.getLogger(__name__)

#: The caller's deadline passes a little before the server's, which starts when the call arrives; its cancellation is
#: first.
DEADLINE_SLACK_SECONDS = 0.1

#: Beginning of the names of methods to which a role applies.
_OWN_SERVICES = "/kerneldyno."

#: Name in logs of a caller without a known token.
_NOBODY = "-"

if TYPE_CHECKING:  # the class is generic in the stubs only
    Handler = grpc.RpcMethodHandler[Any, Any]


class CallMetrics:
    """Counters and times of gRPC calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["grpc_type", "grpc_service", "grpc_method"]
        self.started = Counter("grpc_server_started", "Calls started.", labels, registry=registry)
        self.handled = Counter("grpc_server_handled", "Calls ended.", [*labels, "grpc_code"], registry=registry)
        self.seconds = Histogram(
            "grpc_server_handling_seconds",
            "Duration of a call.",
            labels,
            buckets=SECONDS,
            registry=registry,
        )

    def prepare(self, service: Any) -> None:
        """Create every label set of `service` (a service descriptor), so that rates start at 0."""
        for method in service.methods:
            labels = (_call_type(method.client_streaming, method.server_streaming), service.full_name, method.name)
            self.started.labels(*labels)
            self.seconds.labels(*labels)
            for code in grpc.StatusCode:
                self.handled.labels(*labels, code.name)


class Role(Protocol):
    """Whether a server may answer at the moment, for servers of which only one does."""

    def refusal(self) -> errors.KernelDynoError | None:
        """Return why nothing may be answered now; None if calls are served. Asked before each message in and out."""

    def translated(self, error: Exception) -> errors.KernelDynoError | None:
        """Return how a call ends that failed with `error`; None if the error is a bug."""


class ServerInterceptor(grpc.aio.ServerInterceptor):
    """Wrap every handler of a server.

    `gate` decides who may call; without a gate everybody may. `role` decides whether the server answers; without it, it
    does. Health and reflection always answer.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        services: Iterable[Any] = (),
        gate: Gate | None = None,
        role: Role | None = None,
    ) -> None:
        self._metrics = CallMetrics(registry)
        self._role = role
        self._gate = gate or Gate()
        self._wrapped: dict[str, Handler] = {}
        for service in services:
            self._metrics.prepare(service)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the wrapped handler of the called method."""
        method: str = handler_call_details.method
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:  # no such method: gRPC answers UNIMPLEMENTED; not kept, or callers could fill memory
                return handler
            self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Handler) -> Handler:
        service, _, name = method.lstrip("/").rpartition("/")
        labels = (_call_type(handler.request_streaming, handler.response_streaming), service, name)
        inner: Any = next(
            f for f in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream) if f
        )

        readable = _each_readable if handler.request_streaming else _readable
        role = self._role if method.startswith(_OWN_SERVICES) else None
        if role is not None:
            inner = _only_in_role(inner, role, handler)

        async def call(request: Any, context: Any) -> Any:
            async with self._observed(method, labels, request, context):
                return await inner(readable(request), context)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async with (
                self._observed(method, labels, request, context),
                aclosing(inner(readable(request), context)) as responses,
            ):
                async for response in responses:
                    yield response

        outer = stream if inspect.isasyncgenfunction(inner) else call
        make: Any = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        wrapped: Handler = make(
            outer,
            request_deserializer=_reader(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )
        return wrapped

    @asynccontextmanager
    async def _observed(
        self, method: str, labels: tuple[str, str, str], request: Any, context: Any
    ) -> AsyncIterator[None]:
        code, who = grpc.StatusCode.OK, _NOBODY
        start = time.monotonic()
        self._metrics.started.labels(*labels).inc()
        try:
            who = self._gate.identify(method, context).name
            self._gate.admit(method, unary=labels[0] == "unary")
            trace_context.note_call(context.invocation_metadata())
            yield
            code = _code_of(context.code())
        except errors.KernelDynoError as caught:
            # While the role is lost, that is the reason, whatever a handler says.
            error = (self._role and method.startswith(_OWN_SERVICES) and self._role.refusal()) or caught
            code = error.code
            refusal = "event=call_refused method=%s code=%s reason=%s principal=%s peer=%s"
            _log.info(refusal, labels[2], code.name, error.reason, who, context.peer())
            await context.abort_with_status(errors.to_status(error))
        except (asyncio.CancelledError, GeneratorExit):
            code = grpc.StatusCode.DEADLINE_EXCEEDED if deadline_passed(context) else grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.InternalError:  # a write to a closed connection; the cancellation follows
            code = grpc.StatusCode.CANCELLED
            raise asyncio.CancelledError from None
        except grpc.aio.AbortError:
            code = _code_of(context.code())
            raise
        except Exception as error:
            refused = _only(error)
            if self._role is not None and isinstance(refused, Exception):
                refused = self._role.translated(refused) or refused
            # Raised by a stream's reader, in a task of its own, or by a store that does not answer.
            if isinstance(refused, errors.KernelDynoError) and (
                self._role is not None or isinstance(refused, errors.InvalidRequestError)
            ):
                code = refused.code
                await context.abort_with_status(errors.to_status(refused))
            code = grpc.StatusCode.INTERNAL
            _log.exception("event=call_failed method=%s", labels[2])
            await context.abort(code, "internal error")
        finally:
            self._metrics.handled.labels(*labels, code.name).inc()
            self._metrics.seconds.labels(*labels).observe(time.monotonic() - start)
            if not isinstance(request, errors.KernelDynoError):  # otherwise the request could not be read
                audit.write(labels[2], request, context, who=who, result=code.name)


def _only_in_role(inner: Any, role: Role, handler: Handler) -> Any:
    """Return `inner` so that it reads and tells nothing while `role` refuses."""

    def check() -> None:
        if (refused := role.refusal()) is not None:
            raise refused

    async def each(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            check()
            yield request

    def guarded(request: Any, context: Any) -> tuple[Any, Any]:
        check()
        return each(request) if handler.request_streaming else request, _GuardedContext(context, check)

    if inspect.isasyncgenfunction(inner):

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async with aclosing(inner(*guarded(request, context))) as responses:
                async for response in responses:
                    check()
                    yield response

        return stream

    async def call(request: Any, context: Any) -> Any:
        response = await inner(*guarded(request, context))
        check()
        return response

    return call


class _GuardedContext:
    """A servicer's context that checks the role before each message that it writes."""

    def __init__(self, context: Any, check: Callable[[], None]) -> None:
        self._context = context
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        self._check()
        await self._context.write(message)


def _reader(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Return a deserializer that never raises: gRPC would answer UNKNOWN with the text of the exception."""

    def read(message: bytes) -> Any:
        try:
            return message if parse is None else parse(message)
        except DecodeError:
            return errors.InvalidRequestError("the message is not a well-formed protobuf message of this call's type")

    return read


def _readable(request: Any) -> Any:
    """Return `request`, or raise the error that `_reader` put in its place."""
    if isinstance(request, errors.KernelDynoError):
        raise request
    return request


async def _each_readable(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _readable(request)


def _only(error: BaseException) -> BaseException:
    """Return the single exception that nested groups hold, or `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def deadline_passed(context: Any) -> bool:
    """Return True if a cancelled call ended because its deadline passed, not because the caller went away."""
    remaining = context.time_remaining()
    return remaining is not None and remaining <= DEADLINE_SLACK_SECONDS


def _call_type(client_streaming: bool, server_streaming: bool) -> str:
    return {
        (False, False): "unary",
        (False, True): "server_stream",
        (True, False): "client_stream",
        (True, True): "bidi_stream",
    }[client_streaming, server_streaming]


def _code_of(code: Any) -> grpc.StatusCode:
    """Return the status code of a context, which holds an int, a StatusCode, or nothing yet."""
    if isinstance(code, grpc.StatusCode):
        return code
    return next((known for known in grpc.StatusCode if known.value[0] == code), grpc.StatusCode.OK)
