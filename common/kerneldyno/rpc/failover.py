"""A channel to whichever of several schedulers serves.

To its users it is one gRPC channel. Each call goes to the scheduler that served last. If that one is gone, is stopping
or answers that it is a standby (`StandbyError`), the next call goes to another address: the one that the standby named,
or the next of the list (rotation.py). A DNS name that stands for several machines counts as several addresses.

- A unary call is repeated here until one answers, within the limits of the caller. It may be sent twice, as to a
  scheduler that is restarted; every unary method of the contract allows that, EvaluateOnce if its request has an id.
- A stream cannot be moved: it breaks, and whoever opened it opens it again, as after a restart, and attaches by id.
- As soon as one scheduler serves, the connections to all others are closed. Streams that hang at a machine that no
  longer answers end at that moment, so they too are opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from kerneldyno.rpc.errors import AddressError, CredentialsError, ShuttingDownError, StandbyError, from_rpc_error
from kerneldyno.rpc.rotation import Endpoint, Rotation

#: Seconds to wait for a connection to one of several addresses, and for DNS.
CONNECT_SECONDS = 2.0
LOOKUP_SECONDS = 2.0
#: Who refuses a stream sends metadata and status at once, but gRPC may hand over the latter some time after the former.
_STATUS_SECONDS = 0.2
#: A call that waits for a verdict. Its deadline does not show that the scheduler is unreachable.
_LONG_CALL = "/kerneldyno.v1.SchedulerService/EvaluateOnce"
#: An unknown method would do as well: the probe is only sent where no connection can be made, to learn the reason.
_PROBE = "/grpc.health.v1.Health/Check"
#: Characters of each scheduler's words that `report` shows, and of a hint.
_SHOWN_CHARS = 300


class NoneServesError(AioRpcError):
    """A call found no scheduler that serves; the details name each address and what it said."""

    def __init__(self, report: str) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), report)


async def lookup(address: str) -> list[Endpoint]:
    """Return an endpoint for each machine that `address` stands for.

    That is `address` itself if it has no DNS name, or if its name stands for one machine. It is none if the name cannot
    be resolved.
    """
    if not is_dns_name(address):
        return [Endpoint(address)]
    host, _, port = address.removeprefix("dns:///").rpartition(":")
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []
    hosts = dict.fromkeys(str(where[0]) for *_, where in found)
    if len(hosts) < 2:
        return [Endpoint(address)]
    name = f"{host}:{port}"
    return [Endpoint(f"[{one}]:{port}" if ":" in one else f"{one}:{port}", name) for one in hosts]


class FailoverChannel(grpc.aio.Channel):
    """A channel to the scheduler that serves. `channel.open` makes one.

    Args:
        addresses: valid addresses, the preferred one first.
        dial: opens a channel to one endpoint, and connects later. It raises AddressError or CredentialsError for an
            endpoint that may not be used.
        explain: turns gRPC's words on a failed connection into an explanation.
        patience: longest time, in seconds, that a unary call looks for a scheduler that serves, once one has answered.
            The deadline of the call applies too. With 0 each address is tried once.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        dial: Callable[[Endpoint], grpc.aio.Channel],
        *,
        explain: Callable[[str], str],
        patience: float = 0.0,
    ) -> None:
        self._addresses = tuple(addresses)
        self._dial = dial
        self._explain = explain
        self._patience = patience
        self._rotation = Rotation([Endpoint(address) for address in addresses], time.monotonic)
        self._peers: dict[Endpoint, grpc.aio.Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stale = False  # DNS names should be looked up again before the next attempt
        self._answered = False  # whether any address has ever served, or said that it is a standby
        self._closed = False
        self._peer(self._rotation.current)

    async def __aenter__(self) -> FailoverChannel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """Return the address in use, for logs and traces."""
        return self._rotation.current.address

    def report(self) -> str:
        """Return what each address said that failed since a scheduler served last; "" if there is only one address."""
        said = self._rotation.said
        if len(said) < 2 and not self._rotation.several:
            return ""
        return "; ".join(f"{endpoint}: {why}" for endpoint, why in said.items())

    async def close(self, grace: float | None = None) -> None:
        """Close the channel and end its calls, as `grpc.aio.Channel.close` does."""
        self._closed = True
        for peer in list(self._peers.values()):
            await peer.close(grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection in use, as `grpc.aio.Channel.get_state` does."""
        return self._peer(self._rotation.current).get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait, as `grpc.aio.Channel.wait_for_state_change` does."""
        await self._peer(self._rotation.current).wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait for a connection, trying one address after the other."""
        await self.pick()
        await self._peer(self._rotation.current).channel_ready()

    async def pick(self) -> None:
        """If there are several addresses, wait until one is connected. It may be a standby, which only a call tells.

        With one address return at once: a call reports what is wrong with it.
        """
        while True:
            await self._next_attempt()
            endpoint = self._rotation.current
            if not self._rotation.several or (why := await self._why_not_connected(endpoint)) is None:
                return
            self._turn_from(endpoint, why)

    # Calls

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Return a coroutine function that makes the call, at each address if necessary, and returns its answer."""

        async def call(request: Any, *, timeout: float | None = None, **options: Any) -> Any:
            def attempt(peer: grpc.aio.Channel, seconds: float | None) -> Awaitable[Any]:
                made: Awaitable[Any] = peer.unary_unary(method, *arguments, **named)(
                    request, timeout=seconds, **options
                )
                return made

            return await self._unary(method, attempt, timeout)

        return call

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.unary_stream` does."""
        return self._streaming(lambda peer: peer.unary_stream(*arguments, **named))

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.stream_unary` does."""
        return self._streaming(lambda peer: peer.stream_unary(*arguments, **named))

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.stream_stream` does."""
        return self._streaming(lambda peer: peer.stream_stream(*arguments, **named))

    async def _unary(
        self,
        method: str,
        attempt: Callable[[grpc.aio.Channel, float | None], Awaitable[Any]],
        timeout: float | None,
    ) -> Any:
        rotation = self._rotation
        end = math.inf if timeout is None else time.monotonic() + timeout
        lost_at: float | None = None
        rounds = rotation.rounds
        while True:
            if rotation.resume_at >= end:
                raise self._none_serves(rotation.current)
            await self._next_attempt()
            endpoint, began = rotation.current, time.monotonic()
            failure: AioRpcError | None = None
            if rotation.several and (why := await self._why_not_connected(endpoint, end)) is not None:
                self._turn_from(endpoint, why)
            else:
                peer = self._peer(endpoint)
                try:
                    answer = await attempt(peer, None if timeout is None else end - time.monotonic())
                except AioRpcError as error:
                    if _is_cut_off(error) and self._left(endpoint, peer):
                        continue  # as below: gRPC says it in either way
                    took, late = time.monotonic() - began, error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                    elsewhere = self._note_failure(endpoint, error, method, took)
                    if late and lost_at is not None and took < CONNECT_SECONDS:  # the search took all the time
                        raise self._none_serves(endpoint) from error
                    if late or not elsewhere:
                        raise
                    failure = error
                except asyncio.CancelledError:
                    if not self._left(endpoint, peer) or _cancelled():
                        raise
                    continue  # the connection was closed because another scheduler serves
                else:
                    self._note_service(endpoint)
                    return answer
            now = time.monotonic()
            if lost_at is None or now - began > CONNECT_SECONDS:  # a scheduler was there until now
                lost_at = now
            if await self._look_up():
                rounds = rotation.rounds
                continue
            alone = not rotation.several and rotation.listed(endpoint.address) is not None
            if failure is not None and alone and not isinstance(from_rpc_error(failure), StandbyError):
                raise failure
            patient = self._answered and max(now, rotation.resume_at) < lost_at + self._patience
            if rotation.rounds > rounds and not patient:
                raise self._none_serves(endpoint)

    def _none_serves(self, last: Endpoint) -> NoneServesError:
        return NoneServesError(self.report() or f"{last}: {self._rotation.said.get(last, 'gave no answer')}")

    def _streaming(self, method_of: Callable[[grpc.aio.Channel], Callable[..., Any]]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            endpoint = self._rotation.current
            made = method_of(self._peer(endpoint))(*arguments, **named)
            self._start(self._follow(endpoint, made))
            return made

        return call

    async def _follow(self, endpoint: Endpoint, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        """Learn from a stream whether its scheduler serves."""
        ended = asyncio.Event()
        call.add_done_callback(lambda _: ended.set())
        await call.initial_metadata()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                await ended.wait()
        if not ended.is_set() or await call.code() is grpc.StatusCode.OK:
            self._note_service(endpoint)
        code, details = await call.code(), await call.details()
        self._note_failure(endpoint, AioRpcError(code, Metadata(), await call.trailing_metadata(), details), "", 0.0)

    # Endpoints

    def _note_service(self, endpoint: Endpoint) -> None:
        """Note that a scheduler answered, and close the connections to others."""
        self._answered = True
        if self._closed or not self._rotation.served(endpoint):
            return
        for other in [one for one in self._peers if one != endpoint]:
            self._start(self._peers.pop(other).close())

    def _note_failure(self, endpoint: Endpoint, error: AioRpcError, method: str, seconds: float) -> bool:
        """Turn to another address if `error` shows that `endpoint` does not serve. Return whether it does.

        Args:
            endpoint: where the call was made.
            error: how it ended.
            method: which call it was; "" for a stream.
            seconds: how long it took.
        """
        known, code = from_rpc_error(error), error.code()
        details = (error.details() or "")[:_SHOWN_CHARS]
        if isinstance(known, StandbyError):
            self._answered = True
            named = f", and says that {known.serving[:_SHOWN_CHARS]} serves" if known.serving else ""
            self._turn_from(endpoint, f"is a standby{named}", self._hinted(known.serving), known.retry_seconds)
        elif isinstance(known, ShuttingDownError):
            self._turn_from(endpoint, known.message)
        elif known is not None:
            self._note_service(endpoint)
            return False
        elif code is grpc.StatusCode.UNAVAILABLE:
            self._turn_from(endpoint, f"{self._explain(details)} [{details}]")
        elif (
            code is grpc.StatusCode.DEADLINE_EXCEEDED
            and method not in ("", _LONG_CALL)
            and seconds > CONNECT_SECONDS / 2
        ):
            # Perhaps its machine is gone or stopped. If not, the others will send the next call back to it.
            self._turn_from(endpoint, f"gave no answer within {seconds:.1f} s")
        else:
            return False
        return True

    def _turn_from(
        self, endpoint: Endpoint, why: str, hint: Endpoint | None = None, retry_seconds: float | None = None
    ) -> None:
        self._rotation.failed(endpoint, why, hint=hint, retry_seconds=retry_seconds)
        self._stale = True
        if (
            endpoint in self._peers and not self._closed and self._rotation.listed(endpoint.address) is None
        ):  # it was a hint
            self._start(self._peers.pop(endpoint).close())

    def _hinted(self, serving: str) -> Endpoint | None:
        """Return the endpoint that a standby named, or None if it named none."""
        if (listed := self._rotation.listed(serving)) is not None:
            return listed
        if ":" not in serving or "/" in serving or "," in serving or len(serving) > _SHOWN_CHARS:
            return None
        return Endpoint(serving)

    def _peer(self, endpoint: Endpoint) -> grpc.aio.Channel:
        if endpoint not in self._peers:
            if self._closed:
                raise grpc.aio.UsageError("Channel is closed.")
            self._peers[endpoint] = self._dial(endpoint)
        return self._peers[endpoint]

    def _left(self, endpoint: Endpoint, peer: grpc.aio.Channel) -> bool:
        """Return True if `peer` was closed because another scheduler serves."""
        return not self._closed and self._peers.get(endpoint) is not peer

    async def _next_attempt(self) -> None:
        """Pause if every address has failed, and look up DNS names if one has."""
        if (pause := self._rotation.resume_at - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        await self._look_up()

    async def _look_up(self) -> bool:
        """Look up DNS names if an address has failed since the last time. Return whether there are new addresses."""
        if not self._stale or not any(is_dns_name(address) for address in self._addresses):
            return False
        found = await asyncio.gather(*(lookup(address) for address in self._addresses))
        self._stale = False
        # A name that cannot be resolved now keeps what it stood for.
        kept = zip(self._addresses, found, strict=True)
        return self._rotation.replace([one for address, new in kept for one in new or self._rotation.of(address)])

    async def _why_not_connected(self, endpoint: Endpoint, end: float = math.inf) -> str | None:
        """Wait for a connection to one of several addresses; return what is wrong, or None if it is connected."""
        try:
            peer = self._peer(endpoint)
        except (AddressError, CredentialsError) as error:  # a hint that must not be followed
            return str(error)
        seconds = max(0.0, min(CONNECT_SECONDS, end - time.monotonic()))
        try:
            async with asyncio.timeout(seconds):
                while (state := peer.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        probe: Any = peer.unary_unary(_PROBE)  # the state has no reason, but a failed call has
                        await probe(b"")
                    await peer.wait_for_state_change(state)
        except TimeoutError:
            return f"no connection within {seconds:.1f} s"
        except AioRpcError as error:
            details = (error.details() or "")[:_SHOWN_CHARS]
            # An answer of any other kind shows a connection.
            return f"{self._explain(details)} [{details}]" if error.code() is grpc.StatusCode.UNAVAILABLE else None
        except asyncio.CancelledError:
            if not self._left(endpoint, peer) or _cancelled():
                raise
            return "another scheduler serves"
        except grpc.aio.UsageError:
            if not self._left(endpoint, peer):
                raise
            return "another scheduler serves"
        return None

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def is_dns_name(address: str) -> bool:
    """Return True if `address` has a name that may stand for several machines."""
    host, _, port = address.removeprefix("dns:///").rpartition(":")
    if not host or "/" in host or ":" in host or host == "localhost" or not port.isdigit():
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _is_cut_off(error: AioRpcError) -> bool:
    """Return True if a call ended because its connection was closed here, and no scheduler has said so."""
    return error.code() is grpc.StatusCode.CANCELLED and from_rpc_error(error) is None


def _cancelled() -> bool:
    """Return True if the running task is being cancelled, and not only a call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
