"""Who is calling: each call is checked against tokens, roles and rates before its handler sees it.

The interceptor takes every call through its server's `Gate`. Handlers ask `principal()` who it is, and streams keep to
the caller's rate by `pace()`. Both know the call they are in, also in tasks that its handler started.
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

#: How often the file of tokens is looked at, in seconds, when calls come.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Caller:
    principal: Principal
    bucket: TokenBucket | None = None


_ANYBODY = _Caller(ANONYMOUS)
_caller: ContextVar[_Caller] = ContextVar("kerneldyno_caller", default=_ANYBODY)


def principal() -> Principal:
    """Return who makes the call that is being handled; outside of calls and without tokens, `ANONYMOUS`."""
    return _caller.get().principal


async def pace(count: int) -> None:
    """Count `count` evaluations of a stream, and wait as long as the caller's rate demands. Never fails."""
    bucket = _caller.get().bucket
    if bucket is not None:
        await bucket.pace(count)


def require(role: Role, what: str) -> None:
    """Refuse the call that is being handled unless the caller has `role`; `what` completes "only ... may".

    Raises:
        PermissionDeniedError: the caller has not.
    """
    who = principal()
    if not who.roles & role:
        raise PermissionDeniedError(f"{who.name} has {who.roles}; only {_either(role)} may {what}")


class Gate:
    """Lets calls in. Without tokens everybody may do everything."""

    def __init__(self, tokens: Tokens | None = None, file: TokenFile | None = None) -> None:
        """`file` is where changed tokens come from; None where they do not change."""
        self._tokens = tokens or Tokens()
        self._file = file
        self._look_at = 0.0
        self._buckets: dict[str, TokenBucket] = {}

    def identify(self, method: str, context: Any) -> Principal:
        """Return the caller of `method` ("/package.Service/Name"), known to `principal()` from here on.

        Raises:
            UnauthenticatedError: the call brings no token, or an unknown one.
        """
        if self._tokens and not roles.is_open(method):
            self._renew()
            _caller.set(self._look_up(context))
        return principal()

    def admit(self, method: str, *, unary: bool) -> None:
        """Let the caller who was identified call `method`, or refuse.

        Raises:
            PermissionDeniedError: the caller has no role that allows it.
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
                f"{who.name} may make {who.requests_per_second:g} requests a second; come back in {seconds:.3f} s",
                retry_seconds=seconds,
            )

    def _renew(self) -> None:
        """Take up changed tokens. Calls that are open go on as they came in."""
        now = time.monotonic()
        if self._file is None or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if (tokens := self._file.changed()) is not None:
            self._tokens = tokens
            self._buckets.clear()  # rates may be others

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
