"""Read a request: turn the effective EvalRequest, with every default filled in, into the EvalSpec for a lane.

The service calls this once for each request. Names and limits were checked where the request entered KernelDyno. Only
what another version can have caused is an error here: fields that are missing, and values of enums that are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration

from kerneldyno.rpc.profiles import asks_for_profile
from kerneldyno.rpc.validation import DEFAULT_MATCHED_SHARE, missing_fields
from kerneldyno.v1 import evaluation_pb2 as pb

from ..shared import enums
from ..shared.spec import (
    CandidateSpec,
    ChecksSpec,
    EvalSpec,
    InspectionSpec,
    Limits,
    ProblemSpec,
    Rules,
    TimedForm,
    TimingSpec,
    ToleranceRule,
)


class UnreadableRequestError(ValueError):
    """The request is not an effective request of this version, which says nothing about the candidate."""


def read_request(request: pb.EvalRequest) -> EvalSpec:
    """Return the spec of `request`. Raises UnreadableRequestError."""
    if missing := missing_fields(request):
        raise UnreadableRequestError(f"the request is not complete: it has no {', '.join(missing)}")
    try:
        parts = (_problem(request), _candidate(request), _checks(request), _timing(request), _inspection(request))
    except ValueError as error:  # of an enum
        raise UnreadableRequestError(f"the request has a value that this version does not know: {error}") from error
    return EvalSpec(*parts)


def _problem(request: pb.EvalRequest) -> ProblemSpec:
    return ProblemSpec(
        toolkit=request.toolkit,
        reference_code=request.reference_code,
        entry_point=request.entry_point,
        cases_code=request.cases_code,
        cases=tuple((case.name, case.inputs_json, case.expected_json) for case in request.cases),
        workloads=tuple((each.name, each.value_json) for each in request.workloads),
        precision=enums.Precision(request.precision),
        backward=request.backward,
        module_mode=enums.ModuleMode(request.module_mode),
        secret_constants=request.stress_inputs,
    )


def _candidate(request: pb.EvalRequest) -> CandidateSpec:
    limited = request.HasField("candidate_device_memory_bytes")
    return CandidateSpec(
        kernel_code=request.kernel_code,
        backend=request.backend,
        limits=_limits(request.timeouts),
        kernel_files=tuple((file.path, file.content) for file in request.kernel_files),
        cuda_flags=tuple(request.build_flags.cuda),
        cpp_flags=tuple(request.build_flags.cpp),
        libraries=tuple(request.build_flags.libraries),
        memory=request.candidate_device_memory_bytes if limited else None,
    )


def _checks(request: pb.EvalRequest) -> ChecksSpec:
    return ChecksSpec(
        correct_trials=request.num_correct_trials,
        rules=Rules(
            tolerance=_tolerance(request.tolerance),
            allowed_precision=enums.Precision(request.allowed_precision),
            stress_inputs=request.stress_inputs,
            stress_kinds=tuple(map(enums.StressKind, request.stress_kinds)),
        ),
        output_reuse=enums.OutputReuse(request.output_reuse or enums.OutputReuse.LABEL),
        provenance_policy=enums.ProvenancePolicy(request.provenance_policy or enums.ProvenancePolicy.REJECT_DECOYS),
        memory_errors=enums.MemoryErrors(request.memory_errors or enums.MemoryErrors.REJECT),
        require_deterministic=request.require_deterministic,
    )


def _timing(request: pb.EvalRequest) -> TimingSpec:
    return TimingSpec(
        wanted=request.run_performance if request.HasField("run_performance") else True,
        perf_trials=request.num_perf_trials,
        warmup=request.num_warmup,
        precision=request.timing_precision if request.HasField("timing_precision") else 0.01,
        form=TimedForm(
            backend=enums.ReferenceBackend(request.reference_backend or enums.ReferenceBackend.EAGER),
            cuda_graph=_known(pb.LaunchMode.Name, request.launch_mode) == pb.LAUNCH_MODE_CUDA_GRAPH,
        ),
        baselines=tuple(map(enums.ReferenceBackend, request.baselines)),
        library_baselines=tuple((each.name, each.code) for each in request.library_baselines),
        workloads_seconds=_seconds(request.workloads_time) if request.HasField("workloads_time") else None,
    )


def _inspection(request: pb.EvalRequest) -> InspectionSpec:
    return InspectionSpec(
        profile=asks_for_profile(request),
        counters=_known(pb.ProfileLevel.Name, request.profile_level) == pb.PROFILE_LEVEL_COUNTERS,
        sanitize=enums.Sanitize(request.sanitize or enums.Sanitize.NONE),
        code_listing=enums.CodeListing(request.code_listing or enums.CodeListing.NONE),
    )


def _known(name_of: Callable[[Any], str], value: int) -> int:
    """Return an enum's `value`. Raises ValueError if it has no name in the contract of this version."""
    name_of(value)
    return value


def _tolerance(rule: pb.Tolerance) -> ToleranceRule:
    return ToleranceRule(
        enums.Preset(rule.preset or enums.Preset.CALIBRATED),
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
