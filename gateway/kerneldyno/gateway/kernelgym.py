"""KernelGYM's evaluation routes, for clients written for its server: translates requests and verdicts.

Field names, ranges and error codes are KernelGYM's; times are in milliseconds. Every candidate is checked: a request to
switch checks off is refused. Where KernelGYM's server would blame the candidate (a reference that fails, a node that
dies), this one answers 422 or 503. Results are read from the scheduler, so nothing is lost when the gateway restarts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from kerneldyno.gateway.refusals import Refusal, bad_request, invalid_request, unavailable
from kerneldyno.rewards.scoring import callers_fault
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rpc.jsonio import request_from_json, result_to_json, with_defaults
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult, Finding, Stage, TimingStats
from kerneldyno.v1.scheduler_service_pb2 import Evaluation

MAX_TASK_ID_CHARS = 100
#: End of the evaluation id of a task's second and later runs (tasks.py).
_RUN = re.compile(r"~[0-9]+$")
#: Findings that, if they reject, mean what KernelGYM calls a decoy: own kernels that do not do the work.
DECOYS = frozenset({"S19", "S20", "B01"})
#: A time that was not measured, in KernelGYM's answers.
NO_TIME = -1.0

#: Fields that have the same name in EvalRequest.
_SAME = (
    *("reference_code", "kernel_code", "entry_point", "backend", "priority", "timeout"),
    *("kernel_files", "build_flags"),
    *("profile_level", "sanitize", "memory_errors", "require_deterministic", "code_listing"),
    *("num_correct_trials", "num_perf_trials", "num_warmup", "enable_profiling", "cases", "cases_code"),
)
#: Fields without effect: the verdict is the same with any value, and always complete.
_WITHOUT_EFFECT = frozenset(
    {"task_id", "uuid", "use_reference_cache", "is_valid", "verbose_errors", "backend_adapter", "detect_decoy_kernel"}
)
_TRANSLATED = frozenset(
    {
        *("toolkit", "workflow", "force_refresh", "device_preference", "reference_backend", "resources"),
        *(
            "run_correctness",
            "run_performance",
            "measure_performance",
            "run_triton_detection",
            "enable_triton_detection",
        ),
    }
)
_REFERENCE_BACKENDS: dict[str | None, str] = {
    **dict.fromkeys((None, "", "pytorch"), "eager"),
    **dict.fromkeys(("torch_compile", "torch-compile", "compile"), "torch_compile"),
}
_TOOLKITS = ("kernelbench", "kernel_simple")
_ERROR_CODES = {
    EvalResult.INCORRECT: "CORRECTNESS_ERROR",
    EvalResult.COMPILE_ERROR: "COMPILATION_ERROR",
    EvalResult.RUNTIME_ERROR: "RUNTIME_ERROR",
    EvalResult.TIMEOUT: "TIMEOUT_ERROR",
    EvalResult.OUT_OF_MEMORY: "RESOURCE_ERROR",
    EvalResult.REJECTED: "CORRECTNESS_ERROR",
    EvalResult.INVALID: "VALIDATION_ERROR",
}


def task_id_of(body: Mapping[str, Any]) -> str:
    """Return the task's id.

    Raises:
        Refusal: 400 if it is missing or cannot be used.
    """
    task_id = body.get("task_id")
    if not isinstance(task_id, str) or not 1 <= len(task_id) <= MAX_TASK_ID_CHARS or not task_id.isprintable():
        raise bad_request(
            f"task_id: give 1 to {MAX_TASK_ID_CHARS} printable characters, a different id for each request"
        )
    if _RUN.search(task_id):
        raise bad_request(
            f"task_id: {task_id!r} ends like a repeated run of another task; do not end it with ~ and digits"
        )
    return task_id


def request_of(body: Mapping[str, Any], options: Mapping[str, Any]) -> EvalRequest:
    """Translate an EvaluationRequest of KernelGYM.

    Args:
        body: the EvaluationRequest.
        options: fields of EvalRequest, in JSON form, used where `body` does not set them.

    Raises:
        Refusal: 400 for a value that has another meaning or none here; the sentence names the field.
    """
    fields = with_defaults({name: body[name] for name in _SAME if body.get(name) is not None}, options)
    fields["toolkit"] = _toolkit(body)
    if body.get("run_correctness") is False:
        raise bad_request("run_correctness: this server checks every candidate; leave it out")
    performance = next((body[n] for n in ("run_performance", "measure_performance") if body.get(n) is not None), None)
    detection = next(
        (body[n] for n in ("run_triton_detection", "enable_triton_detection") if body.get(n) is not None), None
    )
    if performance is not None:
        fields["run_performance"] = performance
    if detection is not None:
        fields["provenance_policy"] = "PROVENANCE_POLICY_REJECT_DECOYS" if detection else "PROVENANCE_POLICY_LABEL"
    if body.get("force_refresh"):
        fields["skip_cache"] = True
    backend = body.get("reference_backend")
    if not isinstance(backend, str | None) or backend not in _REFERENCE_BACKENDS:
        raise bad_request(f"reference_backend: {backend!r} is unknown; use pytorch or torch_compile")
    if backend:
        fields["reference_backend"] = _REFERENCE_BACKENDS[backend]
    if (kind := _device_kind(body.get("device_preference"))) is not None:
        fields["device"] = kind
    resources = body.get("resources")
    if resources is not None and (not isinstance(resources, Mapping) or resources.get("gpus", 1) not in (1, None)):
        raise bad_request(f"resources: {resources!r}: a candidate runs on one device; ask for 1 GPU or leave it out")
    try:
        return request_from_json(fields)
    except ValueError as error:
        raise bad_request(str(error)) from error


def ignored(body: Mapping[str, Any]) -> list[str]:
    """Return the names in `body` that are ignored. KernelGYM's server ignores them too, without saying so."""
    return sorted(set(map(str, body)) - set(_SAME) - _WITHOUT_EFFECT - _TRANSLATED)


