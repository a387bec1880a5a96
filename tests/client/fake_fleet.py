"""A fake scheduler with a fake fleet, for tests of the client: verdicts by rule, nodes that can be drained and watched.

The kernel_code of a request decides its result: "sleep SECONDS" takes that long, "hang" never ends, "interval LOW HIGH"
is CORRECT with that speedup interval, anything else is CORRECT at once. Requests are not checked: tests need not fill
them in.
"""

# ruff: noqa: N802  (methods are named by the contract)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from kerneldyno.rpc.errors import NodeNotFoundError, QuarantineNotFoundError
from kerneldyno.testing import FakeScheduler
from kerneldyno.testing.fake_queue import refuse
from kerneldyno.v1 import evaluation_pb2 as ev
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1 import fleet_service_pb2_grpc as fleet_grpc


class FakeFleet(FakeScheduler, fleet_grpc.FleetServiceServicer):
    """A fake scheduler. Use `async with FakeFleet() as scheduler`. It keeps its `address` after a restart."""

    def __init__(self) -> None:
        super().__init__(_judge, checks=False, backends=["triton"], toolkits=["kernelbench"])
        self.nodes: dict[str, fleet.Node] = {}
        self.quarantines: list[fleet.Quarantine] = []
        self.watching = 0
        self._changed = asyncio.Event()  # each change of the cluster replaces it

    async def start(self) -> None:
        await super().start()
        if not self.nodes:
            self._add_nodes()

    def add_services(self, server: grpc.aio.Server) -> None:
        super().add_services(server)
        fleet_grpc.add_FleetServiceServicer_to_server(self, server)

    # FleetService

    def _add_nodes(self) -> None:
        """Add a live node, and a lost node that was too old to report its sandbox."""
        device = fleet.Device(name="cpu:0", kind="cpu", model="A processor", lanes=2, ready=True)
        here = fleet.Node(
            node_id="node-a",
            address=self.address,
            state=fleet.NODE_STATE_SERVING,
            devices=[device],
            labels={"pool": "a", "zone": "z1"},
            connected=True,
            sandbox_layers=[fleet.SandboxLayer(name="pid_namespace", active=True, detail="others are out of sight")],
        )
        here.last_synchronize_time.GetCurrentTime()
        gone = fleet.Node(node_id="node-b", address="127.0.0.1:1", state=fleet.NODE_STATE_LOST)
        self.nodes = {"node-a": here, "node-b": gone}

    def change(self) -> None:
        """Show the current cluster to everyone who watches it."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def ListNodes(self, request: Any, context: Any) -> fleet.ListNodesResponse:
        return fleet.ListNodesResponse(nodes=self.nodes.values())

    async def DrainNode(self, request: fleet.DrainNodeRequest, context: Any) -> fleet.DrainNodeResponse:
        return fleet.DrainNodeResponse(node=await self._drain(request.node_id, True, context))

    async def UndrainNode(self, request: fleet.UndrainNodeRequest, context: Any) -> fleet.UndrainNodeResponse:
        return fleet.UndrainNodeResponse(node=await self._drain(request.node_id, False, context))

    async def _drain(self, node_id: str, drained: bool, context: Any) -> fleet.Node:
        if node_id not in self.nodes:
            await refuse(context, NodeNotFoundError(f"no node {node_id!r} is registered"))
        node = self.nodes[node_id]
        node.drained = drained
        node.state = fleet.NODE_STATE_DRAINING if drained else fleet.NODE_STATE_SERVING
        self.change()
        return node

    async def WatchCluster(self, request: Any, context: Any) -> AsyncIterator[fleet.WatchClusterResponse]:
        if self.refusals:
            await refuse(context, self.refusals.popleft())
        self.watching += 1
        self._streams.add(task := asyncio.ensure_future(asyncio.Event().wait()))
        try:
            while not task.done():
                changed = asyncio.ensure_future(self._changed.wait())
                yield fleet.WatchClusterResponse(
                    nodes=self.nodes.values(), queued=len(self.work), outcomes={"CORRECT": 3}
                )
                await asyncio.wait({changed, task}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
        finally:
            self.watching -= 1
            task.cancel()
            self._streams.discard(task)

    async def ListQuarantines(self, request: Any, context: Any) -> fleet.ListQuarantinesResponse:
        return fleet.ListQuarantinesResponse(quarantines=self.quarantines)

    async def ReleaseQuarantine(
        self, request: fleet.ReleaseQuarantineRequest, context: Any
    ) -> fleet.ReleaseQuarantineResponse:
        kept = [q for q in self.quarantines if (q.node_id, q.digest) != (request.node_id, request.digest)]
        if len(kept) == len(self.quarantines):
            await refuse(context, QuarantineNotFoundError("it is not in quarantine"))
        self.quarantines = kept
        return fleet.ReleaseQuarantineResponse()


async def _judge(request: ev.EvalRequest) -> ev.EvalResult:
    """Return the result that the rule in kernel_code asks for."""
    word, _, argument = request.kernel_code.partition(" ")
    await asyncio.sleep(float(argument) if word == "sleep" else 1e6 if word == "hang" else 0.0)
    result = ev.EvalResult(outcome=ev.EvalResult.CORRECT, compiled=True, correct=True, speedup=2.0)
    result.end_to_end_speedup = 3.0
    result.logs = "what it wrote"
    if word == "interval":
        result.speedup_interval.low, result.speedup_interval.high = map(float, argument.split())
    return result
