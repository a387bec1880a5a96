"""The way to the scheduler: one client and one stream of rewards for each event loop and choice of settings.

verl makes an agent loop for every trajectory and runs many of them as coroutines of one process; they all share one
stream. Nothing is opened before the first turn is scored; a stream that broke is opened again by the next turn.
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
from kerneldyno.trainers.turns import refuse_our_fault

#: Turns of one process that may be under way. More than a trainer's largest batch: verl decides how many there are.
_WINDOW = 8192

_Key = tuple[str, bytes, float, float, int]


class Connection:
    """A client with its stream of rewards, opened when first used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._stream: RewardStream | None = None
        self._stack = AsyncExitStack()

    async def score(self, turn: Turn) -> StreamRewardsResponse:
        """Returns the answer to `turn`, which has a reward.

        Raises:
            SampleFailedError: there is none, within `turn_seconds`, `reconnect_seconds` and the retries.
            SettingsError: there can be none, because the request is malformed or asks for what no node has.
        """
        try:
            return await (await self._open()).score(turn)
        except KernelDynoError as error:
            for answer in error.answers if isinstance(error, NoRewardError) else ():
                refuse_our_fault(answer)
            where = f"turn {turn.turn_index + 1} of {turn.group}/{turn.sample}"
            raise SampleFailedError(f"{where} has no reward: {error}") from error

    async def close(self) -> None:
        """Closes stream and client; turns that wait for a reward fail."""
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


#: What each event loop has open. A channel belongs to the loop that it was made in.
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, Connection]] = WeakKeyDictionary()


async def score(settings: Settings, turn: Turn) -> StreamRewardsResponse:
    """Returns the answer to `turn` from this event loop's stream; raises as `Connection.score`."""
    return await _connection(settings).score(turn)


async def close() -> None:
    """Closes what this event loop has open. A process that ends need not."""
    for connection in _connections.pop(asyncio.get_running_loop(), {}).values():
        await connection.close()


def _connection(settings: Settings) -> Connection:
    here = _connections.setdefault(asyncio.get_running_loop(), {})
    spec = settings.reward_spec().SerializeToString(deterministic=True)
    key = (settings.address, spec, settings.turn_seconds, settings.reconnect_seconds, settings.retries)
    if key not in here:
        here[key] = Connection(settings)
    return here[key]
