"""Problems with several workloads: which there are, what becomes of them together, and real verdicts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.judge import workloads
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits
from kerneldyno.evaluator.toolkits.torch_settings import build
from kerneldyno.evaluator.toolkits.workloads import MOST, NAME_CHARS, VALUE_BYTES
from kerneldyno.rpc.workloads import MAX_WORKLOAD_BYTES, MAX_WORKLOAD_NAME_CHARS, MAX_WORKLOADS
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

CPU = torch.device("cpu")
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, 16)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2

{cases}

def get_inputs(case):
    return [torch.randn(case["rows"], case["columns"], dtype=getattr(torch, case.get("dtype", "float32")))]

def get_init_inputs(case):
    return [case["columns"]]
"""
LIST = 'cases = [{"rows": 8, "columns": 32}, {"rows": 5, "columns": 17}, {"rows": 64, "columns": 64}]'
NAMED = 'cases = {"even": {"rows": 8, "columns": 32}, "odd": {"rows": 5, "columns": 17}}'
CANDIDATE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, 16)

    def forward(self, x):
        {body}
        return torch.relu(self.linear(x)) * 2
"""


def spec(cases: str = LIST, **fields: Any) -> EvalSpec:
    return judge_harness.spec("", reference_code=REFERENCE.format(cases=cases), **fields)


def built(chosen: EvalSpec) -> Any:
    return build(toolkits()["kernelbench"], chosen.problem, CPU, 5)


def judged(judge: Judge, body: str = "pass", cases: str = LIST, **fields: Any) -> dict[str, Any]:
    fields = {"provenance_policy": "PROVENANCE_POLICY_LABEL", **fields}
    code = CANDIDATE.format(body=body)
    return judge.evaluate(request(code, reference_code=REFERENCE.format(cases=cases), backend="torch", **fields))


@pytest.mark.pure
def test_each_workload_is_a_problem_with_its_own_inputs() -> None:
    shapes = []
    for number in range(3):
        chosen = judge_harness.with_workload(spec(), number)
        problem = built(chosen)
        assert [json.loads(value)["rows"] for _, value in problem.workloads] == [8, 5, 64]
        (x,) = problem.inputs(0, 1)
        assert problem.expected(0, [x], 1).shape == (x.shape[0], 16)
        shapes.append(tuple(x.shape))
        assert x.nbytes <= problem.input_bytes() < x.nbytes + 256
    assert shapes == [(8, 32), (5, 17), (64, 64)]
    assert len({judge_harness.with_workload(spec(), number).problem.key() for number in range(3)}) == 3


@pytest.mark.pure
def test_the_limits_are_the_contracts() -> None:
    assert (MAX_WORKLOADS, MAX_WORKLOAD_NAME_CHARS, MAX_WORKLOAD_BYTES) == (MOST, NAME_CHARS, VALUE_BYTES)


@pytest.mark.pure
def test_names_and_the_requests_workloads() -> None:
    assert [name for name, _ in built(spec(NAMED)).workloads] == ["even", "odd"]
    given = [{"name": "mine", "value_json": '{"rows": 3, "columns": 4}'}]
    problem = built(spec(workloads=given))
    assert problem.workloads == [("mine", '{"rows": 3, "columns": 4}')]
    assert problem.inputs(0, 1)[0].shape == (3, 4)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("cases", "fields", "words"),
    [
        ("", {}, "give a list `cases`"),
        ("cases = []", {}, "give a list `cases`"),
        ("cases = 3", {}, "give a list `cases`"),
        ("cases = [0] * 101", {}, "at most 100"),
        ('cases = [{"rows": 3}]', {}, "columns"),
    ],
)
def test_workloads_that_the_reference_cannot_use(cases: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ReferenceFailure, match=words):
        built(spec(cases, **fields))


@pytest.mark.pure
def test_workloads_for_a_reference_that_takes_none() -> None:
    plain = judge_harness.spec("", workloads=[{"value_json": "1"}])
    with pytest.raises(ReferenceFailure, match="has no parameter for them"):
        built(plain)


def right(speedup: float, *, width: float = 0.01, finding: str = "") -> pb.EvalResult:
    result = pb.EvalResult(
        outcome=pb.EvalResult.CORRECT,
        speedup=speedup,
        end_to_end_speedup=speedup / 2,
        correctness=pb.CorrectnessReport(passed_trials=5, total_trials=5, max_error_ratio=speedup / 10),
        stages=[pb.StageSpan(stage=pb.STAGE_CHECKING)],
        candidate_timing=pb.TimingStats(median_seconds=1 / speedup),
    )
    result.speedup_interval.CopyFrom(pb.Interval(low=speedup * (1 - width), high=speedup / (1 - width)))
    if finding:
        result.findings.add(id=finding)
    return result


async def together(results: list[pb.EvalResult], count: int, **fields: Any) -> tuple[pb.EvalResult, list[EvalSpec]]:
    asked: list[EvalSpec] = []

    async def one(chosen: EvalSpec) -> tuple[pb.EvalResult, list[tuple[str, str]]]:
        asked.append(chosen)
        return results[len(asked) - 1], [("", str(number)) for number in range(count)]

    return await workloads.evaluate(spec(run_performance=True, **fields), one), asked


@pytest.mark.pure
async def test_the_mean_the_worst_and_the_share_of_workloads_won() -> None:
    whole, asked = await together([right(4.0, finding="S30"), right(0.5), right(2.0, finding="S30")], 3)
    assert [each.problem.workload for each in asked] == [0, 1, 2]
    assert whole.speedup == pytest.approx(4.0 ** (1 / 3) * 1.0, rel=1e-9)
    assert whole.end_to_end_speedup == pytest.approx(whole.speedup / 2)
    half = math.log(whole.speedup_interval.high / whole.speedup_interval.low) / 2
    assert half == pytest.approx(-math.log(0.99) / math.sqrt(3))
    summary = whole.workload_summary
    assert (summary.total, summary.timed, summary.worst_speedup) == (3, 3, 0.5)
    assert summary.mean_speedup == pytest.approx(6.5 / 3)
    assert summary.share_won == pytest.approx(2 / 3)
    assert [each.workload.value_json for each in whole.workloads] == ["0", "1", "2"]
    assert [each.candidate_timing.median_seconds for each in whole.workloads] == [0.25, 2.0, 0.5]
    assert not whole.HasField("candidate_timing")
    assert (whole.correctness.passed_trials, whole.correctness.max_error_ratio) == (15, pytest.approx(0.4))
    assert len(whole.stages) == 3
    assert [each.id for each in whole.findings] == ["S30"]


@pytest.mark.pure
async def test_the_first_wrong_workload_ends_it() -> None:
    wrong = pb.EvalResult(outcome=pb.EvalResult.INCORRECT, message="7 elements are wrong", speedup=0.0)
    whole, asked = await together([right(4.0), wrong], 3)
    assert len(asked) == 2
    assert whole.outcome == pb.EvalResult.INCORRECT
    assert whole.message == "workload 1 (2 of 3): 7 elements are wrong"
    assert [each.outcome for each in whole.workloads] == [pb.EvalResult.CORRECT, pb.EvalResult.INCORRECT]
    assert not whole.HasField("workload_summary")
    assert whole.speedup == 0


@pytest.mark.pure
async def test_late_workloads_are_checked_and_not_timed() -> None:
    untimed = right(1.0)
    untimed.speedup = untimed.end_to_end_speedup = 0.0
    untimed.ClearField("speedup_interval")
    untimed.ClearField("candidate_timing")
    whole, asked = await together([right(4.0), untimed], 2, workloads_time="0.000000001s")
    assert [each.timing.wanted for each in asked] == [True, False]
    assert whole.speedup == pytest.approx(4.0)
    assert (whole.workload_summary.total, whole.workload_summary.timed) == (2, 1)
    assert not whole.workloads[1].HasField("speedup")


@pytest.mark.pure
async def test_baselines_have_means_too() -> None:
    results = [right(4.0), right(1.0)]
    for result, speedups in zip(results, ((2.0, 0.0), (8.0, 0.0)), strict=True):
        for backend, speedup in enumerate(speedups, 2):
            one = result.baselines.add(backend=backend, error="" if speedup else "no compiler")  # type: ignore[arg-type]
            if speedup:
                one.speedup = speedup
                one.speedup_interval.CopyFrom(pb.Interval(low=speedup * 0.99, high=speedup / 0.99))
        result.baselines.add(name="library", speedup=3.0)
    whole, _ = await together(results, 2)
    first, second, library = whole.baselines
    assert (first.backend, first.speedup) == (2, pytest.approx(4.0))
    assert first.speedup_interval.low < 4.0 < first.speedup_interval.high
    assert (second.backend, second.error, second.HasField("speedup")) == (3, "no compiler", False)
    assert (library.name, library.backend, library.speedup) == ("library", 0, pytest.approx(3.0))
    assert len(whole.workloads[0].baselines) == 3


@pytest.mark.pure
async def test_without_workloads_the_result_is_the_ones_alone() -> None:
    result = right(3.0)
    whole, asked = await together([result], 0)
    assert whole is result
    assert len(asked) == 1


def test_all_workloads_are_judged(judge: Judge) -> None:
    result = judged(judge, stress_inputs=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert [json.loads(each["workload"]["value_json"])["rows"] for each in result["workloads"]] == [8, 5, 64]
    assert result["workload_summary"]["total"] == 3
    assert result["correctness"]["passed_trials"] == sum(
        each["correctness"]["passed_trials"] for each in result["workloads"]
    )


def test_a_candidate_that_is_wrong_where_the_size_is_odd(judge: Judge) -> None:
    result = judged(judge, "x = x if x.shape[1] % 2 == 0 else x * 1.5", cases=NAMED)
    assert result["outcome"] == "INCORRECT"
    assert result["message"].startswith("workload odd (2 of 2): ")
    assert [each["outcome"] for each in result["workloads"]] == ["CORRECT", "INCORRECT"]


def test_nothing_is_carried_from_one_workload_to_the_next(judge: Judge) -> None:
    body = (
        "import sys; sys.calls = getattr(sys, 'calls', 0) + 1; x = x * (1 if x.shape[0] == 8 or sys.calls < 100 else 2)"
    )
    assert judged(judge, body)["outcome"] == "CORRECT"


@pytest.mark.alone
def test_each_workload_is_timed(judge: Judge) -> None:
    result = judged(judge, cases=NAMED, run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    speedups = [each["speedup"] for each in result["workloads"]]
    assert result["speedup"] == pytest.approx(math.sqrt(speedups[0] * speedups[1]))
    assert result["workload_summary"]["timed"] == 2
    assert "candidate_timing" not in result


def test_a_reference_that_fails_in_one_workload(judge: Judge) -> None:
    result = judged(judge, cases=LIST.replace('"rows": 64', '"rows": -1'))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert result["message"].startswith("workload {")


@pytest.mark.parametrize(
    ("each", "whole"),
    [([True, True], True), ([True, False], False), ([False, True], False), ([True, None], True), ([None, None], None)],
)
def test_a_candidate_is_deterministic_if_no_workload_shows_the_contrary(
    each: list[bool | None], whole: bool | None
) -> None:
    found = workloads.all_correct([pb.CorrectnessReport(deterministic=value) for value in each])
    assert (found.deterministic if found.HasField("deterministic") else None) == whole