def response_of(task_id: str, result: EvalResult, dropped: list[str] | None = None) -> dict[str, Any]:
    """Return a verdict as an EvaluationResponse.

    Args:
        task_id: id of the task.
        result: the verdict.
        dropped: names of ignored fields, for the metadata.

    Raises:
        Refusal: there is no verdict: 400 for a malformed request, 422 for a reference that failed, 503 or 409 after an
            infrastructure failure.
    """
    _refuse_without_verdict(task_id, result)
    name = EvalResult.Outcome.Name(result.outcome)
    right = result.outcome == EvalResult.CORRECT
    counted = counted_speedup(result)
    return {
        "task_id": task_id,
        "status": _status(result),
        "compiled": result.compiled,
        "correctness": right,
        "decoy_kernel": any(f.id in DECOYS and f.severity == Finding.SEVERITY_REJECT for f in result.findings),
        "reference_runtime": _milliseconds(result, counted.reference),
        "kernel_runtime": _milliseconds(result, counted.candidate),
        "speedup": counted.value,
        "metadata": _metadata(result, dropped or []),
        "error_message": None if right else f"{name}: {result.message}",
        "error_code": None if right else _ERROR_CODES[result.outcome],
        "submitted_at": _iso(result.accept_time),
        "completed_at": _iso(result.finish_time),
        "processing_time": _seconds_between(result.accept_time, result.finish_time),
    }


def status_of(task_id: str, evaluation: Evaluation) -> dict[str, Any]:
    """Return the state of an evaluation as a TaskStatusResponse.

    Raises:
        Refusal: as `response_of`.
    """
    device = evaluation.result.environment.device or None
    if evaluation.stage != Stage.STAGE_DONE:
        status = "pending" if evaluation.stage in (Stage.STAGE_QUEUED, Stage.STAGE_UNSPECIFIED) else "processing"
    else:
        _refuse_without_verdict(task_id, evaluation.result)
        status = _status(evaluation.result)
    return {
        "task_id": task_id,
        "status": status,
        "progress": None,
        "estimated_completion": None,
        "queue_position": None,
        "assigned_device": device,
        "stage": Stage.Name(evaluation.stage),
    }


