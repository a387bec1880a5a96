"""The gRPC edge of a node: each method translates the request, calls the node, and translates the answer.

Methods raise `kerneldyno.rpc.errors`, and the interceptor maps these to gRPC. This service is for debugging; the
scheduler's attempts arrive through `work.py`.
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
    """Serves kerneldyno.v1.EvaluatorService for one node."""

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
        """Stream the snapshots of an existing attempt."""
        attempt = self._node.attempts.get(request.attempt_token)
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
        """Return what the node can do."""
        return self._node.description.capabilities()
