"""The examination of problems: which stress they tolerate, and which problems cannot detect a lazy kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.problems import stress, trial
from kerneldyno.evaluator.judge.problems.examination import Examination, examine, warnings
from kerneldyno.evaluator.shared import casting, tree
from kerneldyno.evaluator.shared.enums import Precision
from kerneldyno.evaluator.shared.running_problem import RunningProblem
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

CPU = open_device("cpu:0")
NORMAL = "torch.randn(32, 64)"
UNIFORM = "torch.rand(32, 64)"


def reference(returned: str, *inputs: str) -> str:
    names = ", ".join("xyz"[: len(inputs)])
    return f"""
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, {names}):
        return {returned}

def get_inputs():
    return [{", ".join(inputs)}]
"""


def known(returned: str, *inputs: str, **changes: Any) -> tuple[RunningProblem, EvalSpec, Examination]:
    asked = {"reference_code": reference(returned, *inputs), "stress_inputs": True, **changes}
    spec = judge_harness.spec("", **asked)
    problem = build_local(spec.problem, CPU, 7)
    return problem, spec, examine(problem, spec, CPU)


def examined(returned: str, *inputs: str, **changes: Any) -> Examination:
    return known(returned, *inputs, **changes)[2]


def kinds(found: Examination) -> set[str]:
    return {each.kind for each in found.held}


ALL = {kind for kind, _ in stress.KINDS}


@pytest.mark.parametrize("returned", ["torch.relu(x)", "torch.softmax(x, -1)", "x.cumsum(-1)", "F.gelu(x)"])
def test_ordinary_problems_bear_everything_and_are_not_weak(returned: str) -> None:
    found = examined(returned, NORMAL)
    assert kinds(found) == ALL
    assert found.varies
    assert found.pass_all == []
    assert warnings(found) == []


@pytest.mark.parametrize("returned", ["int(x.sum())", "x.sum().long()"])
def test_draws_that_agree_by_chance_make_no_constant_reference(returned: str) -> None:
    fourth_differs = (
        "torch.full((4, 4), float(get_inputs.__dict__.setdefault('n', []).append(0) or len(get_inputs.n) > 3))"
    )
    assert examined(returned, fourth_differs, stress_inputs=False).varies
    assert not examined(returned, "torch.ones(4, 4)", stress_inputs=False).varies


@pytest.mark.parametrize(
    ("returned", "inputs"),
    [
        ("x * 0", NORMAL),
        ("torch.full_like(x, 3.0)", NORMAL),
        ("torch.relu(x - 1e9).sum(-1)", UNIFORM),
        ("torch.softmax(x, -1).sum(-1)", NORMAL),
    ],
)
def test_a_constant_reference_is_a_weak_problem(returned: str, inputs: str) -> None:
    found = examined(returned, inputs)
    assert not found.varies
    assert "another draw's answer" in found.pass_all
    (finding,) = warnings(found)
    assert (finding.id, finding.severity) == ("D06", pb.Finding.SEVERITY_WARNING)
    assert "another draw's answer" in finding.evidence


def test_stress_makes_up_for_inputs_that_show_too_little() -> None:
    strong, weak = examined("torch.relu(x)", UNIFORM), examined("torch.relu(x)", UNIFORM, stress_inputs=False)
    assert "a copy of the input" in strong.pass_nominal
    assert warnings(strong) == []
    assert weak.held == []
    assert "a copy of the input" in weak.pass_all
    assert "a copy of the input" in warnings(weak)[0].evidence


@pytest.mark.parametrize(
    "returned", ["torch.log(x)", "x.sqrt()", "torch.rsqrt(x + 1e-3)", "F.kl_div(torch.log(x), x * x, reduction='sum')"]
)
def test_functions_of_positive_numbers_get_no_signs(returned: str) -> None:
    found = examined(returned, f"{UNIFORM} + 0.01")
    assert "large" in kinds(found)
    assert "signs" not in kinds(found)
    assert not any(each.signed for each in found.held)


def test_the_strongest_that_the_reference_bears_is_used() -> None:
    amplitudes = {each.kind: each.amplitude for each in examined("torch.exp(x)", UNIFORM).held}
    assert amplitudes["large"] == 16.0  # exp(200) overflows float32
    assert {each.kind: each.amplitude for each in examined("x * x", UNIFORM).held}["large"] == 200.0


def test_answers_in_half_precision_keep_clear_of_its_largest_number() -> None:
    half = "torch.randn(32, 64).half()"
    _, _, examination = known("x * 20", half)  # 200 times as large, answers would come near the largest number
    assert {kind.kind: kind.amplitude for kind in examination.held}["large"] == 16.0
    _, _, examination = known("x * 200", half)
    assert {kind.kind: kind.amplitude for kind in examination.held}["large"] == 3.0


def test_only_kinds_that_are_asked_for_are_used() -> None:
    _, _, examination = known("x * 2", NORMAL, stress_kinds=["STRESS_KIND_ROWS", "STRESS_KIND_SIGNS"])
    assert [kind.kind for kind in examination.held] == ["signs", "rows"]


def test_kinds_that_only_make_infinities_are_dropped() -> None:
    found = examined("torch.log(x - 0.5)", "torch.rand(32, 64) + 1")
    assert not {"signs", "rows", "sparse"} & kinds(found)
    assert not any(each.signed for each in found.held)


def test_a_reference_that_raises_under_stress_does_not_get_it() -> None:
    checked = "x if bool((x >= 0).all()) else F.linear(x, torch.ones(1, 1))"
    assert not any(each.signed for each in examined(checked, UNIFORM).held)


def test_ties_are_kept_from_choices() -> None:
    assert kinds(examined("x.argmax(-1)", NORMAL)) == ALL - {"sparse"}


def test_inputs_that_must_not_be_changed_bear_nothing() -> None:
    found = examined("x * 2", "torch.randint(0, 9, (64,))")
    assert found.held == []
    data = torch.zeros(64, dtype=torch.int64).view(torch.uint8)
    found.season(CPU, data, [tree.describe(torch.zeros(64, dtype=torch.int64))], 1)
    assert not data.any()


@pytest.mark.parametrize(
    "returned", ["F.dropout(x, 0.5, True)", "x + torch.rand_like(x)", "torch.bernoulli(x.sigmoid())"]
)
def test_random_references_are_examined_under_their_own_seed(returned: str) -> None:
    found = examined(returned, NORMAL)
    assert found.varies
    assert kinds(found) >= {"signs", "large"}
    assert "another draw's answer" not in found.pass_all


def test_outputs_of_varying_shape_are_no_weakness() -> None:
    assert warnings(examined("x[x > 0]", NORMAL)) == []


@pytest.mark.parametrize("returned", ["x.mean()", "torch.logsumexp(x, -1)", "x @ x.t()", "x * 2", "x.mul_(2)"])
def test_symmetry_and_linearity_are_no_weakness(returned: str) -> None:
    assert {finding.severity for finding in warnings(examined(returned, NORMAL))} <= {pb.Finding.SEVERITY_INFO}


def test_a_problem_that_only_misses_precision_says_just_that() -> None:
    (finding,) = warnings(examined("(x > 0).float()", NORMAL))
    assert (finding.id, finding.severity) == ("D06", pb.Finding.SEVERITY_INFO)
    assert "bfloat16" in finding.evidence


def test_precision_that_is_allowed_is_not_missed() -> None:
    found = examined("(x > 0).float()", NORMAL, allowed_precision="PRECISION_BF16")
    assert found.pass_all == ["fp8 operands"]


def test_a_reference_that_fails_on_its_own_inputs_is_a_failure() -> None:
    with pytest.raises(ReferenceFailure):
        examined("x @ x", NORMAL)


@pytest.mark.parametrize("kind", sorted(ALL))
def test_trials_under_stress_have_changed_inputs_and_their_own_answers(kind: str) -> None:
    problem, spec, found = known("torch.relu(x)", NORMAL)
    (held,) = (each for each in found.held if each.kind == kind)
    made = trial.prepare(problem, spec, CPU, 0, found.vary(held, CPU))
    (x,) = made.inputs.tensors()
    (leaf,) = made.expected.leaves
    assert torch.equal(leaf.value, torch.relu(x))
    assert torch.equal(leaf.truth, torch.relu(x.double()))
    assert not torch.equal(x, trial.prepare(problem, spec, CPU, 0, found.vary(held, CPU)).inputs.tensors()[0])


def test_seasoned_inputs_are_nominal_but_for_a_few_elements() -> None:
    _, _, found = known("torch.relu(x)", NORMAL)
    x = torch.randn(3, 32, 64)
    seasoned = x.clone()
    found.season(CPU, seasoned.view(-1).view(torch.uint8), [tree.describe(x[0])], 3)
    changed = (seasoned != x).view(3, -1)
    assert all(1 <= int(each.sum()) <= 2 for each in changed)
    assert len({tuple(each.nonzero().flatten().tolist()) for each in changed}) > 1


def test_changed_inputs_of_a_problem_in_fp8_are_values_of_it() -> None:
    problem, spec, found = known("torch.relu(x)", NORMAL, precision="PRECISION_FP8")
    assert kinds(found) >= {"patch", "rows", "large"}
    for kind in found.held:
        (changed,) = trial.prepare(problem, spec, CPU, 0, found.vary(kind, CPU)).inputs.tensors()
        assert torch.equal(casting.cast(changed, Precision.FP8), changed), kind
    inputs = trial.prepare(problem, spec, CPU, 0).inputs
    data = inputs.master.repeat(3)
    found.season(CPU, data, inputs.specs, 3)
    for draw in tree.stacked(data, inputs.specs, 3)[0]:
        assert torch.equal(casting.cast(draw, Precision.FP8), draw)
        assert not torch.equal(draw, inputs.tensors()[0].reshape(-1))
