"""Verdicts: from what happened to the proto-JSON of EvalResult. One function for each way an evaluation can end.

Blame is decided here and nowhere else: what the candidate's own process did is the candidate's doing, whatever it claims
about it; what only the judge could see go wrong on its own side is infrastructure.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...walls.limits import MAX_TASKS
from ..comparison.evidence import Comparison
from ..runners.handle import ExitReport
from .missing_module import missing_module

Result = dict[str, Any]

#: Exceptions of Triton's compiler and assembler, by class name anywhere among the bases.
_COMPILE_ERRORS = {"CompilationError", "PTXASError", "OutOfResources", "UnsupportedLanguageConstruct"}
#: What Triton says when one of its compiler's passes fails: a plain RuntimeError.
_COMPILER_CRASH = "PassManager::run failed"
#: What Python says at the limit of processes and threads.
_NO_THREAD = "can't start new thread"
#: A stop for others that is shorter than this needs no mention, in seconds.
_WORTH_TELLING = 0.1
_MAX_LOG = 16 * 1024
_MAX_EVIDENCE = 1000
#: What Python's fault handler prints besides the candidate's own frames: ours, the libraries', and a list of modules.
_FOREIGN_FRAME = re.compile(
    r'^(  File "(?!/tmp/scratch/candidate\.py").*", line \d+ in .*|Extension modules: .*)\n?', re.MULTILINE
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str, limit: int) -> str:
    """Return `text` capped, without control characters (which could forge what an operator sees) and as valid Unicode."""
    return _CONTROL.sub("", text)[:limit].encode(errors="replace").decode()


def _result(outcome: str, message: str, *, compiled: bool, **more: Any) -> Result:
    return {
        "outcome": outcome,
        "compiled": compiled,
        "correct": outcome == "CORRECT",
        "speedup": 0.0,
        "message": message,
        **more,
    }


def correct(report: Result, passed: int) -> Result:
    """Every output was right."""
    return _result("CORRECT", f"all outputs of {passed} trials are right", compiled=True, correctness=report)


def incorrect(comparison: Comparison, trial: int, report: Result, findings: Sequence[Result]) -> Result:
    """An output was wrong."""
    assert comparison.mismatch is not None
    evidence = {**comparison.mismatch, "detail": clean(comparison.mismatch["detail"], 500), "trial": trial}
    where = "a timed call" if trial < 0 else f"trial {trial}"
    return _result(
        "INCORRECT",
        f"{evidence['detail']} ({where})",
        compiled=True,
        incorrect=evidence,
        correctness=report,
        findings=list(findings),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate may have of the host's memory, and of the device's (0: whatever is there), in bytes."""

    host: int
    device: int = 0


def raised(stage: str, error: Any, limits: Limits, findings: Sequence[Result] = ()) -> Result:
    """The candidate raised, as its runner says: believed, since no way of failing is better than another."""
    if not isinstance(error, dict):
        error = {}
    evidence = {
        "stage": stage,
        "type": clean(str(error.get("type", "")), 200),
        "message": clean(str(error.get("message", "")), 4096),
        "traceback": clean(str(error.get("traceback", "")), 8192),
    }
    bases = {str(base) for base in error.get("bases", ())} if isinstance(error.get("bases"), list) else set()
    sentence = f"{evidence['type']}: {_first_line(evidence['message'])}".removesuffix(": ")
    if _NO_THREAD in evidence["message"]:
        sentence += f" (a candidate may have {MAX_TASKS} processes and threads in all, whose stacks are memory)"
    if "NotPlainTensorError" in bases:
        lazy = finding("T04", "SEVERITY_REJECT", f"the candidate returned {evidence['message']}")
        return rejected([*findings, lazy], None, compiled=True)
    if "OutOfMemoryError" in bases or "MemoryError" in bases:
        memory = "host" if "MemoryError" in bases else "device"
        detail = {
            "memory": memory,
            "stage": stage,
            "detail": sentence,
            "limit_bytes": str(limits.host if memory == "host" else limits.device),
        }
        return _result(
            "OUT_OF_MEMORY", f"{memory} memory ran out: {sentence}", compiled=stage != "load", out_of_memory=detail
        )
    if stage == "load" or bases & _COMPILE_ERRORS or _COMPILER_CRASH in evidence["message"]:
        return _result("COMPILE_ERROR", sentence, compiled=False, compile_error=evidence)
    kind = "device" if "AcceleratorError" in bases or "CUDA error" in evidence["message"] else "exception"
    return _result(
        "RUNTIME_ERROR", sentence, compiled=True, runtime_error={"kind": kind, "stage": stage, "exception": evidence}
    )


