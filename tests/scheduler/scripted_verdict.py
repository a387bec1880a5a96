"""What a scripted node says of a candidate: results with the evidence of real ones. scripted_node.py has the words."""

from __future__ import annotations

from kerneldyno.v1.evaluation_pb2 import EvalResult, Finding, KernelUse

#: What a reference takes here, in seconds.
REFERENCE_SECONDS = 0.002


def verdict(outcome: EvalResult.Outcome.ValueType, script: dict[str, str], speedup: float) -> EvalResult:
    """Return the result; `speedup` is that of a CORRECT one whose script does not say."""
    result = EvalResult(
        outcome=outcome,
        compiled=outcome != EvalResult.COMPILE_ERROR,
        correct=outcome == EvalResult.CORRECT,
        message="x" * int(script.get("size", "0")),
        attempts=1,
    )
    if outcome == EvalResult.CORRECT:
        _measure(result, script, float(script.get("speedup", speedup)))
    else:
        _give_evidence(result, script)
    return result


def _measure(result: EvalResult, script: dict[str, str], speedup: float) -> None:
    """Put in what was measured of a CORRECT candidate."""
    if speedup:
        result.speedup = speedup
        result.speedup_interval.low, result.speedup_interval.high = 0.9 * speedup, 1.1 * speedup
        result.reference_timing.median_seconds = REFERENCE_SECONDS
        result.candidate_timing.median_seconds = REFERENCE_SECONDS / speedup
        if (end_to_end := script.get("end_to_end", str(speedup))) != "none":  # as an older evaluator
            _measure_end_to_end(result, float(end_to_end))
        result.reference_timing.queued_seconds = float(script.get("queued", "0"))
        result.correctness.passed_trials = result.correctness.total_trials = 5
    if "coverage" in script:
        share = result.coverage = float(script["coverage"])
        result.profile.device_time_coverage = result.profile.launch_coverage = share
        result.profile.kernelgym_coverage = share
        own = KernelUse.OWNER_CANDIDATE
        result.profile.kernels.add(name="own_kernel", owner=own, launches=1, device_seconds=0.001)


def _measure_end_to_end(result: EvalResult, speedup: float) -> None:
    result.end_to_end_speedup = speedup
    result.end_to_end_speedup_interval.low, result.end_to_end_speedup_interval.high = 0.9 * speedup, 1.1 * speedup
    result.reference_end_to_end.median_seconds = 2 * REFERENCE_SECONDS
    result.candidate_end_to_end.median_seconds = 2 * REFERENCE_SECONDS / speedup


def _give_evidence(result: EvalResult, script: dict[str, str]) -> None:
    """Put in why a candidate is not CORRECT."""
    result.message = result.message or f"scripted: {EvalResult.Outcome.Name(result.outcome)}"
    match result.outcome:
        case EvalResult.INVALID:
            result.compiled = False
            result.invalid.violations.add(field=script.get("field", "kernel_code"), description="scripted")
        case EvalResult.REJECTED:
            for id in filter(None, script.get("findings", "").split(",")):
                severity = Finding.SEVERITY_REJECT
                result.findings.add(id=id, severity=severity, evidence="scripted")
                result.rejected.finding_ids.append(id)
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
        case EvalResult.PROBLEM_TOO_LARGE:
            result.compiled = False
            result.problem_too_large.memory = script.get("memory", "device")
            result.problem_too_large.stage = "reference"
        case EvalResult.INFRASTRUCTURE_ERROR:
            result.infrastructure_error.cause = script.get("cause", "JUDGE_DIED")
            result.infrastructure_error.retryable = script.get("retryable", "yes") == "yes"
