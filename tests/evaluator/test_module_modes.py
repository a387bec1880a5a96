"""Modules in training and in eval mode: what a call returns, and real verdicts on running statistics and dropout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kerneldyno.evaluator.judge import modes
from kerneldyno.evaluator.shared import gradients, tree
from kerneldyno.evaluator.shared.buffers import WithBuffers, in_mode, same_bytes, whole_call
from kerneldyno.evaluator.shared.gradients import Gradients
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits
from kerneldyno.evaluator.toolkits.torch_settings import build
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

CPU = torch.device("cpu")
TRAIN, EVAL, BOTH = "MODULE_MODE_TRAIN", "MODULE_MODE_EVAL", "MODULE_MODE_BOTH"

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(24)
        self.register_buffer("table", torch.rand(24))

    def forward(self, x):
        return torch.relu(self.bn(x) + self.table)

def get_inputs():
    return [torch.randn(40, 24) * 2 + 1]
"""
PLAIN = REFERENCE.replace("class Model(", "class ModelNew(")
DROPOUT = REFERENCE.replace("torch.relu(", "nn.functional.dropout(").replace(
    "self.table", "self.table, 0.4, self.training"
)

#: A batch normalisation by hand, without the table among its buffers. The changes below spoil it.
OWN = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(24))
        self.bias = nn.Parameter(torch.zeros(24))
        self.register_buffer("running_mean", torch.zeros(24))
        self.register_buffer("running_var", torch.ones(24))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, 0.1)
            self.running_var.lerp_(x.var(0), 0.1)
        else:
            mean, var = self.running_mean, self.running_var
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.weight + self.bias

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = Norm()
        self.register_buffer("table", torch.rand(24))

    def forward(self, x):
        return torch.relu(self.bn(x) + self.table)
