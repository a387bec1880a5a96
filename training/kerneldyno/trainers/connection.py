"""Connections to the scheduler: one client and one reward stream for each event loop and set of settings.

verl makes an agent loop for every trajectory and runs many of them as coroutines of one process; they all share one
stream. The first turn opens the connection; the next turn after a broken stream opens it again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from weakref import WeakKeyDictionary

from kerneldyno.client import AsyncClient, NoRewardError, StreamRewardsResponse, Turn
from kerneldyno.client.rewarding import RewardStream
from kerneldyno.rpc.errors import KernelDynoError
from kerneldyno.trainers.errors import SampleFailedError
from kerneldyno.trainers.settings import Settings
from kerneldyno.trainers.turns import raise_for_invalid_request

#: Largest number of unfinished turns of one process. It exceeds a trainer's largest batch, so that verl sets the limit.
_WINDOW = 8192

_Key = tuple[str, bytes, float, float, int]


class Connection:
    """A client with its reward stream, opened on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._stream: RewardStream | None = None
        self._stack = AsyncExitStack()

    async def score(self, turn: Turn) -> StreamRewardsResponse:
        """Return the answer to `turn`, which always has a reward.

        Raises:
            SampleFailedError: no reward came within `turn_seconds`, `reconnect_seconds` and the retries.
            SettingsError: the request is malformed, or asks for something that no node has.
        """
        try:
            return await (await self._open()).score(turn)
        except KernelDynoError as error:
            for answer in error.answers if isinstance(error, NoRewardError) else ():
                raise_for_invalid_request(answer)
            where = f"turn {turn.turn_index + 1} of {turn.group}/{turn.sample}"
            raise SampleFailedError(f"{where} has no reward: {error}") from error

    async def close(self) -> None:
        """Close stream and client; turns that wait for a reward fail."""
        async with self._opening:
            self._stream = None
            await self._stack.aclose()

    async def _open(self) -> RewardStream:
        chosen = self._settings
        async with self._opening:
            if self._stream is None:
                client = AsyncClient(chosen.address, window=_WINDOW, reconnect_timeout=chosen.reconnect_seconds)
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(client)
                    self._stream = await stack.enter_async_context(
                        client.reward_stream(chosen.reward_spec(), retries=chosen.retries, timeout=chosen.turn_seconds)
                    )
                    self._stack = stack.pop_all()
            return self._stream


#: Open connections of each event loop. A gRPC channel belongs to the loop in which it was made.
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, Connection]] = WeakKeyDictionary()


async def score(settings: Settings, turn: Turn) -> StreamRewardsResponse:
    """Return the answer to `turn` from this event loop's stream.

    Raises:
        SampleFailedError, SettingsError: as `Connection.score`.
    """
    return await _connection(settings).score(turn)


async def close() -> None:
    """Close the connections of this event loop. Not needed before the process ends."""
    for connection in _connections.pop(asyncio.get_running_loop(), {}).values():
        await connection.close()


def _connection(settings: Settings) -> Connection:
    here = _connections.setdefault(asyncio.get_running_loop(), {})
    spec = settings.reward_spec().SerializeToString(deterministic=True)
    key = (settings.address, spec, settings.turn_seconds, settings.reconnect_seconds, settings.retries)
    if key not in here:
        here[key] = Connection(settings)
    return here[key]
