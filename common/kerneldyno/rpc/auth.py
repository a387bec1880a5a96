"""Identify callers: check each call against tokens, roles and rates before its handler runs.

The interceptor passes every call through its server's `Gate`. Handlers call `principal()` to learn who the caller is,
and streams call `pace()` to keep to the caller's rate. Both find the current call also in tasks that its handler
started.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kerneldyno.rpc import bearer, roles
from kerneldyno.rpc.errors import PermissionDeniedError, RateLimitedError, UnauthenticatedError
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.token_bucket import TokenBucket
from kerneldyno.rpc.tokens import ANONYMOUS, Principal, TokenFile, Tokens

#: Shortest time in seconds between two checks of the token file; it is checked when a call comes in.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Caller:
    principal: Principal
    bucket: TokenBucket | None = None


_ANYBODY = _Caller(ANONYMOUS)
_caller: ContextVar[_Caller] = ContextVar("kerneldyno_caller", default=_ANYBODY)


def principal() -> Principal:
    """Return the caller of the call that is being handled; `ANONYMOUS` outside of calls and without tokens."""
    return _caller.get().principal


async def pace(count: int) -> None:
    """Count `count` evaluations of a stream, and wait as long as the caller's rate requires. Never fails."""
    bucket = _caller.get().bucket
    if bucket is not None:
        await bucket.pace(count)


def require(role: Role, what: str) -> None:
    """Refuse the call that is being handled unless the caller has `role`.

    Args:
        role: one or several roles; one of them is enough.
        what: completes the message "only ... may".

    Raises:
        PermissionDeniedError: the caller does not have the role.
    """
    who = principal()
    if not who.roles & role:
        raise PermissionDeniedError(f"{who.name} has {who.roles}; only {_either(role)} may {what}")


class Gate:
    """Admit or refuse calls. Without tokens every caller may do everything."""

    def __init__(self, tokens: Tokens | None = None, file: TokenFile | None = None) -> None:
        """Take the tokens, and the file from which changed tokens are read; None if they do not change."""
        self._tokens = tokens or Tokens()
        self._file = file
        self._look_at = 0.0
        self._buckets: dict[str, TokenBucket] = {}

    def identify(self, method: str, context: Any) -> Principal:
        """Return the caller of `method` ("/package.Service/Name"); from now on `principal()` returns it too.

        Raises:
            UnauthenticatedError: the call has no token, or an unknown one.
        """
        if self._tokens and not roles.is_open(method):
            self._renew()
            _caller.set(self._look_up(context))
        return principal()

    def admit(self, method: str, *, unary: bool) -> None:
        """Admit the identified caller to `method`, or refuse.

        Raises:
            PermissionDeniedError: the caller has no role that allows the method.
            RateLimitedError: a unary call comes too early. Streams pace themselves.
        """
        if not self._tokens or roles.is_open(method):
            return
        who, bucket, allowing = principal(), _caller.get().bucket, roles.allowing(method)
        if not who.roles & allowing:
            name = method.rpartition("/")[2]
            raise PermissionDeniedError(f"{name} needs the role {_either(allowing)}; {who.name} has {who.roles}")
        if unary and bucket is not None and (seconds := bucket.take()) > 0.0:
            raise RateLimitedError(
                f"{who.name} may make {who.requests_per_second:g} requests per second; retry in {seconds:.3f} s",
                retry_seconds=seconds,
            )

    def _renew(self) -> None:
        """Use the tokens of the file if it has changed. Open calls keep the rights that they started with."""
        now = time.monotonic()
        if self._file is None or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if (tokens := self._file.changed()) is not None:
            self._tokens = tokens
            self._buckets.clear()  # the rates may have changed

    def _look_up(self, context: Any) -> _Caller:
        value = next((value for key, value in context.invocation_metadata() or () if key == bearer.KEY), None)
        if value is None:
            raise UnauthenticatedError("a token is needed: set KERNELDYNO_TOKEN, or give --token-file or token=")
        scheme, _, token = str(value).partition(" ")
        found = self._tokens.find(token) if scheme.lower() == bearer.SCHEME else None
        if found is None:
            raise UnauthenticatedError("the token is not known here; ask the operator for one")
        if found.requests_per_second is None:
            return _Caller(found)
        bucket = self._buckets.get(found.name)
        if bucket is None:
            bucket = self._buckets[found.name] = TokenBucket(found.requests_per_second)
        return _Caller(found, bucket)


def _either(allowing: Role) -> str:
    return " or ".join(str(role) for role in allowing) or "of nobody"
