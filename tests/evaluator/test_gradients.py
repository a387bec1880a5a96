"""Problems that ask for gradients: what a call returns, and real verdicts on right and wrong backward passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldyno.evaluator.shared.gradients import Differentiated, Gradients, floating
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits
from kerneldyno.evaluator.toolkits.torch_settings import build
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

CPU = torch.device("cpu")

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x, mask):
        return torch.tanh(x * self.weight) * mask

def get_inputs():
    return [torch.randn(16, 64{asks}), torch.arange(64) % 3]
"""
#: A right backward pass by hand. `{scale}` spoils the gradient for x, `{weight}` that for the weight.
OWN = """
import torch
from torch import nn

class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, mask):
        y = torch.tanh(x * weight)
        ctx.save_for_backward(x, weight, mask, y)
        return y * mask

    @staticmethod
    def backward(ctx, g):
        x, weight, mask, y = ctx.saved_tensors
        inner = g * mask * (1 - y * y)
        return inner * weight{scale}, {weight}, None

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x, mask):
        return Tanh.apply(x, self.{name}, mask)
"""
RIGHT: dict[str, str] = {"scale": "", "weight": "(inner * x).sum(0)", "name": "weight"}
PLAIN = REFERENCE.replace("class Model(", "class ModelNew(").format(asks="")


def made(asks: str = "", **fields: Any) -> Any:
    spec = judge_harness.spec("", reference_code=REFERENCE.format(asks=asks), **fields)
    return build(toolkits()["kernelbench"], spec.problem, CPU, 5)


def judged(judge: Judge, code: str, *, asks: str = "", **fields: Any) -> dict[str, Any]:
    fields = {"backward": not asks, "stress_inputs": True, "provenance_policy": "PROVENANCE_POLICY_LABEL", **fields}
    return judge.evaluate(request(code, reference_code=REFERENCE.format(asks=asks), backend="torch", **fields))


@pytest.mark.pure
def test_a_call_returns_the_output_and_the_gradients() -> None:
    linear = torch.nn.Linear(3, 2)
    x, g = torch.randn(4, 3), torch.randn(4, 2)
    with torch.no_grad():
        found = Differentiated(linear, Gradients([], ["weight", "bias"], 1))(x, g)
    assert torch.equal(found["output"], linear(x))
    assert torch.allclose(found["input_gradients"][0], g @ linear.weight)
    assert torch.allclose(found["parameter_gradients"]["weight"], g.T @ x)
    assert torch.allclose(found["parameter_gradients"]["bias"], g.sum(0))
    assert not any(tensor.requires_grad for tensor in floating(found))
    assert linear.weight.grad is None


@pytest.mark.pure
def test_what_the_output_does_not_depend_on_has_no_gradient() -> None:
    found = Differentiated(lambda x, y: (x.detach(), y.sum()), Gradients([], ["weight"], 2))
    with torch.no_grad():
        result = found(torch.ones(2), torch.ones(3), torch.ones(2), torch.tensor(2.0))
        nothing = Differentiated(lambda x: x.round().long(), Gradients([], [], 0))(torch.ones(2))
    assert result["input_gradients"][0] is None
    assert torch.equal(result["input_gradients"][1], torch.full((3,), 2.0))
    assert result["parameter_gradients"] == {"weight": None}
    assert nothing["input_gradients"] == [None]


@pytest.mark.pure
@pytest.mark.parametrize("asks", ["", ", requires_grad=True"])
def test_a_problem_draws_gradients_of_its_outputs(asks: str) -> None:
    problem = made(asks, backward=not asks)
    x, mask, g = problem.inputs(0, 1)
    assert problem.gradients.outputs == 1
    assert (g.shape, g.dtype, x.requires_grad) == (x.shape, x.dtype, False)
    assert not torch.equal(x, g)
    again = problem.inputs(0, 1)
    assert torch.equal(again[2], g)
    assert torch.equal(again[0], x)
    assert not torch.equal(problem.inputs(1, 2)[2], g)
    expected = problem.expected(0, [x, mask, g], 1)
    precise = problem.precise([x, mask, g], 1)
    assert [tensor.dtype for tensor in floating(expected)] == [torch.float32] * 3
    assert [tensor.dtype for tensor in floating(precise)] == [torch.float64] * 3
    for near, exact in zip(floating(expected), floating(precise), strict=True):
        assert torch.allclose(near.double(), exact, atol=1e-5)


@pytest.mark.pure
def test_without_a_request_there_are_no_gradients() -> None:
    problem = made()
    assert problem.gradients is None
    assert len(problem.inputs(0, 1)) == 2


@pytest.mark.pure
def test_only_the_inputs_that_require_gradients_have_them() -> None:
    reference = REFERENCE.format(asks=", requires_grad=True").replace("torch.arange(64) % 3]", "torch.rand(64)]")
    problem = build(toolkits()["kernelbench"], judge_harness.spec("", reference_code=reference).problem, CPU, 5)
    assert problem.gradients == Gradients([True, False], ["weight"], 0)
    assert len(problem.expected(0, problem.inputs(0, 1), 1)["input_gradients"]) == 1


@pytest.mark.pure
def test_a_toolkit_without_gradients_says_so() -> None:
    spec = judge_harness.spec("", toolkit="kernel_simple", cases_code="def get_cases(): return []", backward=True)
    with pytest.raises(ReferenceFailure):
        build(toolkits()["kernel_simple"], spec.problem, CPU, 5)


@pytest.mark.parametrize(
    ("code", "asks"), [(PLAIN, ""), (OWN.format(**RIGHT), ""), (OWN.format(**RIGHT), ", requires_grad=True")]
)
def test_right_gradients(judge: Judge, code: str, asks: str) -> None:
    result = judged(judge, code, asks=asks)
    assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.alone
def test_both_passes_are_timed(judge: Judge) -> None:
    result = judged(judge, OWN.format(**RIGHT), run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0


def test_gradients_in_another_precision(judge: Judge) -> None:
    result = judged(judge, OWN.format(**RIGHT), precision="PRECISION_BF16")
    assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.parametrize(
    ("changes", "output", "kind"),
    [
        ({"scale": " * 1.01"}, "input_gradients[0]", "values"),
        ({"weight": "(inner * x).mean(0)"}, "parameter_gradients['weight']", "values"),
        ({"weight": "None"}, "", "structure"),
        ({"name": "gamma"}, "", "structure"),
    ],
)
def test_wrong_gradients(judge: Judge, changes: dict[str, str], output: str, kind: str) -> None:
    result = judged(judge, OWN.format(**{**RIGHT, **changes}), stress_inputs=False)
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["kind"] == kind
    if output:
        assert result["incorrect"]["output"] == output


def test_a_forward_pass_that_autograd_cannot_follow_has_no_gradients(judge: Judge) -> None:
    code = PLAIN.replace("return torch.tanh", "x = x.detach()\n        return torch.tanh")
    result = judged(judge, code)
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "structure")


def test_a_backward_pass_that_fails_is_the_candidates_failure(judge: Judge) -> None:
    code = OWN.format(**RIGHT).replace(
        "x, weight, mask, y = ctx", "raise ValueError('no gradient')\n        x, weight, mask, y = ctx"
    )
    result = judged(judge, code)
    assert result["outcome"] == "RUNTIME_ERROR"
    assert "no gradient" in result["message"]