"""
#: Updates that torch's own batch normalisation makes in another way, with the same result.
REASSIGNED = OWN.replace("self.running_mean.lerp_(mean, 0.1)", "self.running_mean = self.running_mean.lerp(mean, 0.1)")


class Counter(nn.Module):
    """Adds up its inputs in a buffer, and returns that buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))
        self.register_buffer("other", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += x
        return self.calls


def made(code: str = REFERENCE, **fields: Any) -> Any:
    spec = judge_harness.spec("", reference_code=code, **fields)
    return build(toolkits()[spec.problem.toolkit], spec.problem, CPU, 5)


def judged(judge: Judge, code: str, mode: str, *, reference: str = REFERENCE, **fields: Any) -> dict[str, Any]:
    fields = {"stress_inputs": True, "provenance_policy": "PROVENANCE_POLICY_LABEL", "backend": "torch", **fields}
    return judge.evaluate(request(code, reference_code=reference, module_mode=mode, **fields))


@pytest.mark.pure
def test_a_call_returns_buffers_and_gives_them_their_values_again() -> None:
    module = Counter()
    module.calls.fill_(3)
    call, x = WithBuffers(module, ["calls", "missing", "none.calls"], module), torch.tensor([1.0, 2.0])
    for _ in range(2):
        found = call(x)
        assert found["buffers"]["calls"].tolist() == [4, 5]
        assert found["output"].tolist() == [4, 5], "the output is the buffer itself, so it must be copied"
        assert (found["buffers"]["missing"], found["buffers"]["none.calls"]) == (None, None)
        assert module.calls.tolist() == [3, 3]
    assert gradients.names(tree.flatten(found)[0]) == ["buffers['calls']", "output"]


@pytest.mark.pure
def test_buffers_are_as_before_after_a_call_that_fails_or_replaces_them() -> None:
    class Replacing(Counter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = self.calls + x
            if x.sum() > 3:
                raise ValueError("too large")
            return x

    module = Replacing()
    before = module.calls
    call = WithBuffers(module, ["calls"], module)
    assert call(torch.ones(2))["buffers"]["calls"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="too large"):
        call(torch.full((2,), 2.0))
    assert module.calls is before
    assert before.tolist() == [0, 0]


@pytest.mark.pure
def test_functions_and_calls_without_names() -> None:
    assert WithBuffers(abs, ["calls"], abs)(-1) == {"output": 1, "buffers": {"calls": None}}
    assert WithBuffers(abs, [], abs)(-1) == 1
    assert whole_call(abs, None, None) is abs
    assert in_mode(abs, True) is abs
    assert not in_mode(nn.Dropout(), False).training
    assert in_mode(nn.Dropout(), None).training


@pytest.mark.pure
def test_gradients_and_buffers_together() -> None:
    module = nn.BatchNorm1d(3)
    names = ["running_mean", "running_var", "num_batches_tracked"]
    call = whole_call(module, Gradients([], ["weight"], 1), names)
    with torch.no_grad():
        found = call(torch.randn(5, 3), torch.ones(5, 3))
    assert found["buffers"]["num_batches_tracked"] == 1
    wanted = [
        *(f"buffers['{name}']" for name in sorted(names)),
        "input_gradients[0]",
        "output",
        "parameter_gradients['weight']",
    ]
    assert gradients.names(tree.flatten(found)[0]) == wanted


@pytest.mark.pure
def test_bytes_are_compared_with_those_of_nan() -> None:
    one = torch.tensor([float("nan"), 1.0])
    assert same_bytes(one, one.clone())
    assert same_bytes(torch.tensor(1), torch.tensor(1))
    assert not same_bytes(one, torch.ones(2))
    assert not same_bytes(one, one.double())
    assert not same_bytes(None, one)


@pytest.mark.pure
def test_a_problem_finds_the_buffers_that_it_changes() -> None:
    problem = made(module_mode=TRAIN)
    (x,) = problem.inputs(0, 1)
    assert problem.training
    assert problem.buffers == ["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"]
    state = {name: values.clone() for name, values in problem.parameters().items()}
    first, second, precise = problem.expected(0, [x], 1), problem.expected(0, [x], 1), problem.precise([x], 1)
    assert int(first["buffers"]["bn.num_batches_tracked"]) == 1
    for name, values in first["buffers"].items():
        assert torch.equal(values, second["buffers"][name])
        assert torch.allclose(values.double(), precise["buffers"][name].double())
    assert all(torch.equal(values, problem.parameters()[name]) for name, values in state.items())
    assert set(problem.timed(x)) == {"output", "buffers"}


@pytest.mark.pure
def test_eval_mode_compares_no_buffers_and_silences_dropout() -> None:
    problem = made(DROPOUT, module_mode=EVAL)
    (x,) = problem.inputs(0, 1)
    assert problem.training is False
    assert not problem.buffers
    assert torch.equal(problem.expected(0, [x], 1), problem.expected(0, [x], 2))


@pytest.mark.pure
def test_without_a_mode_modules_stay_as_they_are() -> None:
    problem = made()
    problem.inputs(0, 1)
    assert problem.training is None
    assert not problem.buffers


@pytest.mark.pure
def test_a_toolkit_without_modes_says_so() -> None:
    spec = judge_harness.spec("", toolkit="kernel_simple", cases_code="def get_cases(): return []", module_mode=EVAL)
    with pytest.raises(ReferenceFailure):
        build(toolkits()["kernel_simple"], spec.problem, CPU, 5)


@pytest.mark.pure
def test_modes_are_different_problems() -> None:
    keys = {judge_harness.spec("", module_mode=mode).problem.key() for mode in (TRAIN, EVAL, "MODULE_MODE_UNSPECIFIED")}
    assert len(keys) == 3


def _scripted(*outcomes: Any) -> tuple[list[EvalSpec], Callable[[EvalSpec], Any]]:
    asked: list[EvalSpec] = []

    async def evaluate_one(spec: EvalSpec) -> Any:
        asked.append(spec)
        result = pb.EvalResult(outcome=outcomes[len(asked) - 1], message="said")
        result.correctness.passed_trials = 3
        result.findings.add(id=f"D0{len(asked)}")
        return result, [("w", "1")]

    return asked, evaluate_one


@pytest.mark.pure
def test_both_modes_are_two_evaluations_of_which_one_is_timed() -> None:
    spec = judge_harness.spec("", module_mode=BOTH, run_performance=True, enable_profiling=True)
    asked, evaluate_one = _scripted(pb.EvalResult.CORRECT, pb.EvalResult.CORRECT)
    result, workloads = asyncio.run(modes.evaluate(spec, evaluate_one))
    assert [(each.problem.training, each.timing.wanted, each.inspection.profile) for each in asked] == [
        (False, False, False),
        (True, True, True),
    ]
    assert (result.correctness.passed_trials, workloads) == (6, [("w", "1")])
    assert [finding.id for finding in result.findings] == ["D02", "D01"]
    assert result.message == "all outputs of 6 trials are right, in eval and in training mode"


@pytest.mark.pure
def test_the_first_mode_that_fails_ends_the_evaluation() -> None:
    spec = judge_harness.spec("", module_mode=BOTH)
    asked, evaluate_one = _scripted(pb.EvalResult.RUNTIME_ERROR)
    result, _ = asyncio.run(modes.evaluate(spec, evaluate_one))
    assert (len(asked), result.message) == (1, "in eval mode: said")
    asked, evaluate_one = _scripted(pb.EvalResult.CORRECT, pb.EvalResult.RUNTIME_ERROR)
    result, _ = asyncio.run(modes.evaluate(spec, evaluate_one))
    assert (len(asked), result.message) == (2, "in training mode: said")
    asked, evaluate_one = _scripted(pb.EvalResult.INCORRECT)
    result, _ = asyncio.run(modes.evaluate(judge_harness.spec("", module_mode=TRAIN), evaluate_one))
    assert (len(asked), result.message) == (1, "said")


@pytest.mark.parametrize("mode", [TRAIN, EVAL, BOTH])
@pytest.mark.parametrize("code", [PLAIN, OWN, REASSIGNED], ids=["torch", "by hand", "reassigned"])
def test_right_candidates(judge: Judge, mode: str, code: str) -> None:
    result = judged(judge, code, mode)
    assert result["outcome"] == "CORRECT", result["message"]
    if mode == BOTH:
        assert result["message"].endswith("in eval and in training mode")


@pytest.mark.parametrize(
    ("change", "output", "kind"),
    [
        (("self.running_mean.lerp_(mean, 0.1)", "pass"), "buffers['bn.running_mean']", "values"),
        (("self.running_var.lerp_(x.var(0), 0.1)", "self.running_var.lerp_(var, 0.1)"), "running_var", "values"),
        (("self.num_batches_tracked += 1", "pass"), "buffers['bn.num_batches_tracked']", "values"),
        (('self.register_buffer("num_batches_tracked", torch.tensor(0))', "pass"), "num_batches_tracked", "structure"),
    ],
)
def test_running_statistics_that_are_wrong_after_a_call(
    judge: Judge, change: tuple[str, str], output: str, kind: str
) -> None:
    code = OWN.replace(*change)
    if kind == "structure":
        code = code.replace("self.num_batches_tracked += 1", "pass")
    for mode in (TRAIN, BOTH):
        result = judged(judge, code, mode, stress_inputs=False)
        assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", kind)
        assert output in result["incorrect"]["output"]
        assert output in result["message"]
        assert "in training mode" in result["message"]
    assert judged(judge, code, "MODULE_MODE_UNSPECIFIED")["outcome"] == "CORRECT"
    assert judged(judge, code, EVAL)["outcome"] == "CORRECT"


def test_batch_statistics_in_eval_mode_are_wrong(judge: Judge) -> None:
    code = OWN.replace(
        "mean, var = self.running_mean, self.running_var", "mean, var = x.mean(0), x.var(0, unbiased=False)"
    )
    assert judged(judge, code, TRAIN)["outcome"] == "CORRECT"
    for mode in (EVAL, BOTH):
        result = judged(judge, code, mode)
        assert (result["outcome"], result["incorrect"]["output"]) == ("INCORRECT", "output")
        assert "in eval mode" in result["message"]


def test_running_statistics_in_training_mode_are_wrong(judge: Judge) -> None:
    code = OWN.replace("if self.training:", "if False:")
    assert judged(judge, code, EVAL)["outcome"] == "CORRECT"
    result = judged(judge, code, BOTH)
    assert result["outcome"] == "INCORRECT"
    assert "in training mode" in result["message"]


def test_a_candidate_that_folds_its_statistics_needs_no_buffers_in_eval_mode(judge: Judge) -> None:
    code = OWN.replace("if self.training:", "if False:")
    code = code.replace('self.register_buffer("num_batches_tracked", torch.tensor(0))', "pass")
    assert judged(judge, code, EVAL)["outcome"] == "CORRECT"


def test_a_candidate_that_fails_in_eval_mode(judge: Judge) -> None:
    code = OWN.replace("mean, var = self.running_mean, self.running_var", "raise RuntimeError('no eval mode here')")
    result = judged(judge, code, BOTH)
    assert result["outcome"] == "RUNTIME_ERROR"
    assert result["message"].startswith("in eval mode: ")
    assert "no eval mode here" in result["message"]


def test_both_modes_of_each_workload(judge: Judge) -> None:
    reference = REFERENCE.replace("def get_inputs():", "cases = [40, 24]\n\ndef get_inputs(rows):").replace(
        "(40,", "(rows,"
    )
    result = judged(judge, OWN, BOTH, reference=reference)
    assert result["outcome"] == "CORRECT", result["message"]
    assert [each["message"] for each in result["workloads"]] == [result["workloads"][0]["message"]] * 2
    assert "in eval and in training mode" in result["workloads"][0]["message"]
    wrong = judged(judge, OWN.replace("self.num_batches_tracked += 1", "pass"), BOTH, reference=reference)
    assert wrong["outcome"] == "INCORRECT"
    assert wrong["message"].startswith("workload 40 (1 of 2): ")
    assert "in training mode" in wrong["message"]


@pytest.mark.pure
def test_sparse_buffers_are_left_alone() -> None:
    reference = REFERENCE.replace('"table", torch.rand(24)', '"odd", torch.eye(3).to_sparse()').replace(
        " + self.table", ""
    )
    problem = made(reference, module_mode=TRAIN)
    assert set(problem.expected(0, problem.inputs(0, 1), 1)["buffers"]) == set(problem.buffers)
    assert len(problem.buffers) == 3


def test_dropout_draws_the_same_mask_as_without_a_mode(judge: Judge) -> None:
    right = DROPOUT.replace("class Model(", "class ModelNew(")
    without = PLAIN.replace("torch.relu(self.bn(x) + self.table)", "self.bn(x) + self.table")
    assert judged(judge, right, BOTH, reference=DROPOUT)["outcome"] == "CORRECT"
    assert judged(judge, without, EVAL, reference=DROPOUT)["outcome"] == "CORRECT"
    for mode in (TRAIN, "MODULE_MODE_UNSPECIFIED"):
        assert judged(judge, without, mode, reference=DROPOUT)["outcome"] == "INCORRECT"


def test_gradients_in_training_mode(judge: Judge) -> None:
    assert judged(judge, PLAIN, BOTH, backward=True)["outcome"] == "CORRECT"
    code = OWN.replace("self.running_mean.lerp_(mean, 0.1)", "self.running_mean.lerp_(mean.detach(), 0.2)")
    code = code.replace("self.running_var.lerp_(x.var(0), 0.1)", "self.running_var.lerp_(x.var(0).detach(), 0.1)")
    result = judged(judge, code, TRAIN, backward=True)
    assert (result["outcome"], result["incorrect"]["output"]) == ("INCORRECT", "buffers['bn.running_mean']")


@pytest.mark.alone
def test_training_mode_is_timed(judge: Judge) -> None:
    result = judged(judge, PLAIN, BOTH, run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
    assert result["correctness"]["timed_outputs_checked"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    "fields",
    [
        {"launch_mode": "LAUNCH_MODE_CUDA_GRAPH"},
        {"baselines": ["REFERENCE_BACKEND_TORCH_COMPILE", "REFERENCE_BACKEND_TORCH_COMPILE_REDUCE_OVERHEAD"]},
    ],
    ids=["graphs", "compiled"],
)
@pytest.mark.parametrize("code", [PLAIN, OWN], ids=["torch", "by hand"])
def test_modes_with_graphs_and_compiled_references(judge: Judge, code: str, fields: dict[str, Any]) -> None:
    result = judged(judge, code, BOTH, run_performance=True, **fields)
    assert result["outcome"] == "CORRECT", result["message"]
    assert not any(baseline.get("error") for baseline in result.get("baselines", [])), result["baselines"]
    if "launch_mode" in fields:
        assert result["candidate_timing"]["launch_mode"] == "LAUNCH_MODE_CUDA_GRAPH"
