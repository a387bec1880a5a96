"""Problems posed in another precision, and outputs of which a share may be wrong, in a real judge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluator.judge_harness import Judge, candidate, request

#: For the reference of the harness: relu(linear(x)) * scale.
TORCH = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale

    def forward(self, x):
        {body}
"""
PLAIN = TORCH.format(body="return torch.relu(self.linear(x)) * self.scale")
WIDE = """weight, bias = self.linear.weight.float(), self.linear.bias.float()
        return (torch.relu(nn.functional.linear(x.float(), weight, bias)) * self.scale){end}"""
#: Through e4m3 and back, with a power of two for the scale: no bit is lost.
THROUGH_E4M3 = """def through(tensor):
            mantissa, exponent = torch.frexp(tensor.detach().abs().max().double())
            scale = 2.0 ** float(exponent - 9 + (mantissa > 0.875))
            return ((tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale).bfloat16()
        layer = nn.functional.linear(through(x), through(self.linear.weight), through(self.linear.bias))
        return torch.relu(layer) * self.scale"""
SHARE = {"tolerance": {"preset": "PRESET_MATCHED_SHARE"}}
SPOILT = """y = torch.relu(self.linear(x)) * self.scale
        y.view(-1)[:{count}] {change}
        return y"""


def judged(judge: Judge, code: str, backend: str = "torch", **fields: Any) -> dict[str, Any]:
    return judge.evaluate(request(code, backend=backend, provenance_policy="PROVENANCE_POLICY_LABEL", **fields))


@pytest.mark.parametrize(
    ("precision", "code"),
    [
        ("BF16", PLAIN),
        ("FP16", PLAIN),
        ("FP64", PLAIN),
        ("FP8", PLAIN),
        ("BF16", TORCH.format(body=WIDE.format(end=".bfloat16()"))),
        ("FP8", TORCH.format(body=THROUGH_E4M3)),
    ],
)
def test_right_candidates_in_another_precision(judge: Judge, precision: str, code: str) -> None:
    result = judged(judge, code, precision=f"PRECISION_{precision}", stress_inputs=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["stress_trials"] > 0


def test_a_kernel_in_another_precision(judge: Judge) -> None:
    result = judged(judge, candidate(), "triton", precision="PRECISION_FP16", run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0


@pytest.mark.parametrize(
    ("precision", "body", "kind"),
    [
        ("BF16", WIDE.format(end=""), "dtype"),
        ("FP64", WIDE.format(end=".double()"), "values"),
        ("BF16", "return torch.relu(x @ self.linear.weight.T) * self.scale", "values"),
    ],
)
def test_wrong_candidates_in_another_precision(judge: Judge, precision: str, body: str, kind: str) -> None:
    result = judged(judge, TORCH.format(body=body), precision=f"PRECISION_{precision}", stress_inputs=True)
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["kind"] == kind


def test_a_share_of_the_elements_may_be_wrong_and_it_is_said(judge: Judge) -> None:
    result = judged(judge, TORCH.format(body=SPOILT.format(count=123, change="+= 5.0")), **SHARE)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["matched_share"] == pytest.approx(1 - 123 / 4096)
    (found,) = (each for each in result["findings"] if each["id"] == "D08")
    assert found["severity"] == "SEVERITY_INFO"
    assert "3.003%" in found["evidence"]


def test_who_needs_no_allowance_gets_no_finding(judge: Judge) -> None:
    result = judged(judge, PLAIN, **SHARE)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["matched_share"] == 1
    assert "D08" not in {each["id"] for each in result["findings"]}
    assert judged(judge, PLAIN)["correctness"].get("matched_share") is None


@pytest.mark.parametrize(
    ("count", "change", "share", "kind"),
    [
        (410, "+= 5.0", {}, "values"),
        (123, "+= 5.0", {"matched_share": 0.99}, "values"),
        (1, "= float('nan')", {}, "non-finite"),
    ],
)
def test_more_than_the_share_or_a_number_that_is_not_finite_is_wrong(
    judge: Judge, count: int, change: str, share: dict[str, float], kind: str
) -> None:
    tolerance = {"tolerance": {**SHARE["tolerance"], **share}}
    result = judged(judge, TORCH.format(body=SPOILT.format(count=count, change=change)), **tolerance)
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["kind"] == kind
    assert int(result["incorrect"]["mismatched_elements"]) == count
