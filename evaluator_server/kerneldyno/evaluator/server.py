"""The gRPC edge of a node: translate, ask the node, translate.

Errors are raised as `kerneldyno.rpc.errors` and mapped by the interceptor. Requests are checked here, because a person
may call a node directly, and get their defaults here, so that nobody behind this line has to know one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from kerneldyno.rpc import validation
from kerneldyno.rpc.errors import InvalidRequestError
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc

from .attempt import Attempt, Snapshot
from .node import Node

_MAX_TOKEN_CHARS = 100


class EvaluatorService(pb_grpc.EvaluatorServiceServicer):
    """kerneldyno.v1.EvaluatorService over one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def Evaluate(  # noqa: N802
        self, request: pb.EvaluatorServiceEvaluateRequest, context: Any
    ) -> AsyncIterator[pb.EvaluatorServiceEvaluateResponse]:
        """Start an attempt and stream its snapshots."""
        attempt = self._node.start(request.attempt_token, self._checked(request))
        async with aclosing(self._node.watch(attempt)) as snapshots:
            async for snapshot in snapshots:
                yield pb.EvaluatorServiceEvaluateResponse(event=_event(attempt, snapshot))

    async def WatchAttempt(  # noqa: N802
        self, request: pb.WatchAttemptRequest, context: Any
    ) -> AsyncIterator[pb.WatchAttemptResponse]:
        """Stream the snapshots of an attempt that is there already."""
        attempt = self._node.get(request.attempt_token)
        async with aclosing(self._node.watch(attempt)) as snapshots:
            async for snapshot in snapshots:
                yield pb.WatchAttemptResponse(event=_event(attempt, snapshot))

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

    def _checked(self, request: pb.EvaluatorServiceEvaluateRequest) -> eval_pb.EvalRequest:
        """Return the effective request. Raises InvalidRequestError."""
        violations = validation.validate(
            request.request,
            backends=self._node.backends,
            toolkits=self._node.toolkits,
            profiling=self._node.profiling,
            id_required=False,
        )
        if not 1 <= len(request.attempt_token) <= _MAX_TOKEN_CHARS:
            text = f"has {len(request.attempt_token)} characters; choose a token of 1 to {_MAX_TOKEN_CHARS}"
            violations.append(validation.Violation("attempt_token", text))
        if violations:
            raise InvalidRequestError(violations=violations)
        return validation.effective(request.request)


def _event(attempt: Attempt, snapshot: Snapshot) -> eval_pb.AttemptEvent:
    return eval_pb.AttemptEvent(
        attempt_token=attempt.token, stage=snapshot.stage, device=snapshot.device, result=snapshot.result
    )
