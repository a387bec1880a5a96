"""A channel that adds a bearer token to every call.

gRPC has call credentials for this, but they refuse loopback without TLS, and its asyncio interceptors wrap streams in
proxies that behave differently. This channel only adds one item of metadata to each call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import grpc

#: Metadata key of the token; its value is "Bearer TOKEN", in any case of the first word.
KEY = "authorization"
SCHEME = "bearer"


class BearerChannel(grpc.aio.Channel):
    """Wrap `channel` and add `token` to every call."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._pair = (KEY, f"Bearer {token}")

    async def __aenter__(self) -> BearerChannel:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close the channel, as `grpc.aio.Channel.close` does."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state, as `grpc.aio.Channel.get_state` does."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait, as `grpc.aio.Channel.wait_for_state_change` does."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait, as `grpc.aio.Channel.channel_ready` does."""
        await self._channel.channel_ready()

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.unary_unary` does."""
        return self._bearing(self._channel.unary_unary(*arguments, **named))

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.unary_stream` does."""
        return self._bearing(self._channel.unary_stream(*arguments, **named))

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.stream_unary` does."""
        return self._bearing(self._channel.stream_unary(*arguments, **named))

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        """Return a callable, as `grpc.aio.Channel.stream_stream` does."""
        return self._bearing(self._channel.stream_stream(*arguments, **named))

    def _bearing(self, multicallable: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, metadata: Any = (), **named: Any) -> Any:
            return multicallable(*arguments, metadata=(*(metadata or ()), self._pair), **named)

        return call