def ended(stage: str, report: ExitReport, memory_limit: int) -> Result:
    """The candidate's process ended before it answered."""
    compiled = stage not in ("load", "compile")
    if report.out_of_memory:
        detail = f"used more than {memory_limit >> 20} MiB of host memory"
        evidence = {"memory": "host", "stage": stage, "detail": detail, "limit_bytes": str(memory_limit)}
        return _result("OUT_OF_MEMORY", f"the candidate {detail}", compiled=compiled, out_of_memory=evidence)
    if report.signal:
        message = f"the candidate was ended by signal {report.signal} ({_signal_name(report.signal)}) in {stage}"
        crash: dict[str, Any] = {"kind": "signal", "stage": stage, "signal": report.signal}
    else:
        message = f"the candidate's process exited with status {report.exit_code} in {stage}"
        crash = {"kind": "exit", "stage": stage, "exit_code": report.exit_code or 0}
    return _result("RUNTIME_ERROR", message, compiled=compiled, runtime_error=crash)


def late(stage: str, limit: float, stopped: float) -> Result:
    """A stage ran past its limit; for `stopped` seconds more the candidate was stopped, while others were timed."""
    apart = f", without the {stopped:.1f} s for which it was stopped" if stopped >= _WORTH_TELLING else ""
    return _result(
        "TIMEOUT",
        f"{stage} took longer than {limit:g} s{apart}",
        compiled=stage not in ("load", "compile"),
        timeout={"stage": stage, "limit_seconds": limit},
    )


def rejected(findings: Sequence[Result], report: Result | None, *, compiled: bool) -> Result:
    """The candidate cheats."""
    ids = [finding["id"] for finding in findings if finding["severity"] == "SEVERITY_REJECT"]
    sentence = "; ".join(finding["evidence"] for finding in findings if finding["severity"] == "SEVERITY_REJECT")
    more = {"correctness": report} if report else {}
    return _result(
        "REJECTED", sentence, compiled=compiled, findings=list(findings), rejected={"finding_ids": ids}, **more
    )


def invalid(field: str, description: str) -> Result:
    """The request or the candidate's source is malformed."""
    violations = [{"field": field, "description": description}]
    return _result("INVALID", f"{field}: {description}", compiled=False, invalid={"violations": violations})


def took_all_memory(stage: str, limit: int) -> Result:
    """The judge found no device memory left beside the candidate, which may have `limit` bytes."""
    detail = "no device memory is left for judging it"
    evidence = {"memory": "device", "stage": stage, "detail": detail, "limit_bytes": str(limit)}
    return _result(
        "OUT_OF_MEMORY",
        f"device memory ran out: {detail}",
        compiled=stage not in ("load", "compile"),
        out_of_memory=evidence,
    )


def reference_failed(detail: Result) -> Result:
    """The reference, or the cases, failed."""
    told = missing_module(detail["type"], detail["message"])
    sentence = told or f"the reference failed: {detail['type']}: {_first_line(detail['message'])}"
    return _result("REFERENCE_ERROR", sentence, compiled=False, reference_error=detail)


def too_large(memory: str, stage: str, needed: int, available: int) -> Result:
    """The problem needs more memory than there is, even alone: in `stage` (see ProblemTooLargeEvidence)."""
    what = {
        "inputs": "the inputs and parameters of the reference take",
        "judging": "judging a candidate of this problem beside its reference takes",
    }.get(stage, "the reference needs")
    detail = f"{what} {_gibibytes(needed)} of {memory} memory or more; there are {_gibibytes(available)}"
    evidence = {
        "memory": memory,
        "stage": stage,
        "needed_bytes": str(needed),
        "device_bytes": str(available),
        "detail": detail,
    }
    return _result("PROBLEM_TOO_LARGE", detail, compiled=False, problem_too_large=evidence)


def _gibibytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB"


def infrastructure(cause: str, detail: str, *, retryable: bool) -> Result:
    """Something of ours failed."""
    evidence = {"cause": cause, "detail": detail, "retryable": retryable}
    return _result("INFRASTRUCTURE_ERROR", f"{cause}: {detail}", compiled=False, infrastructure_error=evidence)


def finding(identifier: str, severity: str, evidence: str) -> Result:
    """A Finding. Its evidence may quote what a candidate says, with anything in it."""
    return {"id": identifier, "severity": severity, "evidence": clean(evidence, _MAX_EVIDENCE)}


def with_logs(result: Result, logs: str) -> Result:
    """Add what the candidate printed."""
    result["logs"] = clean(_FOREIGN_FRAME.sub("", logs), _MAX_LOG + 128)
    return result


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
