"""Whose fault it is when the judge itself finds no device memory: who holds it, the reference, or nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from kerneldyno.evaluator.judge.lane import Bench, Lane
from kerneldyno.evaluator.spec import EvalSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure

LACKED = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def lane(*, full: bool, stage: str | None = "correctness") -> Lane:
    bench = SimpleNamespace(device=SimpleNamespace(is_full=lambda: full))
    made = Lane(cast(Bench, bench), cast(EvalSpec, None), lambda _: None, cast(Any, None))
    made._candidate = None if stage is None else cast(Any, SimpleNamespace(stage=stage))
    return made


@pytest.mark.parametrize("failure", [LACKED, ReferenceFailure("reference", LACKED)])
def test_a_candidate_that_holds_all_memory_is_to_blame(failure: Any) -> None:
    result = lane(full=True)._failed(failure)
    assert result["outcome"] == "OUT_OF_MEMORY"
    assert result["out_of_memory"]["memory"] == "device"
    assert result["compiled"]


def test_a_reference_that_is_too_large_is_to_blame_itself() -> None:
    assert lane(full=False)._failed(ReferenceFailure("reference", LACKED))["outcome"] == "REFERENCE_ERROR"


def test_another_failure_of_the_reference_stays_its_own_on_a_full_device() -> None:
    assert lane(full=True)._failed(ReferenceFailure("reference", ValueError("no")))["outcome"] == "REFERENCE_ERROR"


@pytest.mark.parametrize("made", [lane(full=False), lane(full=True, stage=None)])
def test_memory_that_the_judge_lacks_is_no_verdict(made: Lane) -> None:
    result = made._failed(LACKED)
    assert result["outcome"] == "INFRASTRUCTURE_ERROR"
    assert result["infrastructure_error"] == {
        "cause": "DEVICE_MEMORY",
        "detail": f"the judge itself lacked memory: {LACKED}",
        "retryable": True,
    }
