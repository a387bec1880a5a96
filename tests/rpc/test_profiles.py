"""What a request says about profiles, compute-sanitizer and listings: two fields for one choice, and their defaults."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.rpc.profiles import asks_for_profile, clear_profile, decides_about_profile, needs_gpu, require_profile
from kerneldyno.rpc.validation import device_kind, effective, validate
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

NONE, KERNELS, COUNTERS = pb.PROFILE_LEVEL_NONE, pb.PROFILE_LEVEL_KERNELS, pb.PROFILE_LEVEL_COUNTERS
OWN = pb.PROVENANCE_POLICY_REQUIRE_OWN_KERNELS


def good(**fields: Any) -> pb.EvalRequest:
    return pb.EvalRequest(**({"id": "a", "reference_code": "r", "kernel_code": "k"} | fields))


@pytest.mark.parametrize(
    ("fields", "profiled", "decided"),
    [
        ({}, False, False),
        ({"enable_profiling": False}, False, True),
        ({"enable_profiling": True}, True, True),
        ({"profile_level": NONE}, False, True),
        ({"profile_level": KERNELS}, True, True),
        ({"profile_level": COUNTERS}, True, True),
        ({"profile_level": COUNTERS, "enable_profiling": True}, True, True),
    ],
    ids=str,
)
def test_either_field_decides(fields: dict[str, Any], profiled: bool, decided: bool) -> None:
    request = good(**fields)
    assert (asks_for_profile(request), decides_about_profile(request)) == (profiled, decided)
    full = effective(request)
    assert asks_for_profile(full) == full.enable_profiling == profiled, "older readers know enable_profiling alone"
    assert full.profile_level == (COUNTERS if COUNTERS in fields.values() else pb.PROFILE_LEVEL_UNSPECIFIED)
    clear_profile(request)
    assert request == good()


@pytest.mark.parametrize("fields", [{}, {"enable_profiling": False}, {"profile_level": NONE}], ids=str)
def test_a_profile_can_be_required_whatever_a_request_says(fields: dict[str, Any]) -> None:
    request = good(**fields)
    require_profile(request)
    assert request == good(enable_profiling=True)
    counters = good(profile_level=COUNTERS)
    require_profile(counters)
    assert counters == good(profile_level=COUNTERS)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"profile_level": NONE, "enable_profiling": True}, "profile_level", "leave one of the two fields out"),
        ({"profile_level": KERNELS, "enable_profiling": False}, "profile_level", "PROFILE_LEVEL_KERNELS"),
        ({"profile_level": COUNTERS, "enable_profiling": False}, "profile_level", "enable_profiling is false"),
        ({"profile_level": NONE, "provenance_policy": OWN}, "provenance_policy", "PROFILE_LEVEL_NONE"),
        ({"enable_profiling": False, "provenance_policy": OWN}, "provenance_policy", "enable_profiling is false"),
        ({"profile_level": COUNTERS, "device": {"kind": "cpu"}}, "profile_level", "device.kind is cpu"),
        ({"sanitize": pb.SANITIZE_ALL, "device": {"kind": "cpu"}}, "sanitize", "device.kind is cpu"),
        ({"sanitize": pb.SANITIZE_WINNERS, "run_performance": False}, "sanitize", "SANITIZE_ALL"),
    ],
    ids=str,
)
def test_fields_that_contradict_each_other(fields: dict[str, Any], field: str, words: str) -> None:
    (violation,) = validate(good(**fields), profiling=True)
    assert violation.field == field
    assert words in violation.description


@pytest.mark.parametrize(
    "fields",
    [
        {"profile_level": KERNELS, "enable_profiling": True, "provenance_policy": OWN},
        {"profile_level": COUNTERS, "run_performance": False, "device": {"kind": "cuda"}},
        {"sanitize": pb.SANITIZE_WINNERS, "run_performance": True},
        {"sanitize": pb.SANITIZE_ALL, "run_performance": False, "memory_errors": pb.MEMORY_ERRORS_LABEL},
        {"sanitize": pb.SANITIZE_WINNERS, "backend": "torch", "code_listing": pb.CODE_LISTING_ALL},
    ],
    ids=str,
)
@pytest.mark.parametrize("toolkit", ["kernelbench", "kernel_simple"])
def test_fields_that_go_together(fields: dict[str, Any], toolkit: str) -> None:
    of_cases = {"reference_code": "", "cases": [pb.Case(inputs_json="[]", expected_json="1")]}
    request = good(**fields, toolkit=toolkit, **(of_cases if toolkit == "kernel_simple" else {}))
    assert validate(request, profiling=True) == []
    assert validate(effective(request), profiling=True) == []


def test_counters_and_compute_sanitizer_need_a_gpu_and_kernels_a_device_that_profiles() -> None:
    for fields in ({"profile_level": COUNTERS}, {"sanitize": pb.SANITIZE_ALL}, {"sanitize": pb.SANITIZE_WINNERS}):
        assert needs_gpu(good(**fields))
        assert device_kind(good(**fields)) == device_kind(effective(good(**fields))) == "cuda"
    other = good(
        profile_level=KERNELS,
        sanitize=pb.SANITIZE_NONE,
        memory_errors=pb.MEMORY_ERRORS_LABEL,
        code_listing=pb.CODE_LISTING_ALL,
    )
    assert not needs_gpu(other)
    assert device_kind(other) == ""
