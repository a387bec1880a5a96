"""Serve the scheduler's API on a real socket, with verdicts that the test decides: no evaluator, no torch, no GPU.

Trainers and tools are tested against it: their client is the real one, and so are connections, streams, rewards and
feedback. It keeps nothing on disk and does not queue, merge or cache; kerneldyno.testing.cluster runs the real scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import grpc.aio

from kerneldyno.rpc.channel import server_options
from kerneldyno.testing.fake_queue import FakeQueue, Judge, follow_script
from kerneldyno.testing.fake_reward_service import FakeRewardService
from kerneldyno.testing.fake_scheduler_service import FakeSchedulerService
from kerneldyno.testing.loop_thread import InThread
from kerneldyno.v1.reward_service_pb2 import Turn
from kerneldyno.v1.reward_service_pb2_grpc import add_RewardServiceServicer_to_server
from kerneldyno.v1.scheduler_service_pb2 import EvaluateRequest, ListEvaluationsRequest
from kerneldyno.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server


class FakeScheduler(FakeQueue, InThread):
    """A fake scheduler that serves while its block runs.

        with FakeScheduler() as scheduler, Client(scheduler.address) as client:
            ...

    `async with` serves on the running event loop. `with` serves in a thread; there, call coroutines such as
    `break_streams` through `run`. Attributes may be read and set from any thread.

    Args:
        judge: decides how each evaluation ends; by default the candidate's source says (script.py). May be replaced at
            any time.
        checks: whether malformed requests get the outcome INVALID, as the real scheduler gives it; otherwise the judge
            gets them. Malformed turns always do.
        backends, toolkits: names that `Client.capabilities` shows; requests for others are judged all the same.
    """

    def __init__(
        self,
        judge: Judge = follow_script,
        *,
        checks: bool = True,
        backends: Sequence[str] = ("cuda", "torch", "triton"),
        toolkits: Sequence[str] = ("kernel_simple", "kernelbench"),
    ) -> None:
        super().__init__(judge)
        self._evaluations = FakeSchedulerService(self, checks=checks, backends=list(backends), toolkits=list(toolkits))
        self._rewards = FakeRewardService(self)
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """Return where it listens, "127.0.0.1:PORT"; the same after `restart`."""
        return f"127.0.0.1:{self._port}"

    @property
    def messages(self) -> list[EvaluateRequest]:
        """Return all messages of Evaluate streams, in the order of arrival."""
        return self._evaluations.messages

    @property
    def attached(self) -> list[str]:
        """Return the ids that clients attached to after a stream broke."""
        return self._evaluations.attached

    @property
    def lists(self) -> list[ListEvaluationsRequest]:
        """Return all requests of ListEvaluations."""
        return self._evaluations.lists

    @property
    def turns(self) -> list[Turn]:
        """Return all turns that arrived, in order; a turn that was sent again appears again."""
        return self._rewards.turns

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.stop()
        self.forget()

    async def start(self) -> None:
        """Listen; after `stop` on the same port."""
        self._server = grpc.aio.server(options=server_options())
        self.add_services(self._server)
        self._port = self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        """Close the socket and break all calls; evaluations continue."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self, *, forget: bool = False) -> None:
        """Stop and start again, as a scheduler that crashes.

        Args:
            forget: lose all evaluations, as a scheduler without a store; clients then send them again.
        """
        await self.stop()
        if forget:
            self.forget()
        await self.start()

    def add_services(self, server: grpc.aio.Server) -> None:
        """Add the services to a server; a subclass may add more."""
        add_SchedulerServiceServicer_to_server(self._evaluations, server)
        add_RewardServiceServicer_to_server(self._rewards, server)
