"""Verdicts: from what happened to an EvalResult. There is one function for each way in which an evaluation can end.

No other file of the judge builds an EvalResult. All free text goes through `clean` or `_sendable`, so that every result
can be sent to the server and read there.

Only this module assigns blame. What the candidate's own process did counts as the candidate's doing, whatever it
claims. What only the judge saw fail on its own side is infrastructure.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.out_of_memory import says_device_lacks_memory, says_host_lacks_memory
from ...shared.tracebacks import ErrorDescription
from ...walls.limits import MAX_TASKS
from ..comparison.evidence import Mismatch
from ..memory.footprint import Footprint
from ..runners.handle import ExitReport
from .missing_module import missing_module
from .times import Times

#: Exceptions of Triton's compiler and assembler, by class name anywhere among the bases.
_COMPILE_ERRORS = {"CompilationError", "PTXASError", "OutOfResources", "UnsupportedLanguageConstruct"}
#: The message of a RuntimeError that Triton raises when one of its compiler's passes fails.
_COMPILER_CRASH = "PassManager::run failed"
#: Python's message at the limit of processes and threads.
_NO_THREAD = "can't start new thread"
#: Stages in which a candidate is not compiled yet.
_NOT_COMPILED = ("build", "load", "compile")
#: What a number that stands for a trial means (IncorrectEvidence.trial).
_CALLS = {
    -1: "a timed call",
    -2: "the first call",
    -3: "a repeated call",
    -4: "a call under compute-sanitizer",
}
#: Shorter stops, in seconds, are not mentioned in a result.
_WORTH_TELLING = 0.1
#: Outcomes that a single call can have.
_OF_A_CALL = (
    pb.EvalResult.INCORRECT,
    pb.EvalResult.COMPILE_ERROR,
    pb.EvalResult.RUNTIME_ERROR,
    pb.EvalResult.TIMEOUT,
    pb.EvalResult.OUT_OF_MEMORY,
)
_MAX_LOG = 16 * 1024
_MAX_EVIDENCE = 1000
#: Parts of the output of Python's fault handler that are not the candidate's own frames: frames of the judge and of
#: libraries, and a list of modules.
_FOREIGN_FRAME = re.compile(
    r'^(  File "(?!/tmp/scratch/candidate\.py").*", line \d+ in .*|Extension modules: .*)\n?', re.MULTILINE
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def correct(
    report: pb.CorrectnessReport,
    passed: int,
    findings: Sequence[pb.Finding],
    times: Times | None = None,
    profile: pb.KernelProfile | None = None,
    code: Sequence[pb.KernelCode] = (),
) -> pb.EvalResult:
    """Return the result of a candidate whose outputs were all right; `times` and the rest if it has them."""
    result = _result(pb.EvalResult.CORRECT, f"all outputs of {passed} trials are right", compiled=True)
    result.correctness.CopyFrom(report)
    result.findings.extend(findings)
    result.kernel_code.extend(code)
    if times is not None:
        result.MergeFrom(
            pb.EvalResult(
                timing_effort=times.timing_effort,
                candidate_timing=times.candidate_timing,
                candidate_end_to_end=times.candidate_end_to_end,
                reference_timing=times.reference_timing,
                reference_end_to_end=times.reference_end_to_end,
                speedup=times.speedup,
                speedup_interval=times.speedup_interval,
                end_to_end_speedup=times.end_to_end_speedup,
                end_to_end_speedup_interval=times.end_to_end_speedup_interval,
                device_state=times.device_state,
                roofline=times.roofline,
                baselines=times.baselines,
                energy=times.energy,
                reference_energy=times.reference_energy,
            )
        )
    if profile is not None:
        result.coverage = profile.device_time_coverage
        result.profile.CopyFrom(profile)
    return result


def incorrect(
    mismatch: Mismatch, trial: int, report: pb.CorrectnessReport, findings: Sequence[pb.Finding]
) -> pb.EvalResult:
    """Return the result of a candidate that was wrong, in trial number `trial` or in one of the calls of `_CALLS`."""
    evidence = pb.IncorrectEvidence(
        output=mismatch.output,
        kind=mismatch.kind,
        detail=clean(mismatch.detail, 500),
        mismatched_elements=mismatch.mismatched_elements,
        total_elements=mismatch.total_elements,
        max_abs_error=mismatch.max_abs_error,
        max_error_ratio=mismatch.max_error_ratio,
        worst_index=mismatch.worst_index,
        trial=trial,
        stress=pb.StressKind.ValueType(mismatch.stress),
    )
    where = _CALLS.get(trial, f"trial {trial}")
    result = _result(pb.EvalResult.INCORRECT, f"{evidence.detail} ({where})", compiled=True, incorrect=evidence)
    result.correctness.CopyFrom(report)
    result.findings.extend(findings)
    return result


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the host's memory and of the device's (0: all that is free) a candidate may have, in bytes."""

    host: int
    device: int = 0


