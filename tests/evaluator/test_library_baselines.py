"""Library baselines: programs of the requester that a candidate is timed beside, in a real judge."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import torch

from kerneldyno.evaluator.judge.runners.side import Sizes
from kerneldyno.evaluator.judge.timing.reference_runners import ReferenceRunner
from kerneldyno.evaluator.shared.spec import EvalSpec, TimedForm
from kerneldyno.evaluator.toolkits import toolkits
from kerneldyno.evaluator.toolkits.torch_settings import build
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import REFERENCE, Judge, limits, request

CPU = torch.device("cpu")
CANDIDATE = REFERENCE.replace("class Model(", "class ModelNew(")
#: The same function by another call. Its parameters are drawn in another order, and have the reference's names.
LIBRARY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        torch.rand(3)
        self.linear = nn.Linear(features, features)
        self.scale = scale

    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.T).clamp_min(0) * self.scale
"""


def judged(judge: Judge, *libraries: tuple[str, str], code: str = CANDIDATE, **fields: Any) -> dict[str, Any]:
    asked = request(
        code,
        backend="torch",
        library_baselines=[{"name": name, "code": code} for name, code in libraries],
        run_performance=True,
        num_perf_trials=20,
        provenance_policy="PROVENANCE_POLICY_LABEL",
        **{**limits(timing=120), **fields},
    )
    return judge.evaluate(asked)


def spec(**changes: Any) -> EvalSpec:
    return judge_harness.spec("", **changes)


def built(**fields: Any) -> Any:
    """Return the problem of a runner that times a library in place of the reference."""
    return build(toolkits()["kernelbench"], spec(**fields).problem, CPU, 5)


@pytest.mark.pure
def test_a_library_gets_the_values_of_the_reference() -> None:
    problem = built(stress_inputs=True)
    problem.make_ready(TimedForm(baseline_code=LIBRARY))
    (x,) = problem.inputs(0, 1)
    assert torch.allclose(problem.timed(x), problem.expected(0, [x], 1), atol=1e-5)


@pytest.mark.pure
def test_a_library_makes_both_passes_and_returns_buffers() -> None:
    reference = REFERENCE.replace(
        "self.scale = scale", "self.scale = scale\n        self.norm = nn.BatchNorm1d(features)"
    )
    reference = reference.replace("self.linear(x)", "self.norm(self.linear(x))")
    problem = built(reference_code=reference, backward=True, module_mode="MODULE_MODE_TRAIN")
    problem.make_ready(TimedForm(baseline_code=reference))
    inputs = problem.inputs(0, 1)
    with torch.no_grad():
        found = problem.timed(*inputs)
    assert set(found) == {"output", "input_gradients", "parameter_gradients", "buffers"}
    assert set(found["buffers"]) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


@pytest.mark.pure
def test_a_library_without_the_class_says_so() -> None:
    with pytest.raises(AttributeError, match="the library baseline defines no Model"):
        built().make_ready(TimedForm(baseline_code="import torch"))


@pytest.mark.pure
def test_a_toolkit_without_library_baselines_says_so() -> None:
    cases = "def get_cases(): return [{'inputs': [1], 'expected': 1}]"
    made = build(toolkits()["kernel_simple"], spec(toolkit="kernel_simple", cases_code=cases).problem, CPU, 5)
    with pytest.raises(ValueError, match="knows no library_baselines"):
        made.make_ready(TimedForm(baseline_code="x"))


@pytest.mark.pure
def test_a_library_has_a_runner_of_its_own_and_no_part_in_the_problem() -> None:
    plain = spec()
    asked = spec(library_baselines=[{"name": "addmm", "code": LIBRARY}])
    assert asked.timing.library_baselines == (("addmm", LIBRARY),)
    assert (asked.examined_key, asked.timed_key) == (plain.examined_key, plain.timed_key)
    timed = judge_harness.beside_library(asked, LIBRARY)
    assert timed.examined_key == plain.examined_key
    assert timed.timed_key != plain.timed_key


