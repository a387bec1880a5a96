"""A scripted node whose verdicts have what rewards are made of. Words of a candidate, besides scripted_node's:

speedup=1.5             of a CORRECT candidate; 1.0 otherwise
coverage=0.8            its profile
findings=S19,B01        of a REJECTED one, as rejections
field=entry_point       an INVALID's violation; kernel_code otherwise
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kerneldyno.v1.evaluation_pb2 import EvalResult, Finding
from scripted_node import Held, ScriptedNode

#: What a reference takes here, in seconds.
REFERENCE_SECONDS = 0.002


class ScoredNode(ScriptedNode):
    """One node; its results tell times, coverage and evidence as their script says."""

    def _finish(self, held: Held) -> None:
        super()._finish(held)
        if held.result is not None:
            _complete(held.result, held.script)


def _complete(result: EvalResult, script: dict[str, str]) -> None:
    result.message = result.message or f"scripted: {EvalResult.Outcome.Name(result.outcome)}"
    if result.outcome == EvalResult.CORRECT:
        result.speedup = float(script.get("speedup", "1.0"))
        result.speedup_interval.low, result.speedup_interval.high = 0.9 * result.speedup, 1.1 * result.speedup
        result.reference_timing.median_seconds = REFERENCE_SECONDS
        result.candidate_timing.median_seconds = REFERENCE_SECONDS / result.speedup
        result.correctness.passed_trials = result.correctness.total_trials = 5
    if "coverage" in script:
        result.coverage = result.profile.device_time_coverage = float(script["coverage"])
        result.profile.kernelgym_coverage = 0.5 * result.coverage
        result.profile.kernels.add(name="own_kernel", owner=1, launches=1, device_seconds=0.001)
    for id in filter(None, script.get("findings", "").split(",")):
        result.findings.add(id=id, severity=Finding.SEVERITY_REJECT, evidence="scripted")
        result.rejected.finding_ids.append(id)
    match result.outcome:
        case EvalResult.INVALID:
            result.compiled = False
            result.invalid.violations.add(field=script.get("field", "kernel_code"), description="scripted")
        case EvalResult.INCORRECT:
            result.incorrect.kind, result.incorrect.detail = "values", "3 of 8 elements are wrong"
        case EvalResult.COMPILE_ERROR:
            result.compile_error.type, result.compile_error.traceback = "CompilationError", "line 3: scripted"
        case EvalResult.RUNTIME_ERROR:
            result.runtime_error.kind = "exception"
            result.runtime_error.exception.type = "ValueError"
        case EvalResult.TIMEOUT:
            result.timeout.stage, result.timeout.limit_seconds = "compile", 60.0
        case EvalResult.REFERENCE_ERROR:
            result.reference_error.type, result.reference_error.message = "NameError", "scripted"


@asynccontextmanager
async def scored_node(scheduler: object, node_id: str = "n1", **options: Any) -> AsyncIterator[ScoredNode]:
    """Run a node for `scheduler` ("host:port") while the context lasts; leaving it is a sudden death."""
    node = ScoredNode(node_id, **options)
    await node.listen()
    running = asyncio.get_running_loop().create_task(node.run(str(scheduler)))
    try:
        yield node
    finally:
        node.die()
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
