"""Which requests have native code that a node's builders may have to build. Scheduler and evaluator use the same rule."""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb

#: PyTorch's module for building extensions, whose name stands in every source that uses it openly.
_EXTENSIONS = "cpp_extension"


def may_need_build(request: pb.EvalRequest) -> bool:
    """Return True if the candidate may have native code: it may pass through STAGE_BUILDING before it gets a lane."""
    return request.backend == "cuda" or bool(request.kernel_files) or _EXTENSIONS in request.kernel_code
