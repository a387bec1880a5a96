"""Run an event loop in a thread of its own, for tests that do not use asyncio themselves.

FakeScheduler and Cluster are async context managers; `InThread` lets a plain `with` block use them.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a thread. `close` ends both."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a test run that is interrupted can still end.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what still runs, and end the loop and its thread."""
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()


class InThread(ABC):
    """An async context manager that a plain `with` block can use: then it lives on an event loop in a thread."""

    _thread: LoopThread | None = None

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start on the running event loop."""

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Stop."""

    def __enter__(self) -> Self:
        self._thread = LoopThread(type(self).__name__)
        try:
            self._thread.run(self.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._thread.run(self.__aexit__())
        self._thread.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run one of its coroutines from a test without asyncio: `scheduler.run(scheduler.restart())`."""
        assert self._thread is not None, "in `async with`, await the coroutine"
        return self._thread.run(work)
