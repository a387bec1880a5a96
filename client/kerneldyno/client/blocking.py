"""The same client for programs without asyncio: an event loop in its own thread does the work.

Methods, results and exceptions are those of AsyncClient. Several threads may use one client at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.errors import ClientClosedError
from kerneldyno.client.history import Outcome
from kerneldyno.client.rewarding import OnMissing
from kerneldyno.client.sources import in_thread
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.fleet_service_pb2 import Node, Quarantine, WatchClusterResponse
from kerneldyno.v1.reward_service_pb2 import RewardSpec, StreamRewardsResponse, Turn
from kerneldyno.v1.scheduler_service_pb2 import (
    Evaluation,
    SchedulerServiceGetCapabilitiesResponse,
    ValidateRequestResponse,
)

_List = list  # the method Client.list hides the name
_T = TypeVar("_T")


class Client:
    """A connection to a scheduler, for programs without asyncio. The parameters are those of AsyncClient.

    with Client("127.0.0.1:50051") as client:
        for result in client.evaluate(requests):
            print(result.id, EvalResult.Outcome.Name(result.outcome))
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        client_id: str | None = None,
        window: int = 256,
        reconnect_timeout: float = 60.0,
        call_timeout: float = 10.0,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        token: str | None = None,
        on_stalled: Callable[[str], None] | None = None,
    ) -> None:
        self._client = AsyncClient(
            address,
            client_id=client_id,
            window=window,
            reconnect_timeout=reconnect_timeout,
            call_timeout=call_timeout,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            token=token,
            on_stalled=on_stalled,
        )
        self.address = self._client.address
        self.client_id = self._client.client_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a program that forgets to close the client can still end.
        self._thread = threading.Thread(target=self._loop.run_forever, name="kerneldyno-client", daemon=True)
        self._thread.start()
        self._run(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every open evaluate() and rewards() call, cancelling its work, and close the connection."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._run(self._shut_down())
        finally:
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def evaluate(
        self, requests: Iterable[EvalRequest], *, timeout: float | None = None
    ) -> Generator[EvalResult, None, None]:
        """Do as AsyncClient.evaluate. A generator is read in its own thread, so it may block."""
        source = requests if isinstance(requests, Collection) else in_thread(requests)
        return self._iterate(self._client.evaluate(source, timeout=timeout))

    def rewards(
        self,
        turns: Iterable[Turn],
        reward: RewardSpec | str = "drkernel",
        *,
        timeout: float | None = None,
        retries: int = 2,
        on_missing: OnMissing = "raise",
    ) -> Generator[StreamRewardsResponse, None, None]:
        """Do as AsyncClient.rewards. A generator is read in its own thread, so it may block."""
        source = turns if isinstance(turns, Collection) else in_thread(turns)
        answers = self._client.rewards(source, reward, timeout=timeout, retries=retries, on_missing=on_missing)
        return self._iterate(answers)

    def evaluate_once(self, request: EvalRequest, timeout: float = 600.0) -> EvalResult:
        """Do as AsyncClient.evaluate_once."""
        return self._run(self._client.evaluate_once(request, timeout))

    def get(self, id: str) -> Evaluation:
        """Do as AsyncClient.get."""
        return self._run(self._client.get(id))

    def cancel(self, id: str) -> None:
        """Do as AsyncClient.cancel."""
        self._run(self._client.cancel(id))

    def cancel_many(self, ids: Iterable[str]) -> int:
        """Do as AsyncClient.cancel_many."""
        return self._run(self._client.cancel_many(ids))

    def cancel_all(self) -> int:
        """Do as AsyncClient.cancel_all."""
        return self._run(self._client.cancel_all())

    def list(
        self,
        *,
        client_id: str = "",
        outcomes: Iterable[Outcome] = (),
        unfinished: bool = False,
        labels: Mapping[str, str] | None = None,
        accepted_after: datetime | None = None,
        accepted_before: datetime | None = None,
        digest: str = "",
        full_results: bool = False,
        page_size: int = 100,
    ) -> Generator[Evaluation, None, None]:
        """Do as AsyncClient.list."""
        found = self._client.list(
            client_id=client_id,
            outcomes=outcomes,
            unfinished=unfinished,
            labels=labels,
            accepted_after=accepted_after,
            accepted_before=accepted_before,
            digest=digest,
            full_results=full_results,
            page_size=page_size,
        )
        return self._iterate(found)

    def capabilities(self) -> SchedulerServiceGetCapabilitiesResponse:
        """Do as AsyncClient.capabilities."""
        return self._run(self._client.capabilities())

    def validate(
        self, request: EvalRequest, *, compile: bool = False, timeout: float | None = None
    ) -> ValidateRequestResponse:
        """Do as AsyncClient.validate."""
        return self._run(self._client.validate(request, compile=compile, timeout=timeout))

    def nodes(self) -> _List[Node]:
        """Do as AsyncClient.nodes."""
        return self._run(self._client.nodes())

    def watch(self) -> Generator[WatchClusterResponse, None, None]:
        """Do as AsyncClient.watch."""
        return self._iterate(self._client.watch())

    def drain(self, node_id: str) -> Node:
        """Do as AsyncClient.drain."""
        return self._run(self._client.drain(node_id))

    def undrain(self, node_id: str) -> Node:
        """Do as AsyncClient.undrain."""
        return self._run(self._client.undrain(node_id))

    def quarantines(self) -> _List[Quarantine]:
        """Do as AsyncClient.quarantines."""
        return self._run(self._client.quarantines())

    def release(self, *, node_id: str = "", digest: str = "") -> None:
        """Do as AsyncClient.release."""
        self._run(self._client.release(node_id=node_id, digest=digest))

    def _iterate(self, items: AsyncGenerator[_T, None]) -> Generator[_T, None, None]:
        # An interrupted step may still be cleaning up when the finally clause runs; the lock makes that clause wait. If
        # Ctrl-C came before anybody waited for a step, it has not even been cancelled yet.
        turn = asyncio.Lock()
        last: asyncio.Task[Any] | None = None

        async def step() -> _T | None:
            nonlocal last
            last = asyncio.current_task()
            async with turn:
                return await anext(items, None)

        async def finish() -> None:
            if last is not None and not last.cancelling():  # a second cancel would interrupt its clean-up
                last.cancel()
            async with turn:
                await items.aclose()

        try:
            while (item := self._run(step())) is not None:
                yield item
        finally:
            if self._loop is not None:
                self._run(finish())

    async def _shut_down(self) -> None:
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None:
            work.close()
            raise ClientClosedError("the client is not open; use it in a `with` block")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller's thread; if the work itself raised, there is nothing to cancel
            raise