def memory_use(found: Footprint, planned: int, limits: Limits) -> pb.MemoryUse:
    """Return a result's report on memory: what a problem takes, what was planned in bytes, and the candidate's limits."""
    return pb.MemoryUse(
        planned_bytes=planned,
        reference_peak_bytes=found.working + found.parameters,
        candidate_limit_bytes=limits.device,
        candidate_host_limit_bytes=limits.host,
        input_bytes=found.inputs,
        output_bytes=found.outputs,
    )


def raised(stage: str, error: ErrorDescription, limits: Limits, findings: Sequence[pb.Finding] = ()) -> pb.EvalResult:
    """Return the result of a candidate that raised.

    `error` is what its runner says. The judge believes it, because no way of failing is better than another.
    """
    evidence = pb.ExceptionEvidence(
        stage=stage,
        type=clean(error.type, 200),
        message=clean(error.message, 4096),
        traceback=clean(error.traceback, 8192),
    )
    bases = set(error.bases)
    sentence = f"{evidence.type}: {_first_line(evidence.message)}".removesuffix(": ")
    if _NO_THREAD in evidence.message:
        sentence += f" (a candidate may have {MAX_TASKS} processes and threads in all, whose stacks are memory)"
    if "NotPlainTensorError" in bases:
        lazy = finding("T04", pb.Finding.SEVERITY_REJECT, f"the candidate returned {evidence.message}")
        return rejected([*findings, lazy], None, compiled=True)
    lacks_host = "MemoryError" in bases or says_host_lacks_memory(evidence.message)
    if lacks_host or "OutOfMemoryError" in bases or says_device_lacks_memory(evidence.message):
        memory = "host" if lacks_host else "device"
        limit = limits.host if memory == "host" else limits.device
        lacking = pb.OutOfMemoryEvidence(memory=memory, stage=stage, detail=sentence, limit_bytes=limit)
        message = f"{memory} memory ran out: {sentence}"
        return _result(pb.EvalResult.OUT_OF_MEMORY, message, compiled=stage != "load", out_of_memory=lacking)
    if stage == "load" or bases & _COMPILE_ERRORS or _COMPILER_CRASH in evidence.message:
        return _result(pb.EvalResult.COMPILE_ERROR, sentence, compiled=False, compile_error=evidence)
    kind = "device" if "AcceleratorError" in bases or "CUDA error" in evidence.message else "exception"
    crash = pb.CrashEvidence(kind=kind, stage=stage, exception=evidence)
    return _result(pb.EvalResult.RUNTIME_ERROR, sentence, compiled=True, runtime_error=crash)


def ended(stage: str, report: ExitReport, memory_limit: int) -> pb.EvalResult:
    """Return the result of a candidate whose process ended before it answered."""
    compiled = stage not in _NOT_COMPILED
    if report.out_of_memory:
        detail = f"used more than {memory_limit >> 20} MiB of host memory"
        lacking = pb.OutOfMemoryEvidence(memory="host", stage=stage, detail=detail, limit_bytes=memory_limit)
        message = f"the candidate {detail}"
        return _result(pb.EvalResult.OUT_OF_MEMORY, message, compiled=compiled, out_of_memory=lacking)
    if report.signal:
        message = f"the candidate was ended by signal {report.signal} ({_signal_name(report.signal)}) in {stage}"
        crash = pb.CrashEvidence(kind="signal", stage=stage, signal=report.signal)
    else:
        message = f"the candidate's process exited with status {report.exit_code} in {stage}"
        crash = pb.CrashEvidence(kind="exit", stage=stage, exit_code=report.exit_code or 0)
    return _result(pb.EvalResult.RUNTIME_ERROR, message, compiled=compiled, runtime_error=crash)


