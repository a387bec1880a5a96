"""The gRPC edge of a node: translate, ask the node, translate.

Errors are raised as `kerneldyno.rpc.errors` and mapped by the interceptor. It is for people who debug: the scheduler's
attempts come by `work.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from kerneldyno.rpc import trace_context
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc

from .node import Node


class EvaluatorService(pb_grpc.EvaluatorServiceServicer):
    """kerneldyno.v1.EvaluatorService over one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def Evaluate(  # noqa: N802
        self, request: pb.EvaluatorServiceEvaluateRequest, context: Any
    ) -> AsyncIterator[pb.EvaluatorServiceEvaluateResponse]:
        """Start an attempt and stream its snapshots."""
        attempt = self._node.submit(request.attempt_token, request.request, trace=trace_context.of_call())
        async with aclosing(self._node.watch(attempt)) as snapshots:
            async for snapshot in snapshots:
                yield pb.EvaluatorServiceEvaluateResponse(event=snapshot.event(attempt.token))

    async def WatchAttempt(  # noqa: N802
        self, request: pb.WatchAttemptRequest, context: Any
    ) -> AsyncIterator[pb.WatchAttemptResponse]:
        """Stream the snapshots of an attempt that is there already."""
        attempt = self._node.get(request.attempt_token)
        async with aclosing(self._node.watch(attempt)) as snapshots:
            async for snapshot in snapshots:
                yield pb.WatchAttemptResponse(event=snapshot.event(attempt.token))

    async def CancelAttempt(  # noqa: N802
        self, request: pb.CancelAttemptRequest, context: Any
    ) -> pb.CancelAttemptResponse:
        """Kill an attempt."""
        self._node.cancel(request.attempt_token)
        return pb.CancelAttemptResponse()

    async def GetCapabilities(  # noqa: N802
        self, request: pb.EvaluatorServiceGetCapabilitiesRequest, context: Any
    ) -> pb.EvaluatorServiceGetCapabilitiesResponse:
        """Tell what the node can do."""
        return self._node.capabilities()