@pytest.mark.alone
def test_a_candidate_is_timed_beside_a_library(judge: Judge) -> None:
    result = judged(judge, ("addmm", LIBRARY))
    assert result["outcome"] == "CORRECT", result["message"]
    (baseline,) = result["baselines"]
    assert baseline["name"] == "addmm"
    assert not baseline.get("error")
    assert baseline["speedup"] > 0
    assert baseline["reference_timing"]["median_seconds"] > 0
    assert baseline["backend"] == "REFERENCE_BACKEND_UNSPECIFIED"


@pytest.mark.alone
def test_a_library_that_fails_or_is_wrong_is_no_failure_of_the_candidate(judge: Judge) -> None:
    wrong = LIBRARY.replace("* self.scale", "* self.scale * 1.01")
    raising = LIBRARY.replace("return torch", "raise RuntimeError('no such device')\n        return torch")
    result = judged(judge, ("wrong", wrong), ("raising", raising), ("broken", "class Model:"))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
    errors = {baseline["name"]: baseline["error"] for baseline in result["baselines"]}
    assert "out of tolerance" in errors["wrong"]
    assert "no such device" in errors["raising"]
    assert "SyntaxError" in errors["broken"] or "IndentationError" in errors["broken"]
    assert not any("speedup" in baseline for baseline in result["baselines"])


@pytest.mark.alone
def test_libraries_and_compiled_forms_are_in_one_verdict(judge: Judge) -> None:
    result = judged(judge, ("addmm", LIBRARY), baselines=["REFERENCE_BACKEND_TORCH_COMPILE"])
    assert result["outcome"] == "CORRECT", result["message"]
    assert [baseline.get("name", "") for baseline in result["baselines"]] == ["", "addmm"]


@pytest.mark.pure
@pytest.mark.parametrize(("code", "limit"), [("", 300.0), (LIBRARY, 42.0)])
def test_a_library_has_the_limits_of_the_request(monkeypatch: pytest.MonkeyPatch, code: str, limit: float) -> None:
    async def ask(self: ReferenceRunner, order: dict[str, Any]) -> dict[str, Any]:
        return {"timed": True}

    monkeypatch.setattr(ReferenceRunner, "ask", ask)
    sizes = Sizes(None, [], sets=1, slots=1, slot_bytes=0)
    side = ReferenceRunner(cast(Any, None), cast(Any, None), cast(Any, None), sizes)
    asyncio.run(side.build(judge_harness.beside_library(spec(**limits(compile=30, timing=12)), code), 1, ()))
    assert (side.limit, side.is_checked) == (limit, bool(code))


@pytest.mark.gpu
def test_a_library_with_a_triton_kernel(judge: Judge) -> None:
    code = judge_harness.candidate().replace("class ModelNew(", "class Model(")
    result = judged(judge, ("triton", code), ("addmm", LIBRARY), baselines=["REFERENCE_BACKEND_TORCH_COMPILE"])
    assert result["outcome"] == "CORRECT", result["message"]
    assert not any(baseline.get("error") for baseline in result["baselines"]), result["baselines"]
    assert all(0.2 < baseline["speedup"] < 5 for baseline in result["baselines"]), result["baselines"]


@pytest.mark.gpu
def test_a_library_that_is_the_reference_is_as_fast(judge: Judge) -> None:
    reference = REFERENCE.replace("torch.randn(32, 128)", "torch.randn(8192, 1024)").replace("[[128]", "[[1024]")
    candidate = reference.replace("class Model(", "class ModelNew(")
    result = judged(judge, ("same", reference), ("again", reference), code=candidate, reference_code=reference)
    assert result["outcome"] == "CORRECT", result["message"]
    speedups = [result["speedup"], *(baseline["speedup"] for baseline in result["baselines"])]
    assert all(0.95 < speedup < 1.05 for speedup in speedups), speedups
