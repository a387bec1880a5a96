"""Problems that are judged in eval and in training mode: an evaluation in each, and one result of both.

Called by `service` for each workload. A request that asks for one mode, or for none, needs one evaluation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.enums import ModuleMode, Sanitize
from ..shared.spec import EvalSpec
from .workloads import EvaluateOne, all_correct


async def evaluate(spec: EvalSpec, evaluate_one: EvaluateOne) -> tuple[pb.EvalResult, Sequence[tuple[str, str]]]:
    """Evaluate in the mode of the request, or in eval mode without timing and then in training mode.

    The first result that is not CORRECT ends the evaluation. Raises what `evaluate_one` raises.
    """
    if spec.problem.module_mode != ModuleMode.BOTH:
        return await evaluate_one(spec)
    untimed = replace(
        _in_mode(spec, ModuleMode.EVAL),
        timing=replace(spec.timing, wanted=False),
        inspection=replace(spec.inspection, profile=False, counters=False, sanitize=Sanitize.NONE),
    )
    first, workloads = await evaluate_one(untimed)
    if first.outcome != pb.EvalResult.CORRECT:
        return _raised_in(first, "eval"), workloads
    second, workloads = await evaluate_one(_in_mode(spec, ModuleMode.TRAIN))
    return _together(first, _raised_in(second, "training")), workloads


def _in_mode(spec: EvalSpec, mode: ModuleMode) -> EvalSpec:
    return replace(spec, problem=replace(spec.problem, module_mode=mode))


def _raised_in(result: pb.EvalResult, mode: str) -> pb.EvalResult:
    """Return a result whose message names the mode, if the candidate has failed in a call. (Wrong outputs name it.)"""
    if result.outcome != pb.EvalResult.RUNTIME_ERROR:
        return result
    named = copy.deepcopy(result)
    named.message = f"in {mode} mode: {result.message}"
    return named


def _together(first: pb.EvalResult, second: pb.EvalResult) -> pb.EvalResult:
    """Return the second result with what the first one adds: findings, stages, and what was counted if both are right."""
    whole = copy.deepcopy(second)
    del whole.stages[:]
    whole.stages.extend((*first.stages, *second.stages))
    known = {finding.id for finding in second.findings}
    whole.findings.extend(finding for finding in first.findings if finding.id not in known)
    if second.outcome == pb.EvalResult.CORRECT:
        whole.correctness.CopyFrom(all_correct([first.correctness, second.correctness]))
        whole.message = (
            f"all outputs of {whole.correctness.passed_trials} trials are right, in eval and in training mode"
        )
    return whole
