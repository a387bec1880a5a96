"""Read a request: turn the effective EvalRequest, with every default filled in, into the EvalSpec for a lane.

The service calls this once for each request. Names and limits were checked where the request entered KernelDyno; only
missing fields are an error here.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from kerneldyno.rpc.profiles import asks_for_profile
from kerneldyno.rpc.validation import DEFAULT_MATCHED_SHARE
from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared.spec import EvalSpec, Limits, ToleranceRule

#: Fields that every effective request has, and those of its timeouts.
_NEEDED = ("entry_point", "backend", "toolkit", "num_correct_trials", "num_perf_trials", "timeouts")
_STAGES = ("load_timeout", "compile_timeout", "correctness_timeout", "timing_timeout")


def read_request(request: pb.EvalRequest) -> EvalSpec:
    """Return the spec of `request`. Raises ValueError if a field is missing that every effective request has."""
    _require(request, _NEEDED)
    _require(request.timeouts, _STAGES)
    return EvalSpec(
        reference_code=request.reference_code,
        kernel_code=request.kernel_code,
        entry_point=request.entry_point,
        backend=request.backend,
        toolkit=request.toolkit,
        correct_trials=request.num_correct_trials,
        perf_trials=request.num_perf_trials,
        warmup=request.num_warmup,
        timing_precision=request.timing_precision if request.HasField("timing_precision") else 0.01,
        tolerance=_tolerance(request.tolerance),
        allowed_precision=request.allowed_precision,
        reference_backend=request.reference_backend or pb.REFERENCE_BACKEND_EAGER,
        baselines=tuple(request.baselines),
        library_baselines=tuple((each.name, each.code) for each in request.library_baselines),
        cuda_graph=request.launch_mode == pb.LAUNCH_MODE_CUDA_GRAPH,
        limits=_limits(request.timeouts),
        run_performance=request.run_performance if request.HasField("run_performance") else True,
        enable_profiling=asks_for_profile(request),
        counters=request.profile_level == pb.PROFILE_LEVEL_COUNTERS,
        sanitize=request.sanitize or pb.SANITIZE_NONE,
        memory_errors=request.memory_errors or pb.MEMORY_ERRORS_REJECT,
        code_listing=request.code_listing or pb.CODE_LISTING_NONE,
        stress_inputs=request.stress_inputs,
        provenance_policy=request.provenance_policy or pb.PROVENANCE_POLICY_REJECT_DECOYS,
        cases_code=request.cases_code,
        cases=tuple((case.name, case.inputs_json, case.expected_json) for case in request.cases),
        output_reuse=request.output_reuse or pb.OUTPUT_REUSE_LABEL,
        stress_kinds=tuple(request.stress_kinds),
        candidate_memory=(
            request.candidate_device_memory_bytes if request.HasField("candidate_device_memory_bytes") else None
        ),
        kernel_files=tuple((file.path, file.content) for file in request.kernel_files),
        cuda_flags=tuple(request.build_flags.cuda),
        cpp_flags=tuple(request.build_flags.cpp),
        libraries=tuple(request.build_flags.libraries),
        precision=request.precision,
        backward=request.backward,
        module_mode=request.module_mode,
        workloads=tuple((each.name, each.value_json) for each in request.workloads),
        workloads_seconds=_seconds(request.workloads_time) if request.HasField("workloads_time") else None,
    )


def _tolerance(rule: pb.Tolerance) -> ToleranceRule:
    return ToleranceRule(
        rule.preset or pb.Tolerance.PRESET_CALIBRATED,
        rule.atol if rule.HasField("atol") else None,
        rule.rtol if rule.HasField("rtol") else None,
        rule.matched_share if rule.HasField("matched_share") else DEFAULT_MATCHED_SHARE,
    )


def _limits(timeouts: pb.StageTimeouts) -> Limits:
    return Limits(
        load=_seconds(timeouts.load_timeout),
        compile=_seconds(timeouts.compile_timeout),
        correctness=_seconds(timeouts.correctness_timeout),
        timing=_seconds(timeouts.timing_timeout),
        build=_seconds(timeouts.build_timeout) if timeouts.HasField("build_timeout") else 300.0,
    )


def _seconds(limit: Duration) -> float:
    return limit.ToNanoseconds() / 1e9


def _require(message: Message, names: Sequence[str]) -> None:
    """Raise ValueError if a field is not set."""
    present = {field.name for field, _ in message.ListFields()}
    if missing := [name for name in names if name not in present]:
        raise ValueError(f"the request is not complete: it has no {', '.join(missing)}")
