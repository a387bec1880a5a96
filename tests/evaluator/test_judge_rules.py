"""A real judge's rules on output reuse, stress, allowed precision, secret parameters and provenance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluator.judge_harness import Judge, request


def findings(result: dict[str, Any]) -> dict[str, str]:
    return {finding["id"]: finding["severity"] for finding in result["findings"]}


def module(forward: str, made: str = "pass", inputs: str = "torch.randn(32, 128)", name: str = "Model") -> str:
    """Return the source of a reference or, with another `name`, of a candidate in plain PyTorch."""
    return f"""
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, *x):
        {forward}

def get_inputs():
    return [{inputs}]
"""


def stressed(code: str, reference: str, **changes: Any) -> dict[str, Any]:
    return request(code, **{"reference_code": reference, "backend": "torch", "stress_inputs": True, **changes})


# Outputs that share memory with earlier ones

BUFFER = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.zeros(32, 128)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {body}
        return self.out
"""
RELU = module("return torch.relu(x[0])")
LASTING = {"output_reuse": "OUTPUT_REUSE_REJECT"}


@pytest.mark.alone  # on a busy machine two clocks differ, which is a finding
def test_an_output_that_the_next_call_overwrites_is_right_and_it_is_said(judge: Judge) -> None:
    code = BUFFER.format(body="self.out.copy_(torch.relu(x))")
    result = judge.evaluate(stressed(code, RELU, run_performance=True))
    assert result["outcome"] == "CORRECT", result["message"]
    assert findings(result) == {"S30": "SEVERITY_INFO"}
    assert "copy" in result["findings"][0]["evidence"]


def test_whoever_wants_outputs_that_last_can_ask_for_them(judge: Judge) -> None:
    code = BUFFER.format(body="self.out.copy_(torch.relu(x))")
    result = judge.evaluate(stressed(code, RELU, **LASTING))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["kind"] == "output overwritten"
    assert "memory of its own" in result["message"]
    assert "stress" not in result["message"], "which inputs they were has nothing to do with it"


def test_a_buffer_that_keeps_values_of_another_call_is_wrong(judge: Judge) -> None:
    code = BUFFER.format(body="self.out.copy_(torch.relu(x)) if self.calls < 3 else None")
    result = judge.evaluate(stressed(code, RELU))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["kind"] == "values"


@pytest.mark.parametrize(("policy", "outcome"), [({}, "CORRECT"), (LASTING, "INCORRECT")])
def test_an_earlier_output_that_cannot_be_read_any_more_is_an_overwritten_one(
    judge: Judge, policy: dict[str, str], outcome: str
) -> None:
    # Torch raises an error when it is read, as for outputs of a CUDA graph that was replayed.
    body = "torch.utils.swap_tensors(self.out, torch.empty(0, device='meta')); self.out = torch.relu(x)"
    result = judge.evaluate(stressed(BUFFER.format(body=body), RELU, **policy))
    assert result["outcome"] == outcome, result["message"]


# Kinds of stress


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [(None, "INCORRECT"), (["STRESS_KIND_LARGE"], "INCORRECT"), (["STRESS_KIND_SIGNS"], "CORRECT")],
)
def test_each_kind_of_stress_can_be_chosen_and_the_result_says_which_decided(
    judge: Judge, kinds: list[str] | None, outcome: str
) -> None:
    asked = {} if kinds is None else {"stress_kinds": kinds}
    reference = module("return x[0] * 1.0", inputs="torch.rand(32, 128)")
    code = module("return torch.clamp(x[0], max=2)", name="ModelNew")
    result = judge.evaluate(stressed(code, reference, **asked))
    assert result["outcome"] == outcome, result["message"]
    if outcome == "INCORRECT":
        assert result["incorrect"]["stress"] == kinds[0] if kinds else result["incorrect"]["stress"]


# Allowed precision

MATMUL = module("return x[0] @ x[1]", inputs="torch.randn(64, 64), torch.randn(64, 64)")
ROUNDED = module("return x[0].bfloat16().float() @ x[1].bfloat16().float()", name="ModelNew")


# Overflow on inputs that are far larger than the problem's own

SIGMOID = module("return torch.sigmoid(x[0] * 0.1)", inputs="torch.randn(8192, 16)")