def late(stage: str, limit: float, stopped: float) -> pb.EvalResult:
    """Return the result of a candidate that was slower than the limit of a stage, in seconds.

    `stopped` is the time for which it was stopped in addition, because others were timed.
    """
    apart = f", without the {stopped:.1f} s for which it was stopped" if stopped >= _WORTH_TELLING else ""
    return _result(
        pb.EvalResult.TIMEOUT,
        f"{stage} took longer than {limit:g} s{apart}",
        compiled=stage not in _NOT_COMPILED,
        timeout=pb.TimeoutEvidence(stage=stage, limit_seconds=limit),
    )


def rejected(findings: Sequence[pb.Finding], report: pb.CorrectnessReport | None, *, compiled: bool) -> pb.EvalResult:
    """Return the result of a candidate that cheats: at least one of `findings` rejects it."""
    reasons = [found for found in findings if found.severity == pb.Finding.SEVERITY_REJECT]
    evidence = pb.RejectedEvidence(finding_ids=[found.id for found in reasons])
    sentence = "; ".join(found.evidence for found in reasons)
    result = _result(pb.EvalResult.REJECTED, sentence, compiled=compiled, rejected=evidence)
    result.findings.extend(findings)
    if report is not None:
        result.correctness.CopyFrom(report)
    return result


def invalid(field: str, description: str) -> pb.EvalResult:
    """Return the result of a malformed request, or of a candidate with a malformed source."""
    evidence = pb.InvalidEvidence(violations=[pb.FieldViolation(field=field, description=_sendable(description))])
    return _result(pb.EvalResult.INVALID, f"{field}: {description}", compiled=False, invalid=evidence)


def took_all_memory(stage: str, limit: int) -> pb.EvalResult:
    """Return the result of a candidate that left no device memory to the judge; it may have `limit` bytes."""
    detail = "no device memory is left for judging it"
    evidence = pb.OutOfMemoryEvidence(memory="device", stage=stage, detail=detail, limit_bytes=limit)
    return _result(
        pb.EvalResult.OUT_OF_MEMORY,
        f"device memory ran out: {detail}",
        compiled=stage not in _NOT_COMPILED,
        out_of_memory=evidence,
    )


def reference_failed(stage: str, error: ErrorDescription) -> pb.EvalResult:
    """Return the result when the reference, or the cases, failed."""
    told = missing_module(error.type, error.message)
    sentence = told or f"the reference failed: {error.type}: {_first_line(error.message)}"
    evidence = pb.ExceptionEvidence(
        stage=stage,
        type=_sendable(error.type),
        message=_sendable(error.message),
        traceback=_sendable(error.traceback),
    )
    return _result(pb.EvalResult.REFERENCE_ERROR, sentence, compiled=False, reference_error=evidence)


def too_large(memory: str, stage: str, needed: int, available: int) -> pb.EvalResult:
    """Return the result of a problem that needs more memory than the device has, even alone.

    `stage` is the part that did not fit (see ProblemTooLargeEvidence); the two sizes are in bytes.
    """
    what = {
        "inputs": "the inputs and parameters of the reference take",
        "judging": "judging a candidate of this problem beside its reference takes",
    }.get(stage, "the reference needs")
    detail = f"{what} {_gibibytes(needed)} of {memory} memory or more; there are {_gibibytes(available)}"
    evidence = pb.ProblemTooLargeEvidence(
        memory=memory, stage=stage, needed_bytes=needed, device_bytes=available, detail=detail
    )
    return _result(pb.EvalResult.PROBLEM_TOO_LARGE, detail, compiled=False, problem_too_large=evidence)


