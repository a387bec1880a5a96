"""What a right candidate's inspection consists of, as its request asks. Called by the lane when its runner has ended."""

from __future__ import annotations

from collections.abc import Sized

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.spec import EvalSpec
from ..results.record import Record
from . import counters, sanitizer
from .watched import Watcher


def is_wanted(spec: EvalSpec, result: pb.EvalResult, workloads: Sized) -> bool:
    """Return True if a right candidate shall be inspected; of several workloads, only in the last one."""
    last = not workloads or spec.problem.workload == len(workloads) - 1
    return last and (spec.inspection.counters or sanitizer.is_wanted(spec, result))


async def inspect(watcher: Watcher, result: pb.EvalResult, record: Record) -> pb.EvalResult:
    """Return the result with what the tools saw, or the result that replaces it if they saw errors of memory."""
    spec = watcher.spec
    if spec.inspection.counters:
        profile = result.profile if result.HasField("profile") else None
        result.counters.CopyFrom(await counters.read(watcher, profile))
    if sanitizer.is_wanted(spec, result):
        report = await sanitizer.examine(watcher)
        result = sanitizer.apply(report, result, record, spec)
    return result