@pytest.mark.parametrize(
    ("forward", "right"),
    [
        ("e = torch.exp(x[0] * 0.1); return e / (1 + e)", True),  # NaN above 887: two elements in ten thousand
        ("y = torch.sigmoid(x[0] * 0.1); return torch.where(x[0] > 850, torch.inf, y)", True),
        ("y = torch.sigmoid(x[0] * 0.1); return torch.where(x[0] > 500, torch.inf, y)", False),  # too many elements
        (
            "y = torch.sigmoid(x[0] * 0.1); return torch.where((x[0] - 50).abs() < 0.05, torch.inf, y)",
            False,
        ),  # on weaker stress, too
        (
            "y = torch.sigmoid(x[0] * 0.1); return torch.where(x[0].amax(1, True) > 300, torch.inf, y)",
            False,
        ),  # in most rows
        ("e = torch.exp(x[0] * 0.1); return torch.where(x[0] > 850, 0.9, 1) * e / (1 + e)", False),  # others are wrong
    ],
)
def test_a_few_elements_may_overflow_where_inputs_are_enlarged(judge: Judge, forward: str, right: bool) -> None:
    changes = {"stress_kinds": ["STRESS_KIND_LARGE"], "num_correct_trials": 1}
    result = judge.evaluate(stressed(module(forward, name="ModelNew"), SIGMOID, **changes))
    if right:
        assert result["outcome"] == "CORRECT"
        assert "D07" in findings(result)
        report = result["correctness"]
        assert report["passed_trials"] == report["total_trials"]
        assert report["max_error_ratio"] < 1
    else:
        assert result["outcome"] == "INCORRECT"
        assert result["incorrect"]["stress"] == "STRESS_KIND_LARGE"


@pytest.mark.parametrize("kind", ["ROWS", "PATCH"])
def test_a_softmax_without_its_maximum_is_not_excused(judge: Judge, kind: str) -> None:
    """It overflows in a few elements, and the others are right.

    These kinds enlarge only a part of the inputs. They have no weaker form on which the candidate could show that it is
    right, so no overflow is excused.
    """
    reference = module("return torch.softmax(x[0], -1)", inputs="torch.randn(256, 1000)")
    code = module("e = torch.exp(x[0]); return e / e.sum(-1, keepdim=True)", name="ModelNew")
    result = judge.evaluate(stressed(code, reference, stress_kinds=[f"STRESS_KIND_{kind}"]))
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "non-finite")


@pytest.mark.parametrize("kind", ["ROWS", "PATCH"])
def test_few_elements_of_any_row_may_be_a_mistake_in_every_column(judge: Judge, kind: str) -> None:
    """The kernel uses the maximum of the first block, along a dimension that is not the last.

    Under `rows`, only two rows in a thousand show the mistake.
    """
    reference = module("return torch.softmax(x[0], 1)", inputs="torch.randn(4, 4000, 8)")
    forward = "e = torch.exp(x[0] - x[0][:, :64].amax(1, keepdim=True)); return e / e.sum(1, keepdim=True)"
    changes = {"stress_kinds": [f"STRESS_KIND_{kind}"], "num_correct_trials": 1}
    result = judge.evaluate(stressed(module(forward, name="ModelNew"), reference, **changes))
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "non-finite")


def test_an_output_that_is_all_infinite_is_not_a_few_rows_of_all_outputs(judge: Judge) -> None:
    reference = module("y = torch.sigmoid(x[0] * 0.1); return y, y.sum()", inputs="torch.randn(8192, 16)")
    forward = "e = torch.exp(x[0] * 0.1); y = e / (1 + e); return torch.sigmoid(x[0] * 0.1), y.sum()"
    changes = {"stress_kinds": ["STRESS_KIND_LARGE"], "num_correct_trials": 1}
    result = judge.evaluate(stressed(module(forward, name="ModelNew"), reference, **changes))
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "non-finite")


def test_rounded_operands_are_wrong_and_it_is_said_what_they_look_like(judge: Judge) -> None:
    result = judge.evaluate(stressed(ROUNDED, MATMUL))
    assert result["outcome"] == "INCORRECT"
    assert findings(result) == {"S23": "SEVERITY_INFO"}
    assert "bf16" in result["findings"][0]["evidence"]
    assert result["correctness"]["observed_precision"] == "PRECISION_BF16"


