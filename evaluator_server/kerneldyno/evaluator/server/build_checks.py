"""Build orders of the scheduler: does the native code of a request compile? Nothing is judged, and no lane is taken.

An order waits for the node's builder in one line with attempts, under the same limits, and fills the same cache. It
belongs to the Work stream on which it came: when that stream ends, its orders are cancelled, and the scheduler sends
them to another node. `compilation` says what the builder's answer means.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kerneldyno.rpc import errors, validation
from kerneldyno.rpc.native import may_need_build
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from .attempt import BuildOutcome
from .node import Node

#: Characters of the compilers' messages, and of the sentence about libraries that were left to the lane.
_MAX_MESSAGE = 4096
_MAX_DETAIL = 1000
#: What torch says where it finds no CUDA. A source that prints it only hides from its author whether it compiles.
_NO_CUDA = "CUDA_HOME environment variable is not set"


class BuildChecks:
    """The build orders of one Work stream. One event loop calls all methods."""

    def __init__(self, node: Node, report: Callable[[fleet_pb.BuildReport], None]) -> None:
        """Create it without orders. `report` gets one report for each order, but none for one that was cancelled."""
        self._node = node
        self._report = report
        self._orders: dict[str, float] = {}  # by build id: when it came, in seconds of the monotonic clock

    def take(self, order: fleet_pb.BuildOrder) -> None:
        """Have an order built. An order that is here already is the same one."""
        if order.build_id in self._orders:
            return
        self._orders[order.build_id] = time.monotonic()
        request = order.request
        if (refused := self._refusal(request)) is not None:
            self._answer(order.build_id, refused)
        elif not may_need_build(request):
            self._answer(order.build_id, compilation(BuildOutcome(pb.StageSpan())))
        else:
            assert self._node.builders is not None
            full = validation.effective(request)
            full.ClearField("trace_context")
            self._node.builders.build(
                _token(order.build_id), full, lambda outcome: self._answer(order.build_id, compilation(outcome))
            )

    def cancel(self, build_id: str) -> None:
        """Stop the building of an order, and report nothing. Ignore unknown ids."""
        if self._orders.pop(build_id, None) is not None and self._node.builders is not None:
            self._node.builders.cancel(_token(build_id))

    def cancel_all(self) -> None:
        """Do so with all orders: their stream has ended."""
        for build_id in list(self._orders):
            self.cancel(build_id)

    def _refusal(self, request: pb.EvalRequest) -> pb.Compilation | None:
        node, offered = self._node, self._node.description
        violations = validation.validate(
            request,
            backends=offered.backends,
            toolkits=offered.toolkits,
            profiling=offered.profiling,
            id_required=False,
        )
        if violations:
            text = "; ".join(f"{each.field}: {each.description}" for each in violations)
            return not_compiled(pb.Compilation.REASON_INVALID_REQUEST, text[:_MAX_DETAIL])
        if node.draining or node.drained_by_scheduler:
            return not_compiled(pb.Compilation.REASON_NODE_LOST, "the node is being stopped")
        if node.builders is None or not node.builders.places:
            text = "the node's builder does not work, or it has none (--builders); the evaluator's log says why"
            return not_compiled(pb.Compilation.REASON_NO_BUILDER, text)
        try:
            node.require_builder()
        except errors.LanesFullError as full:
            return not_compiled(pb.Compilation.REASON_BUSY, full.message)
        return None

    def _answer(self, build_id: str, answer: pb.Compilation) -> None:
        if (since := self._orders.pop(build_id, None)) is None:  # it was cancelled
            return
        answer.seconds = time.monotonic() - since
        answer.node_id = self._node.node_id
        self._report(fleet_pb.BuildReport(build_id=build_id, compilation=answer))


def compilation(outcome: BuildOutcome) -> pb.Compilation:
    """Return what a builder's answer says about the sources. Refused libraries count more than those that are missing."""
    found = pb.Compilation(builds=outcome.builds)
    result, refused = outcome.result, _messages(outcome)
    if _NO_CUDA in refused:
        text = "the builder of this node finds no CUDA, so it builds C++ only; there the candidate is a COMPILE_ERROR"
        found.MergeFrom(not_compiled(pb.Compilation.REASON_NO_BUILDER, text))
    elif result is not None and result.outcome == pb.EvalResult.TIMEOUT:
        found.state, found.detail = pb.Compilation.STATE_TIMED_OUT, result.message
    elif result is not None:
        found.state, found.detail = pb.Compilation.STATE_FAILED, result.message
        found.error.CopyFrom(result.compile_error)
        found.error.stage = found.error.stage or "load"
        found.error.message = found.error.message or refused
    elif any(build.failed for build in outcome.builds):
        found.state = pb.Compilation.STATE_FAILED
        found.detail = "the compilers refused a library; the candidate catches the error, so it would still be judged"
        found.error.stage, found.error.type = "load", "RuntimeError"
        found.error.message = refused
    elif outcome.broken:
        found.MergeFrom(not_compiled(pb.Compilation.REASON_BUILDER_FAILED, outcome.broken))
    elif outcome.left:
        text = "; ".join(f"{name}: {reason}" for name, reason in outcome.left)
        text = f"left to the candidate's own process: {text}"
        found.MergeFrom(not_compiled(pb.Compilation.REASON_LEFT_TO_LANE, text[:_MAX_DETAIL]))
    elif outcome.builds:
        found.state = pb.Compilation.STATE_COMPILED
    else:
        found.state = pb.Compilation.STATE_NOTHING_TO_COMPILE
        found.detail = (
            "a builder finds nothing that is built ahead; what the candidate builds later is built in the lane"
        )
    return found


def not_compiled(reason: pb.Compilation.Reason.ValueType, detail: str) -> pb.Compilation:
    """Return the answer if nobody knows whether the sources compile."""
    return pb.Compilation(state=pb.Compilation.STATE_NOT_COMPILED, reason=reason, detail=detail)


def _messages(outcome: BuildOutcome) -> str:
    """Return what the compilers said of all libraries that they refused. A message cannot hold a lone surrogate."""
    text = "\n".join(outcome.libraries.get("failures", {}).values())
    return text[:_MAX_MESSAGE].encode(errors="replace").decode()


def _token(build_id: str) -> str:
    return f"build/{build_id}"
