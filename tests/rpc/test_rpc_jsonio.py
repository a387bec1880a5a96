"""Requests from JSON as people write it, and results to JSON as files keep it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kerneldyno.rpc.jsonio import (
    declines_profile,
    request_from_json,
    request_to_json,
    result_from_json,
    result_to_json,
    with_defaults,
)
from kerneldyno.rpc.validation import STAGE_TIMEOUT_FIELDS, validate
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

BASE = {"id": "a", "reference_code": "r", "kernel_code": "k"}


@pytest.mark.parametrize(
    ("extra", "same_as"),
    [
        ({"priority": "high"}, {"priority": "PRIORITY_HIGH"}),
        ({"allowed_precision": "bf16"}, {"allowed_precision": "PRECISION_BF16"}),
        ({"reference_backend": "torch-compile"}, {"reference_backend": "REFERENCE_BACKEND_TORCH_COMPILE"}),
        ({"library_baselines": {"a": "b"}}, {"library_baselines": [{"name": "a", "code": "b"}]}),
        ({"module_mode": "both"}, {"module_mode": "MODULE_MODE_BOTH"}),
        ({"launch_mode": "cuda-graph"}, {"launch_mode": "LAUNCH_MODE_CUDA_GRAPH"}),
        ({"profile_level": "kernels"}, {"profile_level": "PROFILE_LEVEL_KERNELS"}),
        ({"sanitize": "winners"}, {"sanitize": "SANITIZE_WINNERS"}),
        ({"memoryErrors": "label"}, {"memory_errors": "MEMORY_ERRORS_LABEL"}),
        ({"code_listing": "sass"}, {"code_listing": "CODE_LISTING_SASS"}),
        ({"speedup_kind": "end-to-end"}, {"speedup_kind": "SPEEDUP_KIND_END_TO_END"}),
        ({"speedupKind": "SPEEDUP_KIND_DEVICE"}, {"speedup_kind": "SPEEDUP_KIND_DEVICE"}),
        ({"timing_precision": 0.02}, {"timing_precision": 0.02}),
        ({"timeouts": {"load_timeout": 1.5}}, {"timeouts": {"load_timeout": "1.5s"}}),
        ({"timeout": 7}, {"timeouts": dict.fromkeys(STAGE_TIMEOUT_FIELDS, "7s")}),
        ({"timeouts": 7}, {"timeouts": dict.fromkeys(STAGE_TIMEOUT_FIELDS, "7s")}),
        (
            {"timeouts": {"load_timeout": 9}, "timeout": 7},
            {"timeouts": dict.fromkeys(STAGE_TIMEOUT_FIELDS, "7s") | {"load_timeout": "9s"}},
        ),
        ({"tolerance": 0.01}, {"tolerance": {"preset": "PRESET_ALLCLOSE", "atol": 0.01, "rtol": 0.01}}),
        ({"tolerance": "loose"}, {"tolerance": {"preset": "PRESET_LOOSE"}}),
        ({"tolerance": {"preset": "calibrated"}}, {"tolerance": {"preset": "PRESET_CALIBRATED"}}),
        ({"device": "cuda"}, {"device": {"kind": "cuda"}}),
        ({"numPerfTrials": 5}, {"num_perf_trials": 5}),
        ({"num_warmup": None}, {}),
        (
            {"cases": [{"inputs": [1, 2], "expected": {"tensor": [1]}}]},
            {"cases": [{"inputs_json": "[1, 2]", "expected_json": '{"tensor": [1]}'}]},
        ),
        (
            {"cases": [{"name": "two", "inputs": [1, 2], "expected": 3}, {"inputs_json": "[]", "expected_json": "0"}]},
            {
                "cases": [
                    {"name": "two", "inputs_json": "[1, 2]", "expected_json": "3"},
                    {"inputs_json": "[]", "expected_json": "0"},
                ]
            },
        ),
    ],
    ids=json.dumps,
)
def test_what_a_person_means_is_understood(extra: dict[str, Any], same_as: dict[str, Any]) -> None:
    assert request_from_json(BASE | extra) == request_from_json(BASE | same_as)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"colour": 1}, "unknown field 'colour'"),
        ({"kernel_cod": ""}, "did you mean 'kernel_code'"),
        ({"num_perf_trials": "many"}, "num_perf_trials"),
        ({"num_perf_trials": 1.5}, "num_perf_trials"),
        ({"num_perf_trials": True}, "num_perf_trials"),
        ({"id": 5}, "id"),
        ({"priority": "urgent"}, "PRIORITY_URGENT"),
        ({"speedup_kind": "wall"}, "SPEEDUP_KIND_WALL"),
        ({"profile_level": True}, "PROFILE_LEVEL_"),
        ({"sanitize": "some"}, "SANITIZE_SOME"),
        ({"memory_errors": "ignore"}, "MEMORY_ERRORS_IGNORE"),
        ({"code_listing": "cubin"}, "CODE_LISTING_CUBIN"),
        ({"timing_precision": "high"}, "timing_precision"),
        ({"tolerance": {"absolute": 1}}, "absolute"),
        ({"tolerance": True}, "tolerance"),
        ({"timeouts": {"load": 3}}, "load"),
        ({"timeouts": "soon"}, "timeouts"),
        ({"timeouts": {"load_timeout": "soon"}}, "load_timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"cases": 5}, "cases"),
        ({"cases": [{"inputs": [1], "expected": 2, "nme": "a"}]}, "inputs"),
        ({"cases": [{"inputs": [1], "expected": 2, "name": 7}]}, "name"),
        ({"labels": {"a": 1}}, "labels"),
        ([], "object"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_by_name(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        request_from_json(data)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "profile"),
    [
        ({}, {"profile_level": "counters"}),
        ({"enable_profiling": None}, {"profile_level": "counters"}),
        ({"enable_profiling": False}, {"enable_profiling": False}),
        ({"enableProfiling": True}, {"enable_profiling": True}),
        ({"profileLevel": "none"}, {"profile_level": "none"}),
    ],
    ids=json.dumps,
)
def test_who_says_something_about_a_profile_gets_no_part_of_the_default(
    given: dict[str, Any], profile: dict[str, Any]
) -> None:
    fields = with_defaults(given, {"salt": "7", "profile_level": "counters"})
    assert request_from_json(fields) == request_from_json({"salt": "7", **profile})


@pytest.mark.parametrize(
    ("fields", "declined"),
    [
        ({}, False),
        ({"enable_profiling": False, "colour": "red"}, True),
        ({"enableProfiling": True}, False),
        ({"profile_level": "none"}, True),
        ({"profile_level": 1}, True),
        ({"profile_level": "counters"}, False),
        ({"profile_level": "much"}, False),
    ],
    ids=json.dumps,
)
def test_whether_fields_decline_a_profile(fields: dict[str, Any], declined: bool) -> None:
    assert declines_profile(fields) == declined


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0])
def test_numbers_that_are_none_reach_validation_which_names_the_field(value: float) -> None:
    request = request_from_json(BASE | {"tolerance": {"atol": value}})
    assert [violation.field for violation in validate(request)] == ["tolerance.atol"]


def test_requests_survive_the_round_trip() -> None:
    request = request_from_json(BASE | {"timeout": 0.25, "priority": "low", "labels": {"k": "v"}, "skip_cache": True})
    assert request_from_json(json.loads(json.dumps(request_to_json(request)))) == request


def test_results_are_written_whole_with_the_original_names() -> None:
    result = pb.EvalResult(id="a", outcome=pb.EvalResult.CORRECT, compiled=True, correct=True, speedup=0.0)
    written = result_to_json(result)
    assert (written["outcome"], written["speedup"], written["findings"]) == ("CORRECT", 0.0, [])
    assert written["cached"] is False
    assert "candidate_timing" not in written
    assert result_from_json(json.loads(json.dumps(written)) | {"from_a_later_version": 1}) == result