def test_rounded_operands_can_be_allowed(judge: Judge) -> None:
    result = judge.evaluate(stressed(ROUNDED, MATMUL, allowed_precision="PRECISION_BF16"))
    assert result["outcome"] == "CORRECT", result["message"]
    assert findings(result) == {}
    assert result["correctness"]["observed_precision"] == "PRECISION_BF16"


def test_what_is_allowed_is_not_more(judge: Judge) -> None:
    result = judge.evaluate(stressed(ROUNDED, MATMUL, allowed_precision="PRECISION_TF32"))
    assert result["outcome"] == "INCORRECT"
    half = module("return x[0] @ x[1] * 1.02", name="ModelNew")
    assert judge.evaluate(stressed(half, MATMUL, allowed_precision="PRECISION_BF16"))["outcome"] == "INCORRECT"


CLAMPED = module("return x[0].clamp(min=0.01)", name="ModelNew")
NORMAL_RELU = module("return torch.relu(x[0])")


def test_a_mistake_is_not_taken_for_coarse_arithmetic(judge: Judge) -> None:
    result = judge.evaluate(stressed(CLAMPED, NORMAL_RELU))
    assert result["outcome"] == "INCORRECT"
    assert findings(result) == {}
    assert result["correctness"]["observed_precision"] == "PRECISION_FP32"


@pytest.mark.parametrize("precision", ["PRECISION_BF16", "PRECISION_FP8"])
@pytest.mark.parametrize("changes", [{}, {"stress_inputs": False}])
def test_coarse_arithmetic_is_no_cover_for_a_mistake(judge: Judge, precision: str, changes: dict[str, Any]) -> None:
    result = judge.evaluate(stressed(CLAMPED, NORMAL_RELU, allowed_precision=precision, **changes))
    assert result["outcome"] == "INCORRECT"
    rounded = module("return torch.relu(x[0].bfloat16()).float()", name="ModelNew")
    result = judge.evaluate(stressed(rounded, NORMAL_RELU, allowed_precision=precision, **changes))
    assert result["outcome"] == "CORRECT", result["message"]


def test_the_hint_asks_for_a_purpose(judge: Judge) -> None:
    (found,) = judge.evaluate(stressed(ROUNDED, MATMUL))["findings"]
    assert "on purpose" in found["evidence"]
    assert "look for a mistake" in found["evidence"]


def test_full_precision_is_observed(judge: Judge) -> None:
    result = judge.evaluate(stressed(MATMUL.replace("Model(", "ModelNew("), MATMUL))
    assert result["outcome"] == "CORRECT"
    assert result["correctness"]["observed_precision"] == "PRECISION_FP32"
    assert result["correctness"]["stress_trials"] == 7


# Secret parameters

NORM = "self.norm = nn.BatchNorm1d(128).eval()"
BATCH_NORM = module("return self.norm(x[0])", NORM)


def test_a_batch_norm_that_is_folded_in_the_constructor_is_right(judge: Judge) -> None:
    fold = "self.gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)"
    shift = "self.shift = norm.bias - norm.running_mean * self.gain"
    made = "\n        ".join((NORM, "norm = self.norm", fold, shift))
    result = judge.evaluate(stressed(module("return x[0] * self.gain + self.shift", made, name="ModelNew"), BATCH_NORM))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["parameters_perturbed"] == 4


def test_a_batch_norm_without_its_parameters_is_wrong_and_told_why(judge: Judge) -> None:
    code = module("return x[0] / (1 + 1e-5) ** 0.5", name="ModelNew")
    result = judge.evaluate(stressed(code, BATCH_NORM))
    assert result["outcome"] == "INCORRECT"
    assert findings(result) == {"S29": "SEVERITY_INFO"}
    assert "norm.weight" in result["findings"][0]["evidence"]
    assert judge.evaluate(stressed(code, BATCH_NORM, stress_inputs=False))["outcome"] == "CORRECT"


def test_a_candidate_that_is_no_module_can_be_made(judge: Judge) -> None:
    result = judge.evaluate(stressed("class ModelNew:\n    def __call__(self, x):\n        return x\n", BATCH_NORM))
    assert result["outcome"] == "INCORRECT", result["message"]


# Stress and weak problems

RELU = module("return torch.relu(x[0])", inputs="torch.rand(32, 128)")