def _refuse_without_verdict(task_id: str, result: EvalResult) -> None:
    if result.outcome == EvalResult.INFRASTRUCTURE_ERROR:
        cause = result.infrastructure_error.cause
        if cause == "CANCELLED":
            raise Refusal(409, "the evaluation was cancelled; send it again to run it", task_id=task_id)
        raise unavailable(f"{cause}: {result.message}", task_id=task_id)
    if result.outcome == EvalResult.REFERENCE_ERROR:
        raise Refusal(422, f"the reference failed, not the candidate: {result.message}", task_id=task_id)
    if result.outcome == EvalResult.PROBLEM_TOO_LARGE:
        raise Refusal(422, f"the problem is too large for every device here: {result.message}", task_id=task_id)
    if callers_fault(result):
        raise invalid_request(result, task_id=task_id)


def _status(result: EvalResult) -> str:
    """Return KernelGYM's status: a candidate that compiled is "completed", whatever its outcome."""
    if result.outcome == EvalResult.TIMEOUT:
        return "timeout"
    return "completed" if result.compiled else "failed"


def _milliseconds(result: EvalResult, timing: TimingStats | None) -> float:
    return timing.median_seconds * 1e3 if result.outcome == EvalResult.CORRECT and timing is not None else NO_TIME


def _metadata(result: EvalResult, dropped: list[str]) -> dict[str, Any]:
    """Return KernelGYM's metadata as far as it has a counterpart, and the whole result under `kerneldyno`."""
    report, environment = result.correctness, result.environment
    data: dict[str, Any] = {
        "hardware": environment.device_model,
        "device": environment.device,
        "correctness_trials": f"({report.passed_trials} / {report.total_trials})",
        "max_difference": [report.max_abs_error],
        "findings": [finding.id for finding in result.findings],
        "kerneldyno": result_to_json(result),
    }
    if result.HasField("profile"):
        own = [kernel for kernel in result.profile.kernels if kernel.owner == kernel.OWNER_CANDIDATE]
        data |= {
            "num_custom_kernels": len(own),
            "num_total_kernels": len(result.profile.kernels),
            "custom_kernel_cuda_time_in_profiling_us": sum(kernel.device_seconds for kernel in own) * 1e6,
            "total_kernel_run_time_in_profiling_us": sum(k.device_seconds for k in result.profile.kernels) * 1e6,
            "time_coverage": result.profile.kernelgym_coverage,
        }
    if result.outcome == EvalResult.COMPILE_ERROR:
        data |= {
            "compilation_error": result.compile_error.traceback,
            "compilation_error_name": result.compile_error.type,
        }
    if result.outcome == EvalResult.RUNTIME_ERROR:
        exception = result.runtime_error.exception
        data |= {"runtime_error": exception.traceback or result.message, "runtime_error_name": exception.type}
    if result.outcome == EvalResult.INCORRECT:
        data |= {"correctness_issue": result.message, "correctness_issue_name": result.incorrect.kind}
    if dropped:
        data["ignored_fields"] = dropped
    return data


def _toolkit(body: Mapping[str, Any]) -> str:
    workflow, toolkit = body.get("workflow") or "kernelbench", body.get("toolkit") or "kernelbench"
    for name, value in (("workflow", workflow), ("toolkit", toolkit)):
        if value not in _TOOLKITS:
            raise bad_request(f"{name}: {str(value)[:60]!r} is unknown; use {' or '.join(_TOOLKITS)}")
    return "kernel_simple" if "kernel_simple" in (workflow, toolkit) else "kernelbench"


def _device_kind(preference: Any) -> str | None:
    if preference in (None, ""):
        return None
    kind = preference.partition(":")[0] if isinstance(preference, str) else ""
    if kind not in ("cuda", "cpu"):
        raise bad_request(
            f"device_preference: {preference!r}: the scheduler chooses the device; give cuda or cpu, or leave it out"
        )
    return kind


def _iso(stamp: Timestamp) -> str | None:
    return stamp.ToJsonString() if stamp.ToNanoseconds() else None


def _seconds_between(start: Timestamp, end: Timestamp) -> float | None:
    if not start.ToNanoseconds() or not end.ToNanoseconds():
        return None
    return (end.ToNanoseconds() - start.ToNanoseconds()) / 1e9
