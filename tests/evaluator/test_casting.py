"""Posing a problem in another precision: which tensors are cast, and which numbers FP8 leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldyno.evaluator.judge.problems.tiers import of_dtype
from kerneldyno.evaluator.shared.casting import cast, cast_module
from kerneldyno.evaluator.shared.enums import Precision
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits
from kerneldyno.evaluator.toolkits.torch_settings import build
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

CPU = torch.device("cpu")
DTYPES = {"FP64": torch.float64, "FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("name", DTYPES)
def test_floating_point_tensors_are_cast_and_others_are_not(name: str) -> None:
    precision = pb.Precision.Value(f"PRECISION_{name}")
    codes = torch.zeros(4).to(torch.float8_e4m3fn)
    value = [torch.rand(3), (torch.arange(3), {"mask": torch.ones(2, dtype=torch.bool), "scale": 2.0}), codes, None]
    found = cast(value, precision)
    assert found[0].dtype == DTYPES[name]
    assert of_dtype(found[0].dtype) == precision
    assert found[1][0].dtype == torch.int64
    assert found[1][1]["mask"].dtype == torch.bool
    assert found[1][1]["scale"] == 2.0
    assert found[2].dtype == torch.float8_e4m3fn
    assert cast(value, 0)[0] is value[0]


@pytest.mark.parametrize("size", [1e-12, 0.003, 0.874, 0.876, 1.0, 447.0, 449.0, 1e20])
def test_fp8_leaves_values_that_e4m3_holds_times_a_power_of_two(size: float) -> None:
    torch.manual_seed(0)
    values = torch.randn(1000)
    values *= size / values.abs().max()
    rounded = cast(values, Precision.FP8)
    assert rounded.dtype == torch.bfloat16
    exponent = int(torch.frexp(rounded.double().abs().max()).exponent)
    for shift in range(-2, 3):
        scaled = rounded.double() * 2.0 ** (9 - exponent + shift)
        if scaled.abs().max() <= 448 and torch.equal(scaled.float().to(torch.float8_e4m3fn).double(), scaled):
            break
    else:
        pytest.fail("no power of two brings the values to e4m3")
    assert torch.equal(cast(rounded, Precision.FP8), rounded)
    large = values.abs() > size / 100
    assert ((rounded.double() - values).abs() <= 0.0701 * values.abs())[large].all()


@pytest.mark.parametrize(
    "values", [torch.zeros(3), torch.empty(0), torch.tensor([float("inf"), 1.0]), torch.full((2,), 1e-42)]
)
def test_fp8_of_what_has_no_scale(values: torch.Tensor) -> None:
    assert cast(values, Precision.FP8).shape == values.shape
    assert torch.isfinite(cast(values, Precision.FP8)).all()


def test_parameters_and_buffers_of_modules_are_cast() -> None:
    linear = torch.nn.Linear(4, 4)
    made = torch.nn.Sequential(linear, torch.nn.BatchNorm1d(4))
    made.register_buffer("steps", torch.arange(3))
    cast_module(made, Precision.BF16)
    dtypes = {name: tensor.dtype for name, tensor in made.state_dict().items()}
    assert dtypes["0.weight"] == dtypes["1.running_var"] == torch.bfloat16
    assert dtypes["steps"] == dtypes["1.num_batches_tracked"] == torch.int64
    before = linear.weight
    cast_module(made, Precision.FP8)
    assert linear.weight is before  # in place: what has a reference to it sees the new values
    assert torch.equal(cast(before.detach(), Precision.FP8), before)


def test_complex_parameters_stay_complex() -> None:
    made = torch.nn.ParameterDict({"phase": torch.randn(3, dtype=torch.complex64), "size": torch.rand(3)})
    cast_module(made, Precision.FP16)
    assert (made["phase"].dtype, made["size"].dtype) == (torch.complex64, torch.float16)


def made(**fields: Any) -> Any:
    spec = judge_harness.spec("", **fields)
    return build(toolkits()[spec.problem.toolkit], spec.problem, CPU, 5)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("BF16", torch.bfloat16), ("FP8", torch.bfloat16), ("FP64", torch.float64)]
)
def test_a_problem_is_posed_in_another_precision(precision: str, dtype: torch.dtype) -> None:
    problem = made(precision=f"PRECISION_{precision}")
    (x,) = problem.inputs(0, 1)
    assert x.dtype == problem.expected(0, [x], 1).dtype == dtype
    assert {tensor.dtype for tensor in problem.parameters().values()} == {dtype}
    assert problem.precise([x], 1).dtype == torch.float64
    assert problem.input_bytes() == x.nbytes
    if precision == "FP8":
        for tensor in (x, *problem.parameters().values()):
            assert torch.equal(cast(tensor, Precision.FP8), tensor)


def test_a_toolkit_that_cannot_cast_says_so() -> None:
    class Own(type(toolkits()["kernelbench"])):  # type: ignore[misc]
        def build(self, spec: Any, device: torch.device, seed: int) -> Any:
            problem = super().build(spec, device, seed)
            problem.precision = 0
            return problem

    spec = judge_harness.spec("", precision="PRECISION_BF16")
    with pytest.raises(ReferenceFailure, match="knows no precision"):
        build(Own(), spec.problem, CPU, 5)


def test_problems_in_two_precisions_are_two_problems() -> None:
    keys = {judge_harness.spec("", precision=name).problem.key() for name in ("PRECISION_BF16", "PRECISION_FP16", 0)}
    assert len(keys) == 3
