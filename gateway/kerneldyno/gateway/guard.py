"""Checks of callers and request sizes: the outermost layer of the gateway, before it reads anything of a request.

A reference is code that the judge trusts, so anyone who reaches this port can run code. Therefore the gateway listens on
loopback by default and refuses web pages, which can reach a loopback port through a browser on this machine. Every browser
sends an Origin header; no trainer does. The Host header must be a loopback name; otherwise a web page could make its own
name resolve to this machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kerneldyno.gateway.refusals import Refusal
from kerneldyno.rpc.channel import is_loopback

#: WebSocket close code: refused by policy.
POLICY_VIOLATION = 1008


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request."""

    max_body_bytes: int = 16 << 20
    """Largest HTTP body; a batch of 100 tasks with both sources fits. WebSocket messages have the same limit."""


class Guard:
    """ASGI middleware that refuses other hosts, browsers, content other than JSON, and bodies that are too large."""

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
            return Refusal(403, "the gateway is for programs; it refuses requests of web pages (with an Origin header)")
        if self._loopback_only and not is_loopback(_host(headers.get("host", ""))):
            return Refusal(
                403, f"this gateway serves only this machine; Host {headers.get('host', '')[:100]!r} is another"
            )
        if scope["type"] == "http" and scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refusal(415, f"send JSON with Content-Type application/json, not {kind[:60]!r}")
            length = headers.get("content-length", "")
            if length.isdigit() and int(length) > self._limits.max_body_bytes:
                return self._too_large()
        return None

    def _counted(self, receive: Receive) -> Receive:
        """Wrap `receive` to limit bodies that have no Content-Length."""
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
        return Refusal(413, f"the body has more than {self._limits.max_body_bytes} bytes; send smaller requests")


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await refusal.response()(scope, receive, send)
    else:
        await receive()  # the connect message
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": refusal.message[:100]})


def _host(header: str) -> str:
    """Return the Host header without its port."""
    return header.rpartition("]")[0].lstrip("[") if header.startswith("[") else header.partition(":")[0]