def test_the_identity_is_no_relu_on_stress_inputs(judge: Judge) -> None:
    copy = module("return x[0].clone()", name="ModelNew")
    result = judge.evaluate(stressed(copy, RELU))
    assert result["outcome"] == "INCORRECT"
    assert "on stress inputs" in result["message"]
    unaware = judge.evaluate(stressed(copy, RELU, stress_inputs=False))
    assert unaware["outcome"] == "CORRECT"
    assert findings(unaware)["D06"] == "SEVERITY_WARNING"


def test_results_of_a_weak_problem_say_so(judge: Judge) -> None:
    constant = module("return x[0].softmax(-1).sum(-1)")
    result = judge.evaluate(stressed(module("return torch.ones(32)", name="ModelNew"), constant))
    assert result["outcome"] == "CORRECT"
    assert findings(result) == {"D06": "SEVERITY_WARNING"}


# Provenance

_KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def relu(y_ptr, x_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.maximum(tl.load(x_ptr + at, at < count), 0.0), at < count)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
        return y
"""
LAUNCH = "relu[(triton.cdiv(x.numel(), 1024),)](y, {source}, x.numel(), BLOCK=1024)"
OUT_OF_PLACE = _KERNEL.format(body=f"y = torch.empty_like(x); {LAUNCH.format(source='x')}")
IN_PLACE = _KERNEL.format(body=f"y = x.clone(); {LAUNCH.format(source='y')}")
NEVER = _KERNEL.format(body="y = torch.relu(x)")
FOR_SHOW = _KERNEL.format(body=f"y = torch.empty_like(x); {LAUNCH.format(source='x')}; y = torch.relu(x)")
LABEL, REJECT = "PROVENANCE_POLICY_LABEL", "PROVENANCE_POLICY_REJECT_DECOYS"


@pytest.mark.parametrize("policy", [LABEL, REJECT])
@pytest.mark.parametrize(("code", "found"), [(NEVER, "S19"), (FOR_SHOW, "S20")], ids=["never", "for show"])
def test_kernels_that_do_nothing(judge: Judge, code: str, found: str, policy: str) -> None:
    result = judge.evaluate(stressed(code, RELU, backend="triton", provenance_policy=policy))
    if policy == LABEL:
        assert result["outcome"] == "CORRECT", result["message"]
        assert findings(result) == {found: "SEVERITY_INFO"}
    else:
        assert result["outcome"] == "REJECTED", result["message"]
        assert findings(result) == {found: "SEVERITY_REJECT"}
        assert result["rejected"] == {"finding_ids": [found]}


@pytest.mark.parametrize("stress", [True, False])
@pytest.mark.parametrize("code", [OUT_OF_PLACE, IN_PLACE], ids=["out of place", "in place"])
def test_kernels_that_do_the_work(judge: Judge, code: str, stress: bool) -> None:
    result = judge.evaluate(stressed(code, RELU, backend="triton", stress_inputs=stress))
    assert result["outcome"] == "CORRECT", result["message"]
    assert "S20" not in findings(result)


def test_a_profile_of_the_cpu_device_has_no_kernels_and_so_there_is_none(judge: Judge) -> None:
    result = judge.evaluate(stressed(OUT_OF_PLACE, RELU, backend="triton", enable_profiling=True))
    assert result["outcome"] == "CORRECT", result["message"]
    assert not {"profile", "coverage"} & result.keys()
    assert findings(result) == {"D21": "SEVERITY_INFO"}


def test_a_candidate_that_fails_where_it_is_profiled_has_failed(judge: Judge) -> None:
    wary = OUT_OF_PLACE.replace(
        "    def forward(self, x):\n",
        "    def forward(self, x):\n"
        "        if torch.autograd._profiler_enabled():\n"
        "            raise RuntimeError('not while somebody looks')\n",
    )
    assert wary != OUT_OF_PLACE
    result = judge.evaluate(stressed(wary, RELU, backend="triton", enable_profiling=True))
    assert (result["outcome"], "not while somebody looks" in result["message"]) == ("RUNTIME_ERROR", True)
    surveyed = judge.evaluate(stressed(wary, RELU, backend="triton"))
    assert surveyed["outcome"] == "CORRECT", "a label is all that it has got out of"
