"""Who may come in, and with how much. Outermost of the gateway's layers, before anything of a request is read.

A reference is code that the judge trusts, so whoever reaches this port may run code: hence loopback by default, and
nothing for web pages, which also reach a loopback port from the browser of whoever works on this machine. No trainer sends
an Origin; every browser does. The Host must be this machine's name, or a page elsewhere could have its name point here.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.gateway.refusals import Refusal
from kerneldyno.rpc.channel import is_loopback
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: WebSocket close code: refused by policy.
POLICY_VIOLATION = 1008


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may be."""

    max_body_bytes: int = 16 << 20
    """Of one HTTP body; 100 tasks of a batch with both sources fit. WebSocket messages have the same limit."""


class Guard:
    """ASGI middleware: refuses other hosts, browsers, other content than JSON, and what is too large."""

    def __init__(self, app: ASGIApp, limits: Limits, *, loopback_only: bool) -> None:
        self._app = app
        self._limits = limits
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, self._counted(receive), send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        if "origin" in headers:
            return Refusal(403, "the gateway is for programs; requests of web pages (with an Origin) are refused")
        if self._loopback_only and not is_loopback(_host(headers.get("host", ""))):
            return Refusal(403, f"this gateway serves this machine; Host {headers.get('host', '')[:100]!r} is another")
        if scope["type"] == "http" and scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refusal(415, f"send JSON with Content-Type application/json, not {kind[:60]!r}")
            length = headers.get("content-length", "")
            if length.isdigit() and int(length) > self._limits.max_body_bytes:
                return self._too_large()
        return None

    def _counted(self, receive: Receive) -> Receive:
        """`receive` for a body whose length nobody told."""
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limits.max_body_bytes:
                raise self._too_large()
            return message

        return counting

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body has more than {self._limits.max_body_bytes} bytes; send less at once")


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await refusal.response()(scope, receive, send)
    else:
        await receive()  # the connect
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": refusal.message[:100]})


def _host(header: str) -> str:
    """The Host header without its port."""
    return header.rpartition("]")[0].lstrip("[") if header.startswith("[") else header.partition(":")[0]
