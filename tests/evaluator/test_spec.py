"""EvalSpec: the request to a judge, as it is read from the message."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from kerneldyno.evaluator.judge.request import read_request
from kerneldyno.evaluator.shared.spec import EvalSpec, ToleranceRule
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


def spec(**fields: Any) -> EvalSpec:
    return read_request(effective(pb.EvalRequest(kernel_code="k", reference_code="r", **fields)))


def test_the_candidates_memory_is_a_number_though_json_has_it_as_text() -> None:
    asked = spec(candidate_device_memory_bytes=64 << 20)
    assert asked.candidate_memory == 64 << 20
    assert spec().candidate_memory is None
    assert asked.problem_key == spec().problem_key, "the reference is the same"


def test_a_spec_goes_through_plain_values() -> None:
    asked = spec(candidate_device_memory_bytes=1 << 33)
    assert EvalSpec.from_plain(asked.to_plain()).candidate_memory == 1 << 33
    old = asked.to_plain()
    del old["candidate_memory"]
    assert EvalSpec.from_plain(old).candidate_memory is None


def test_a_spec_has_what_the_request_says() -> None:
    tolerance = pb.Tolerance(preset=pb.Tolerance.PRESET_ALLCLOSE, atol=0.0)
    asked = spec(
        tolerance=tolerance,
        allowed_precision=pb.PRECISION_BF16,
        reference_backend=pb.REFERENCE_BACKEND_TORCH_COMPILE,
        launch_mode=pb.LAUNCH_MODE_CUDA_GRAPH,
        stress_kinds=[pb.STRESS_KIND_ROWS],
        run_performance=False,
        timeouts=pb.StageTimeouts(load_timeout=Duration(seconds=2, nanos=700_000_000)),
    )
    assert asked.tolerance == ToleranceRule(pb.Tolerance.PRESET_ALLCLOSE, 0.0, None)
    assert (asked.allowed_precision, asked.stress_kinds) == (pb.PRECISION_BF16, (pb.STRESS_KIND_ROWS,))
    assert (asked.torch_compile, asked.cuda_graph, asked.run_performance) == (True, True, False)
    assert (asked.limits.load, asked.limits.timing) == (2.7, 60.0)
    plain = json.loads(json.dumps(asked.to_plain()))
    assert EvalSpec.from_plain(plain) == dataclasses.replace(asked, kernel_code="")


def test_what_is_not_said_has_its_default() -> None:
    asked = spec()
    assert asked.tolerance.preset == pb.Tolerance.PRESET_CALIBRATED
    assert asked.provenance_policy == pb.PROVENANCE_POLICY_REJECT_DECOYS
    assert asked.output_reuse == pb.OUTPUT_REUSE_LABEL
    assert (asked.run_performance, asked.stress_kinds, asked.timing_precision) == (True, (), 0.01)
    assert (asked.enable_profiling, asked.counters, asked.sanitize) == (False, False, pb.SANITIZE_NONE)
    assert (asked.memory_errors, asked.code_listing) == (pb.MEMORY_ERRORS_REJECT, pb.CODE_LISTING_NONE)


def test_what_is_asked_about_kernels_reaches_the_spec() -> None:
    for level, counters in ((pb.PROFILE_LEVEL_KERNELS, False), (pb.PROFILE_LEVEL_COUNTERS, True)):
        profiled = spec(profile_level=level)
        assert (profiled.enable_profiling, profiled.counters) == (True, counters)
    asked = spec(sanitize=pb.SANITIZE_WINNERS, memory_errors=pb.MEMORY_ERRORS_LABEL, code_listing=pb.CODE_LISTING_SASS)
    assert (asked.sanitize, asked.memory_errors) == (pb.SANITIZE_WINNERS, pb.MEMORY_ERRORS_LABEL)
    assert asked.code_listing == pb.CODE_LISTING_SASS
    assert asked.problem_key == spec().problem_key, "the reference is the same"


@pytest.mark.parametrize(
    "field", ["entry_point", "backend", "toolkit", "num_correct_trials", "num_perf_trials", "timeouts"]
)
def test_a_request_without_its_defaults_is_refused(field: str) -> None:
    request = effective(pb.EvalRequest(kernel_code="k", reference_code="r"))
    request.ClearField(field)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=field):
        read_request(request)


def test_a_request_without_a_limit_is_refused() -> None:
    request = effective(pb.EvalRequest(kernel_code="k", reference_code="r"))
    request.timeouts.ClearField("timing_timeout")
    with pytest.raises(ValueError, match="timing_timeout"):
        read_request(request)
