"""Dtypes of torch as inputs and outputs: a real judge accepts right answers, and refuses wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluator.judge_harness import Judge, request

EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
#: What a candidate returns in place of the right answer y: wrong answers, and (AGAIN) the right one in other memory.
TWICE, ZEROS, AGAIN = "(y.float() * 2).to(y.dtype)", "torch.zeros_like(y)", "y.clone()"
NEXT = "(y + 1).to(y.dtype)"
PACKED = "(y.view(torch.uint8) ^ 3).view(y.dtype)"


def draws(dtype: str) -> str:
    return f"torch.randn(48, 64).to(torch.{dtype})"


FLOATS, BYTES = draws("float32"), "torch.randint(0, 255, (48, 64), dtype=torch.uint8)"
COMPLEX = "torch.randn(48, 64, dtype=torch.complex64)"
SCALES = "torch.rand(48, 64).add(0.5).to(torch.float8_e8m0fnu)"
GAPS = "torch.where(torch.rand(48, 64) > 0.9, float('nan'), torch.randn(48, 64))"


#: Name, what the reference returns, its inputs, and what a wrong candidate returns instead.
CASES: list[tuple[str, str, str, str]] = [
    *((f"{dtype}-in", "x[0].float() @ x[1].float().T", f"{draws(dtype)}, {draws(dtype)}", TWICE) for dtype in EIGHT_BITS),
    *((f"{dtype}-out", f"(x[0] * 2).to(torch.{dtype})", FLOATS, TWICE) for dtype in EIGHT_BITS),
    ("float8-zeros", "(x[0].float() * 0.5).to(torch.float8_e4m3fn)", draws("float8_e4m3fn"), ZEROS),
    ("float8_e8m0fnu-in", "x[1] * x[0].float()", f"{SCALES}, {FLOATS}", TWICE),
    ("float8_e8m0fnu-out", "x[0].abs().to(torch.float8_e8m0fnu)", FLOATS, TWICE),
    ("float4-in", "x[0].view(torch.uint8).float() * x[1]", f"{BYTES}.view(torch.float4_e2m1fn_x2), {FLOATS}", TWICE),
    ("float4-out", "x[0].view(torch.float4_e2m1fn_x2)", BYTES, PACKED),
    ("int8-in", "x[0].float() * x[1]", f"{BYTES}.to(torch.int8), {FLOATS}", TWICE),
    ("int8-out", "(x[0] * 10).round().clamp(-128, 127).to(torch.int8)", FLOATS, NEXT),
    ("int4-in-pairs", "torch.cat((x[0] & 15, x[0] >> 4), -1).float()", BYTES, NEXT),
    ("int16-out", "x[0].sum(-1).to(torch.int16)", BYTES, NEXT),
    ("uint16", "x[0].clone()", f"{BYTES}.to(torch.uint16)", "(y.int() + 1).to(torch.uint16)"),
    ("uint64-out", "x[0].to(torch.uint64)", BYTES, "(x[0].int() + 1).to(torch.uint64)"),
    ("bool-in", "torch.where(x[0], x[1], 0.0)", f"{FLOATS} > 0, {FLOATS}", TWICE),
    ("bool-out", "x[0] > 0", FLOATS, "~y"),
    ("bfloat16-out-of-float32", "(x[0] @ x[1].T).bfloat16()", f"{FLOATS}, {FLOATS}", TWICE),
    ("float16-out-of-float32", "(x[0] @ x[1].T).half()", f"{FLOATS}, {FLOATS}", TWICE),
    ("bfloat16", "x[0] @ x[1].T", f"{draws('bfloat16')}, {draws('bfloat16')}", TWICE),
    ("float64", "x[0] @ x[0].T", draws("float64"), "(x[0].float() @ x[0].float().T).double()"),
    ("complex32", "x[0] * 2", f"{COMPLEX}.to(torch.complex32)", "x[0] * 2.2"),
    ("complex64", "torch.fft.fft(x[0])", FLOATS, "y.conj().resolve_conj()"),
    ("complex128", "x[0] @ x[0].T", f"{COMPLEX}.to(torch.complex128)", "y * (1 + 5e-7)"),
    ("not-a-number-out", "torch.where(x[0] > 0, x[0], float('nan'))", FLOATS, "y.nan_to_num(0.0)"),
    ("not-a-number-in", "torch.nan_to_num(x[0])", GAPS, "x[0].clone()"),
    ("infinities-out", "torch.where(x[0] > 0, x[0], float('-inf'))", FLOATS, "y.clamp(min=-3e38)"),
]  # fmt: skip


def module(returned: str, inputs: str, name: str = "Model") -> str:
    return f"""
import torch

class {name}(torch.nn.Module):
    def forward(self, *x):
        y = {returned}
        return y

def get_inputs():
    return [{inputs}]
"""


def judged(judge: Judge, returned: str, inputs: str, change: str) -> dict[str, Any]:
    code = module(returned, inputs, "ModelNew").replace("return y", f"return {change}")
    return judge.evaluate(
        request(
            code, reference_code=module(returned, inputs), backend="torch", stress_inputs=True, num_correct_trials=1
        )
    )


@pytest.mark.parametrize(("returned", "inputs", "wrong"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_right_is_told_from_what_is_wrong(judge: Judge, returned: str, inputs: str, wrong: str) -> None:
    result = judged(judge, returned, inputs, "y" if wrong == PACKED else AGAIN)  # torch cannot copy packed pairs
    assert result["outcome"] == "CORRECT", result["message"]
    result = judged(judge, returned, inputs, wrong)
    assert result["outcome"] == "INCORRECT", result["message"]
    assert result["incorrect"]["kind"] in ("values", "non-finite")


def test_a_value_and_its_scale(judge: Judge) -> None:
    returned = "(x[0] / x[0].abs().amax() * 200).to(torch.float8_e4m3fn), x[0].abs().amax() / 200"
    assert judged(judge, returned, FLOATS, "y")["outcome"] == "CORRECT"
    assert judged(judge, returned, FLOATS, "(y[0], y[1] * 2)")["outcome"] == "INCORRECT"
    assert judged(judge, returned, FLOATS, "((y[0].float() * 2).to(y[0].dtype), y[1])")["outcome"] == "INCORRECT"


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_stress_is_of_numbers_that_the_format_has(judge: Judge, dtype: str) -> None:
    result = judged(judge, "torch.relu(x[0].float())", f"torch.rand(48, 64).to(torch.{dtype})", "x[0].float()")
    assert result["outcome"] == "INCORRECT", result["message"]
    assert "on stress inputs" in result["message"]
