"""EvalSpec: the request to a judge, read from proto-JSON."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.rpc.jsonio import request_to_json
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure


def spec(**fields: Any) -> EvalSpec:
    return EvalSpec.from_json(request_to_json(effective(pb.EvalRequest(kernel_code="k", reference_code="r", **fields))))


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
