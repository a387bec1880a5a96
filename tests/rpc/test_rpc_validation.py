"""Every limit of a request that the protos state, at its edge and beyond it; and the defaults."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import duration_pb2

from kerneldyno.rpc.validation import MAX_VIOLATIONS, STAGE_TIMEOUT_FIELDS, effective, validate
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


def good(**fields: Any) -> pb.EvalRequest:
    return pb.EvalRequest(**({"id": "a", "reference_code": "r", "kernel_code": "k"} | fields))


def simple(**fields: Any) -> pb.EvalRequest:
    case = pb.Case(inputs_json="[1, [2]]", expected_json="3")
    return good(**({"toolkit": "kernel_simple", "reference_code": "", "cases": [case]} | fields))


def library(**fields: Any) -> pb.LibraryBaseline:
    return pb.LibraryBaseline(**({"name": "a", "code": "b"} | fields))


def seconds(value: float) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=int(value), nanos=round((value - int(value)) * 1e9))


def fields_of(request: pb.EvalRequest, **known: Any) -> list[str]:
    return [violation.field for violation in validate(request, **known)]


@pytest.mark.parametrize(
    "request_",
    [
        good(),
        good(id="x" * 200),
        good(id="prompt 7/ε #3"),
        good(kernel_code="x" * 1_048_576, reference_code="é" * 524_288),
        good(entry_point="Größe"),
        good(num_correct_trials=1, num_perf_trials=1, num_warmup=0),
        good(num_correct_trials=20, num_perf_trials=1000, num_warmup=100),
        good(timing_precision=0.001, speedup_kind=pb.SPEEDUP_KIND_DEVICE),
        good(timing_precision=1.0, speedup_kind=pb.SPEEDUP_KIND_END_TO_END),
        good(candidate_device_memory_bytes=64 << 20),
        good(output_reuse=pb.OUTPUT_REUSE_REJECT, stress_kinds=[7, 1]),
        good(candidate_device_memory_bytes=(1 << 63) - 1),
        good(tolerance=pb.Tolerance(atol=0, rtol=1e300)),
        good(tolerance=pb.Tolerance(preset=pb.Tolerance.PRESET_LOOSE)),
        good(tolerance=pb.Tolerance(matched_share=1.0, atol=0.1)),
        good(tolerance=pb.Tolerance(preset=pb.Tolerance.PRESET_MATCHED_SHARE, matched_share=1e-6, rtol=0.0)),
        good(module_mode=pb.MODULE_MODE_BOTH, backward=True),
        good(library_baselines=[library(name=str(number)) for number in range(4)]),
        good(precision=pb.PRECISION_FP8, allowed_precision=pb.PRECISION_BF16),
        good(timeouts=pb.StageTimeouts(load_timeout=seconds(0.1), timing_timeout=seconds(3600))),
        good(labels={"k" * 100: "v" * 100} | {str(i): "" for i in range(15)}),
        good(device=pb.DeviceSelector(kind="cuda", model="H200", min_memory_bytes=1 << 40)),
        good(device=pb.DeviceSelector(min_devices=1024, node_labels={"k" * 100: "v" * 100, "pool": ""})),
        good(device=pb.DeviceSelector(node_labels={str(i): "" for i in range(16)})),
        good(salt="é" * 100),
        good(total_timeout=seconds(1)),
        good(client_grace=seconds(1)),
        good(total_timeout=seconds(7 * 86400)),
        good(enable_profiling=False),
        good(profile_level=pb.PROFILE_LEVEL_NONE, enable_profiling=False, sanitize=pb.SANITIZE_NONE),
        good(memory_errors=pb.MEMORY_ERRORS_LABEL, code_listing=pb.CODE_LISTING_ALL),
        simple(memory_errors=pb.MEMORY_ERRORS_REJECT, code_listing=pb.CODE_LISTING_PTX),
        simple(),
        simple(cases=[], cases_code="def get_cases(): ..."),
        simple(cases=[pb.Case(inputs_json="[]", expected_json="null")] * 100),
        good(toolkit="acme.plugin-2", reference_code=""),
    ],
    ids=lambda request: str(request)[:40],
)
def test_what_is_within_the_limits_passes(request_: pb.EvalRequest) -> None:
    assert validate(request_) == []
    assert validate(effective(request_)) == [], "defaults are within the limits as well"


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (good(id=""), "id", "1 to 200"),
        (good(id="x" * 201), "id", "201"),
        (good(id="a\nb"), "id", "printed"),
        (good(reference_code=" \n"), "reference_code", "missing"),
        (good(kernel_code=""), "kernel_code", "missing"),
        (good(kernel_code="x" * 5_000_000), "kernel_code", "5000000 bytes"),
        (good(reference_code="é" * 524_289), "reference_code", "1048578 bytes"),
        (good(kernel_code="x = 1\0"), "kernel_code", "NUL"),
        (good(entry_point="not a name"), "entry_point", "identifier"),
        (good(entry_point="class"), "entry_point", "identifier"),
        (good(backend="no spaces"), "backend", "name"),
        (good(toolkit="../x"), "toolkit", "name"),
        (good(num_correct_trials=0), "num_correct_trials", "1 to 20"),
        (good(num_correct_trials=21), "num_correct_trials", "1 to 20"),
        (good(num_perf_trials=-1), "num_perf_trials", "1 to 1000"),
        (good(num_perf_trials=1001), "num_perf_trials", "1 to 1000"),
        (good(num_warmup=-1), "num_warmup", "0 to 100"),
        (good(num_warmup=101), "num_warmup", "0 to 100"),
        (good(tolerance=pb.Tolerance(atol=float("nan"))), "tolerance.atol", "finite"),
        (good(tolerance=pb.Tolerance(rtol=float("inf"))), "tolerance.rtol", "finite"),
        (good(tolerance=pb.Tolerance(rtol=-1e-9)), "tolerance.rtol", "negative"),
        (
            good(tolerance=pb.Tolerance(preset=pb.Tolerance.PRESET_CALIBRATED, atol=1)),
            "tolerance.atol",
            "PRESET_ALLCLOSE",
        ),
        (good(tolerance=pb.Tolerance(preset=9)), "tolerance.preset", "9"),  # type: ignore[arg-type]
        (good(allowed_precision=99), "allowed_precision", "PRECISION_BF16"),
        (good(precision=99), "precision", "PRECISION_BF16"),
        (good(precision=pb.PRECISION_TF32), "precision", "allowed_precision"),
        (simple(precision=pb.PRECISION_FP16), "precision", "kernel_simple"),
        (simple(backward=True), "backward", "kernel_simple"),
        (simple(module_mode=pb.MODULE_MODE_EVAL), "module_mode", "kernel_simple"),
        (good(module_mode=99), "module_mode", "MODULE_MODE_TRAIN"),
        (good(baselines=[9]), "baselines", "9"),
        (good(baselines=[0]), "baselines", "no baseline"),
        (good(baselines=[2, 3, 2]), "baselines", "twice"),
        (good(baselines=[1]), "baselines", "in any case"),
        (good(baselines=[2], reference_backend=2), "baselines", "in any case"),
        (simple(library_baselines=[library()]), "library_baselines", "kernel_simple"),
        (good(library_baselines=[library(name=str(number)) for number in range(5)]), "library_baselines", "at most 4"),
        (good(library_baselines=[library(), library()]), "library_baselines", "same name"),
        (good(library_baselines=[library(name="")]), "library_baselines[0].name", "1 to 100"),
        (good(library_baselines=[library(name="x" * 101)]), "library_baselines[0].name", "1 to 100"),
        (good(library_baselines=[library(name="a\n")]), "library_baselines[0].name", "printable"),
        (good(library_baselines=[library(code="\ufeff ")]), "library_baselines[0].code", "missing"),
        (good(library_baselines=[library(code="a\0")]), "library_baselines[0].code", "NUL"),
        (good(library_baselines=[library(code="x" * 1048577)]), "library_baselines[0].code", "1048577"),
        (simple(workloads=[pb.Workload(value_json="1")]), "workloads", "cases"),
        (good(workloads=[pb.Workload(value_json="1")] * 101), "workloads", "101"),
        (good(workloads=[pb.Workload(value_json="{")]), "workloads[0].value_json", "JSON"),
        (good(workloads=[pb.Workload(value_json='"' + "x" * 4096 + '"')]), "workloads[0].value_json", "4098"),
        (good(workloads=[pb.Workload(value_json="1", name="x" * 101)]), "workloads[0].name", "100"),
        (good(workloads_time=seconds(0.5)), "workloads_time", "1 s"),
        (good(tolerance=pb.Tolerance(matched_share=0.0)), "tolerance.matched_share", "above 0 to 1"),
        (good(tolerance=pb.Tolerance(matched_share=1.01)), "tolerance.matched_share", "1.01"),
        (good(tolerance=pb.Tolerance(matched_share=float("nan"))), "tolerance.matched_share", "nan"),
        (
            good(tolerance=pb.Tolerance(preset=pb.Tolerance.PRESET_LOOSE, matched_share=0.9)),
            "tolerance.matched_share",
            "PRESET_MATCHED_SHARE only",
        ),
        (good(reference_backend=7), "reference_backend", "7"),
        (good(launch_mode=3), "launch_mode", "LAUNCH_MODE_CUDA_GRAPH"),
        (good(timing_precision=0.0), "timing_precision", "0.001 to 1"),
        (good(timing_precision=0.0009), "timing_precision", "0.0009"),
        (good(timing_precision=1.01), "timing_precision", "1.01"),
        (good(timing_precision=-0.01), "timing_precision", "-0.01"),
        (good(timing_precision=float("nan")), "timing_precision", "nan"),
        (good(timing_precision=float("inf")), "timing_precision", "inf"),
        (good(candidate_device_memory_bytes=(64 << 20) - 1), "candidate_device_memory_bytes", "67108863"),
        (good(candidate_device_memory_bytes=0), "candidate_device_memory_bytes", "leave it out"),
        (good(candidate_device_memory_bytes=-1), "candidate_device_memory_bytes", "64 MiB"),
        (good(speedup_kind=3), "speedup_kind", "SPEEDUP_KIND_END_TO_END"),
        (good(speedup_kind=-1), "speedup_kind", "-1"),
        (good(priority=4), "priority", "PRIORITY_HIGH"),
        (good(timeouts=pb.StageTimeouts(load_timeout=seconds(0.09))), "timeouts.load_timeout", "0.1 s to 3600 s"),
        (good(timeouts=pb.StageTimeouts(compile_timeout=seconds(3600.5))), "timeouts.compile_timeout", "3600"),
        (good(timeouts=pb.StageTimeouts(timing_timeout=seconds(-5))), "timeouts.timing_timeout", "-5"),
        (
            good(timeouts=pb.StageTimeouts(correctness_timeout=duration_pb2.Duration(seconds=5, nanos=2_000_000_000))),
            "timeouts.correctness_timeout",
            "7",
        ),
        (good(device=pb.DeviceSelector(kind="tpu")), "device.kind", "tpu"),
        (good(backend="cuda", device=pb.DeviceSelector(kind="cpu")), "device.kind", "cuda devices only"),
        (good(device=pb.DeviceSelector(min_memory_bytes=-1)), "device.min_memory_bytes", "negative"),
        (good(device=pb.DeviceSelector(min_devices=-1)), "device.min_devices", "0 to 1024"),
        (good(device=pb.DeviceSelector(min_devices=1025)), "device.min_devices", "1025"),
        (good(device=pb.DeviceSelector(node_labels={str(i): "" for i in range(17)})), "device.node_labels", "17"),
        (good(device=pb.DeviceSelector(node_labels={"k" * 151: ""})), f"device.node_labels['{'k' * 57}...']", "150"),
        (good(salt="x" * 101), "salt", "101"),
        (good(output_reuse=7), "output_reuse", "OUTPUT_REUSE_REJECT"),
        (good(profile_level=4), "profile_level", "PROFILE_LEVEL_COUNTERS"),
        (good(sanitize=4), "sanitize", "SANITIZE_WINNERS"),
        (good(memory_errors=3), "memory_errors", "MEMORY_ERRORS_LABEL"),
        (good(code_listing=5), "code_listing", "CODE_LISTING_SASS"),
        (good(stress_kinds=[1, 99]), "stress_kinds", "STRESS_KIND_PATCH"),
        (good(stress_kinds=[2, 2]), "stress_kinds", "twice"),
        (good(stress_kinds=[0]), "stress_kinds", "leave the field empty"),
        (good(salt="a\nb"), "salt", "printed"),
        (good(total_timeout=seconds(0)), "total_timeout", "1 s to 604800 s"),
        (good(client_grace=seconds(0)), "client_grace", "1 s to 604800 s"),
        (good(total_timeout=seconds(0.999)), "total_timeout", "0.999"),
        (good(total_timeout=seconds(-3)), "total_timeout", "-3"),
        (good(total_timeout=seconds(7 * 86400 + 1)), "total_timeout", "604800"),
        (good(total_timeout=duration_pb2.Duration(seconds=5, nanos=-1_000_000_000)), "total_timeout", "1 s"),
        (good(enable_profiling=True), "enable_profiling", "can profile"),
        (good(profile_level=pb.PROFILE_LEVEL_KERNELS), "profile_level", "set it to PROFILE_LEVEL_NONE"),
        (good(profile_level=pb.PROFILE_LEVEL_COUNTERS, enable_profiling=True), "profile_level", "can profile"),
        (good(sanitize=pb.SANITIZE_ALL), "sanitize", "set it to SANITIZE_NONE"),
        (simple(sanitize=pb.SANITIZE_WINNERS), "sanitize", "no device here is a GPU"),
        (good(provenance_policy="PROVENANCE_POLICY_REQUIRE_OWN_KERNELS"), "provenance_policy", "can profile"),
        (good(cases_code="x"), "cases_code", "kernel_simple"),
        (good(cases=[pb.Case(inputs_json="[]", expected_json="1")]), "cases", "kernel_simple"),
        (simple(reference_code="r"), "reference_code", "empty"),
        (simple(cases=[]), "cases", "missing"),
        (simple(cases_code="x"), "cases", "twice"),
        (simple(cases_code="x" * 1_048_577, cases=[]), "cases_code", "1048577"),
        (simple(cases=[pb.Case(inputs_json="[]", expected_json="1")] * 101), "cases", "101"),
        (simple(cases=[pb.Case(inputs_json="[", expected_json="1")]), "cases[0].inputs_json", "JSON"),
        (simple(cases=[pb.Case(inputs_json="{}", expected_json="1")]), "cases[0].inputs_json", "array"),
        (simple(cases=[pb.Case(inputs_json="[]", expected_json="")]), "cases[0].expected_json", "JSON"),
        (
            simple(cases=[pb.Case(inputs_json="[]", expected_json="1", name="x" * 101)]),
            "cases[0].name",
            "100 printable",
        ),
        (simple(cases=[pb.Case(inputs_json="[]", expected_json="1", name="a\nb")]), "cases[0].name", "printable"),
        (
            simple(cases=[pb.Case(inputs_json="[]", expected_json="[" * 100_000)]),
            "cases[0].expected_json",
            "JSON",
        ),
        (good(labels={str(i): "" for i in range(17)}), "labels", "17"),
        (good(labels={"k": "v" * 151}), "labels['k']", "150"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_beyond_a_limit_is_named(request_: pb.EvalRequest, field: str, words: str) -> None:
    (violation,) = validate(request_)
    assert violation.field == field
    assert words in violation.description


@pytest.mark.parametrize("length", [262_144, 262_145, 349_525, 349_526])
def test_the_size_of_a_source_is_that_of_its_bytes(length: int) -> None:
    """A character has three bytes: the limit is between the last two lengths. Only the first need not be encoded."""
    assert fields_of(good(kernel_code="世" * length)) == (["kernel_code"] if length == 349_526 else [])


def test_a_source_of_spaces_is_missing() -> None:
    assert fields_of(good(reference_code=" \n\t", kernel_code="\u3000")) == ["reference_code", "kernel_code"]


def test_known_names_are_checked_only_when_they_are_given() -> None:
    request = good(backend="cuda", toolkit="mine")
    assert fields_of(request) == []
    assert fields_of(request, backends=["triton"], toolkits=["kernelbench"]) == ["backend", "toolkit"]
    assert fields_of(good(), backends=[], toolkits=[]) == ["backend", "toolkit"], "defaults are checked too"
    (violation,) = validate(request, backends=["triton", "torch"])
    assert violation.description == "'cuda' is not known here; known: torch, triton"


def test_profiling_and_missing_ids_are_the_callers_choice() -> None:
    assert fields_of(good(enable_profiling=True), profiling=True) == []
    assert fields_of(good(id=""), id_required=False) == []


def test_violations_are_capped() -> None:
    request = simple(cases=[pb.Case(inputs_json="x", expected_json="x")] * 50)
    assert len(validate(request)) == MAX_VIOLATIONS


def test_defaults_are_filled_in_and_what_was_given_stays() -> None:
    full = effective(good())
    assert (full.entry_point, full.backend, full.toolkit) == ("Model", "triton", "kernelbench")
    assert (full.num_correct_trials, full.num_perf_trials, full.num_warmup) == (5, 100, 3)
    assert full.tolerance.preset == pb.Tolerance.PRESET_CALIBRATED
    assert (full.priority, full.reference_backend) == (pb.PRIORITY_NORMAL, pb.REFERENCE_BACKEND_EAGER)
    assert [getattr(full.timeouts, name).seconds for name in STAGE_TIMEOUT_FIELDS] == [60, 120, 60, 60, 300]
    assert full.HasField("run_performance")
    assert full.run_performance
    assert full.HasField("enable_profiling")
    assert not full.enable_profiling
    assert (full.profile_level, full.sanitize, full.memory_errors, full.code_listing) == (0, 0, 0, 0)
    assert full.speedup_kind == pb.SPEEDUP_KIND_DEVICE
    assert effective(full) == full

    given = effective(
        good(
            backend="cuda",
            num_warmup=0,
            timing_precision=0.05,
            speedup_kind=pb.SPEEDUP_KIND_END_TO_END,
            run_performance=False,
            tolerance=pb.Tolerance(rtol=0),
            timeouts=pb.StageTimeouts(timing_timeout=seconds(1.5)),
        )
    )
    assert given.num_warmup == 0
    assert (given.timing_precision, given.speedup_kind) == (0.05, pb.SPEEDUP_KIND_END_TO_END)
    assert not given.run_performance
    assert given.tolerance.preset == pb.Tolerance.PRESET_ALLCLOSE
    assert (given.timeouts.load_timeout.seconds, given.timeouts.compile_timeout.seconds) == (300, 300)
    assert given.timeouts.timing_timeout == seconds(1.5)


def test_sources_begin_with_the_program_whoever_asks_and_how_often() -> None:
    mark = "\ufeff"
    given = pb.EvalRequest(
        reference_code=f"{mark}r = '{mark}'", kernel_code=f"{mark}{mark}k = 1", cases_code=f"c = 1{mark}"
    )
    once = effective(given)
    assert (once.reference_code, once.kernel_code, once.cases_code) == (f"r = '{mark}'", "k = 1", f"c = 1{mark}")
    assert effective(once) == once
    assert given.kernel_code.startswith(mark), "the request itself stays as it is"