def infrastructure(cause: str, detail: str, *, retryable: bool) -> pb.EvalResult:
    """Return the result when a part of KernelDyno failed; `cause` is machine-readable."""
    evidence = pb.InfrastructureEvidence(cause=cause, detail=_sendable(detail), retryable=retryable)
    message = f"{cause}: {detail}"
    return _result(pb.EvalResult.INFRASTRUCTURE_ERROR, message, compiled=False, infrastructure_error=evidence)


def finding(identifier: str, severity: pb.Finding.Severity.ValueType, evidence: str) -> pb.Finding:
    """Return a Finding. `evidence` may quote text of a candidate, with anything in it."""
    return pb.Finding(id=identifier, severity=severity, evidence=clean(evidence, _MAX_EVIDENCE))


def in_workload(result: pb.EvalResult, name: str, number: int, total: int) -> None:
    """Say in a result that the candidate failed in one of several fixed cases: in its message, and in `workloads`.

    `number` counts from 1 to `total`. An outcome that says nothing about a single call stays as it is.
    """
    if result.outcome in _OF_A_CALL:
        failed = pb.WorkloadResult(
            workload=pb.Workload(name=name), outcome=result.outcome, message=_sendable(result.message)
        )
        if result.HasField("correctness"):
            failed.correctness.CopyFrom(result.correctness)
        result.workloads.append(failed)
        result.message = workload_message(name, number, total, result.message)


def workload_message(name: str, number: int, total: int, message: str) -> str:
    """Return the message about one of several workloads; `number` counts from 1 to `total`."""
    return _sendable(f"workload {name} ({number} of {total}): {message}")


def complete(
    result: pb.EvalResult,
    stages: Sequence[pb.StageSpan],
    findings: Sequence[pb.Finding],
    use: pb.MemoryUse | None,
    logs: str,
) -> pb.EvalResult:
    """Add what every result has, whatever its outcome; return `result`.

    Args:
        result: The result, which is changed.
        stages: The time spent in each stage.
        findings: Observations. They are added only if the result has none of its own.
        use: The memory that was planned and observed; None if the evaluation ended before that.
        logs: What the candidate printed in its runner; if it had none, the result has what it printed elsewhere.
    """
    result.stages.extend(stages)
    if not result.findings:
        result.findings.extend(findings)
    if use is not None:
        result.memory_use.CopyFrom(use)
    result.logs = clean(_FOREIGN_FRAME.sub("", logs or result.logs), _MAX_LOG + 128)
    return result


def clean(text: str, limit: int) -> str:
    """Return `text` shortened to `limit` characters, as valid Unicode and without control characters.

    Control characters could falsify what an operator sees.
    """
    return _sendable(_CONTROL.sub("", text)[:limit])


def _sendable(text: str) -> str:
    """Return `text` as valid Unicode.

    A protobuf message cannot hold a lone surrogate, and the text of an exception may contain one.
    """
    return text.encode(errors="replace").decode()


def _result(
    outcome: pb.EvalResult.Outcome.ValueType,
    message: str,
    *,
    compiled: bool,
    incorrect: pb.IncorrectEvidence | None = None,
    compile_error: pb.ExceptionEvidence | None = None,
    runtime_error: pb.CrashEvidence | None = None,
    timeout: pb.TimeoutEvidence | None = None,
    out_of_memory: pb.OutOfMemoryEvidence | None = None,
    rejected: pb.RejectedEvidence | None = None,
    invalid: pb.InvalidEvidence | None = None,
    reference_error: pb.ExceptionEvidence | None = None,
    infrastructure_error: pb.InfrastructureEvidence | None = None,
    problem_too_large: pb.ProblemTooLargeEvidence | None = None,
) -> pb.EvalResult:
    """Return a result with one kind of evidence, or with none."""
    return pb.EvalResult(
        outcome=outcome,
        compiled=compiled,
        correct=outcome == pb.EvalResult.CORRECT,
        speedup=0.0,
        message=_sendable(message),
        incorrect=incorrect,
        compile_error=compile_error,
        runtime_error=runtime_error,
        timeout=timeout,
        out_of_memory=out_of_memory,
        rejected=rejected,
        invalid=invalid,
        reference_error=reference_error,
        infrastructure_error=infrastructure_error,
        problem_too_large=problem_too_large,
    )


def _gibibytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
