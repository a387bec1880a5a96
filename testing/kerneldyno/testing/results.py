"""Make results like those of a real judge, with the evidence that rewards, feedback and reports read.

A test's own judge returns them (kerneldyno.testing.fake_scheduler), and so does a scripted node (script.py). Ids, labels
and digests are not set here; the scheduler sets them. Pure.
"""

from __future__ import annotations

from kerneldyno.v1.evaluation_pb2 import EvalResult, Finding, KernelUse

#: What a call of the reference takes, in seconds, by device time; end to end it takes twice as long.
REFERENCE_SECONDS = 0.002
#: Ends of the 95 % interval of a speedup, as multiples of it.
_LOW, _HIGH = 0.9, 1.1
_TRIALS = 5


def correct(
    speedup: float = 1.0, *, end_to_end_speedup: float | None = None, coverage: float | None = None
) -> EvalResult:
    """Return the result of a CORRECT candidate.

    Args:
        speedup: by device time, with times and an interval to match; 0 for a candidate that was not timed.
        end_to_end_speedup: the same end to end; None for the value of `speedup`.
        coverage: share of the device's time in the candidate's own kernels, 0 to 1, by every definition; None for a
            candidate that was not profiled.
    """
    result = EvalResult(outcome=EvalResult.CORRECT, compiled=True, correct=True, attempts=1)
    if speedup:
        result.correctness.passed_trials = result.correctness.total_trials = _TRIALS
        result.speedup = speedup
        result.speedup_interval.low, result.speedup_interval.high = _LOW * speedup, _HIGH * speedup
        result.reference_timing.median_seconds = REFERENCE_SECONDS
        result.candidate_timing.median_seconds = REFERENCE_SECONDS / speedup
        add_end_to_end(result, speedup if end_to_end_speedup is None else end_to_end_speedup)
    if coverage is not None:
        _add_profile(result, coverage)
    return result


def add_end_to_end(result: EvalResult, speedup: float) -> None:
    """Add an end-to-end speedup to `result`, with times and an interval to match."""
    result.end_to_end_speedup = speedup
    result.end_to_end_speedup_interval.low = _LOW * speedup
    result.end_to_end_speedup_interval.high = _HIGH * speedup
    result.reference_end_to_end.median_seconds = 2 * REFERENCE_SECONDS
    result.candidate_end_to_end.median_seconds = 2 * REFERENCE_SECONDS / speedup


def incorrect(detail: str = "3 of 8 elements are wrong") -> EvalResult:
    """Return the result of a candidate with wrong values; `detail` says what is wrong."""
    result = _failed(EvalResult.INCORRECT)
    result.incorrect.kind, result.incorrect.detail = "values", detail
    return result


def compile_error(traceback: str = "line 3: scripted") -> EvalResult:
    """Return the result of a candidate that did not compile."""
    result = _failed(EvalResult.COMPILE_ERROR)
    result.compiled = False
    result.compile_error.type, result.compile_error.traceback = "CompilationError", traceback
    return result


def runtime_error(type: str = "ValueError", message: str = "") -> EvalResult:
    """Return the result of a candidate that raised an exception of this type."""
    result = _failed(EvalResult.RUNTIME_ERROR)
    result.runtime_error.kind = "exception"
    result.runtime_error.exception.type, result.runtime_error.exception.message = type, message
    return result


def timeout(stage: str = "compile", limit_seconds: float = 60.0) -> EvalResult:
    """Return the result of a candidate that exceeded the time limit of a stage: load, compile, correctness or timing."""
    result = _failed(EvalResult.TIMEOUT)
    result.timeout.stage, result.timeout.limit_seconds = stage, limit_seconds
    return result


def out_of_memory() -> EvalResult:
    """Return the result of a candidate that exceeded its limit of memory."""
    return _failed(EvalResult.OUT_OF_MEMORY)


def rejected(*findings: str) -> EvalResult:
    """Return the result of a candidate that cheated.

    Args:
        findings: ids of docs/threat-model.md, such as "S19".
    """
    result = _failed(EvalResult.REJECTED)
    for id in findings:
        result.findings.add(id=id, severity=Finding.SEVERITY_REJECT, evidence="scripted")
        result.rejected.finding_ids.append(id)
    return result


def invalid(field: str = "kernel_code", description: str = "scripted") -> EvalResult:
    """Return the result of a malformed request; only for `kernel_code` the policy is to blame."""
    result = _failed(EvalResult.INVALID)
    result.compiled = False
    result.invalid.violations.add(field=field, description=description)
    return result


def reference_error(type: str = "NameError", message: str = "scripted") -> EvalResult:
    """Return the result of an evaluation whose reference is broken; it has no reward."""
    result = _failed(EvalResult.REFERENCE_ERROR)
    result.reference_error.type, result.reference_error.message = type, message
    return result


def problem_too_large(memory: str = "device") -> EvalResult:
    """Return the result of a problem that fits on no device; it has no reward.

    Args:
        memory: what is too small: "device" or "host".
    """
    result = _failed(EvalResult.PROBLEM_TOO_LARGE)
    result.compiled = False
    result.problem_too_large.memory, result.problem_too_large.stage = memory, "reference"
    return result


def infrastructure_error(cause: str = "JUDGE_DIED", *, retryable: bool = True) -> EvalResult:
    """Return the result of an evaluation that failed although nobody's code was to blame; it has no reward.

    Args:
        cause: what failed, such as "JUDGE_DIED", "NODE_LOST" or "DEVICE_BUSY".
        retryable: whether another attempt may succeed; clients then try again by themselves.
    """
    result = _failed(EvalResult.INFRASTRUCTURE_ERROR)
    evidence = result.infrastructure_error
    evidence.cause, evidence.detail, evidence.retryable = cause, "scripted", retryable
    return result


def _failed(outcome: EvalResult.Outcome.ValueType) -> EvalResult:
    message = f"scripted: {EvalResult.Outcome.Name(outcome)}"
    return EvalResult(outcome=outcome, compiled=True, correct=False, message=message, attempts=1)


def _add_profile(result: EvalResult, coverage: float) -> None:
    result.coverage = coverage
    profile = result.profile
    profile.device_time_coverage = profile.launch_coverage = profile.kernelgym_coverage = coverage
    owner = KernelUse.OWNER_CANDIDATE
    profile.kernels.add(name="own_kernel", owner=owner, launches=1, device_seconds=0.001)
