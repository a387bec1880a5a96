"""Fixed cases of any shapes, dtypes and arguments: all are checked in each process, and each is timed in one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge import workloads
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem
from kerneldyno.evaluator.judge.problems.cases import with_all_cases
from kerneldyno.evaluator.judge.problems.examination import examine
from kerneldyno.evaluator.judge.problems.trial import prepare
from kerneldyno.evaluator.judge.runners.work import T
from kerneldyno.evaluator.judge.timing.supply import Supply
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.spec import EvalSpec, ProblemSpec
from kerneldyno.evaluator.toolkits import ReferenceFailure, toolkits
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.evaluator.toolkits.torch_settings import build
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

CPU = open_device("cpu:0")
GET_CASES = "import torch\n\ndef get_cases():\n    return [{}]\n"
DOUBLED = (
    '{{"inputs": [torch.arange({0}).to(torch.{1})], "expected": 2 * torch.arange({0}).to(torch.{1}), "name": "{2}"}}'
)


def doubled(*kinds: tuple[int, str, str]) -> str:
    """Return `cases_code` with a case for each size, dtype and name: a vector, and its double."""
    return GET_CASES.format(", ".join(DOUBLED.format(*kind) for kind in kinds))


THREE = doubled((8, "float32", "small"), (4096, "float32", ""), (70_000, "int32", "large"))
NAMES = ["small", "case 2", "large"]


def spec(code: str = THREE, **fields: Any) -> EvalSpec:
    return judge_harness.spec(
        "", **{"toolkit": "kernel_simple", "reference_code": "", "entry_point": "f", "cases_code": code, **fields}
    )


def built(chosen: EvalSpec) -> Any:
    return build(toolkits()["kernel_simple"], chosen.problem, CPU.torch_device, 5)


def judged(judge: Judge, body: str, code: str = THREE, **fields: Any) -> dict[str, Any]:
    """Judge a function `f` with this body; it is timed unless `fields` say something else."""
    asked = {
        "toolkit": "kernel_simple",
        "backend": "torch",
        "entry_point": "f",
        "reference_code": "",
        "cases_code": code,
        "run_performance": True,
        **fields,
    }
    return judge.evaluate(request(f"import torch\n\n{body}\n", **asked))


def names(result: dict[str, Any]) -> list[str]:
    return [each["workload"]["name"] for each in result["workloads"]]


def is_timed(workload: dict[str, Any]) -> bool:
    times = [
        workload.get(field, {}).get("median_seconds", 0.0) for field in ("candidate_timing", "candidate_end_to_end")
    ]
    return min(times) > 0


@pytest.mark.pure
def test_each_process_has_all_cases_and_begins_with_its_own() -> None:
    for number, size in enumerate((8, 4096, 70_000)):
        problem = built(judge_harness.with_workload(spec(), number))
        assert [name for name, _ in problem.workloads] == NAMES
        assert problem.inputs(0, 1)[0].numel() == size
        assert Counter(problem.inputs(each, 1)[0].numel() for each in range(problem.cases)) == {
            8: 1,
            4096: 1,
            70_000: 1,
        }
        assert all(torch.equal(problem.expected(each, (), 1), 2 * problem.inputs(each, 1)[0]) for each in range(3))
    assert len({judge_harness.with_workload(spec(), number).problem.key() for number in range(3)}) == 3


@pytest.mark.pure
def test_one_case_is_no_workload() -> None:
    assert list(built(spec(doubled((8, "float32", "only")))).workloads) == []


@pytest.mark.pure
def test_names_of_inline_cases() -> None:
    cases = [{"inputs_json": "[1]", "expected_json": "2"}, {"inputs_json": "[2]", "expected_json": "4", "name": "two"}]
    chosen = spec("", cases=cases)
    assert [name for name, _ in built(chosen).workloads] == ["case 1", "two"]
    assert ProblemSpec.from_plain(json.loads(json.dumps(chosen.problem.to_plain()))) == chosen.problem


@pytest.mark.pure
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (GET_CASES.format(""), "there are no cases"),
        (GET_CASES.format('{"inputs": [1]}'), r"get_cases\(\)\[0\] is not"),
        (
            GET_CASES.format('{"inputs": [1], "expected": 1}') + "\nget_cases = lambda: [1]",
            r"get_cases\(\)\[0\] is not",
        ),
        (GET_CASES.format('*[{"inputs": [1], "expected": 1}] * 101'), "101 cases; at most 100"),
    ],
)
def test_cases_that_cannot_be_used(code: str, words: str) -> None:
    with pytest.raises(ReferenceFailure, match=words):
        built(spec(code))


@pytest.mark.pure
def test_fewer_cases_than_before() -> None:
    with pytest.raises(ReferenceFailure, match="case 4 is to be timed, and there are 3"):
        built(judge_harness.with_workload(spec(), 3))


@pytest.mark.pure
def test_names_are_cut_and_without_line_ends() -> None:
    code = doubled((1, "float32", "x" * 200), (1, "float32", r"two\nlines"))
    assert [name for name, _ in built(spec(code)).workloads] == ["x" * 100, "two lines"]


async def ask(work: Callable[[], T]) -> T:
    return work()


async def supply(code: str, number: int = 0) -> Supply:
    chosen = judge_harness.with_workload(spec(code), number)
    problem = build_local(chosen.problem, CPU, 5)
    example = prepare(problem, chosen, CPU, 0)
    known = BuiltProblem(problem, examine(problem, chosen, CPU), Footprint(0, 0, 0, 0, 0))
    inputs = example.inputs
    made = Supply(known, chosen, CPU, example, inputs.structure, inputs.specs, 12, random.Random(3))
    await made.draw_ahead([], ask)  # it learns which cases are alike
    return made


@pytest.mark.pure
@pytest.mark.parametrize(
    "other",
    [
        '{"inputs": [torch.ones(4), 2], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(5), 1], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(4, dtype=torch.int32), 1], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(4), 1.0], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(4), True], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(4), 1], "expected": torch.ones(4000)}',
        '{"inputs": [torch.zeros(4), 1], "expected": (torch.ones(4), torch.ones(4))}',
        '{"inputs": [torch.zeros(4), 1], "expected": 3.0}',
        '{"inputs": [(torch.zeros(4), 1)], "expected": torch.ones(4)}',
        '{"inputs": [torch.zeros(2, 2).t(), 1], "expected": torch.ones(4)}',
    ],
)
async def test_a_timed_case_is_not_mixed_with_one_of_another_form(other: str) -> None:
    own = '{"inputs": [torch.ones(4), 1], "expected": torch.full((4,), 2.0)}'
    made = await supply(GET_CASES.format(f"{own}, {other}"))
    batch = await made.take(12)
    for at in range(12):
        (found,) = tree.views(batch.data[at * made.set_bytes :][: made.set_bytes], made.specs)
        assert torch.equal(found, torch.ones(4))


@pytest.mark.pure
@pytest.mark.parametrize("number", [0, 1])
async def test_cases_of_one_form_come_between_so_that_a_kept_answer_is_wrong(number: int) -> None:
    case = '{{"inputs": [torch.full((4,), {0}.0)], "expected": torch.full((4,), {1}.0)}}'
    made = await supply(GET_CASES.format(", ".join(case.format(at, 2 * at) for at in range(3))), number)
    seen: Counter[float] = Counter()
    for _ in range(20):
        batch = await made.take(12)
        values = [made_set[0].item() for made_set in batch.data.view(torch.float32).view(12, -1)]
        seen.update(values)
        assert any(values[index] != number for index in batch.right) or set(values) == {number}
        for index, expected in batch.right.items():
            assert expected.expected.leaves[0].value[0] == 2 * values[index]
    assert len(seen) == 3
    assert seen[number] > 20 * 12 / 2, "the median must be that of the case itself"


@pytest.mark.pure
def test_the_plan_knows_the_largest_case() -> None:
    problem = build_local(spec(doubled((8, "float32", ""), (1 << 20, "float32", ""))).problem, CPU, 5)
    own = Footprint(256, 256, 1024, 0, 0)
    found = with_all_cases(own, problem, spec(), CPU)
    assert (found.inputs, found.outputs, found.widest_outputs) == (256, 256, 4 << 20)
    sizes = found.sizes(CPU, 1 << 40, timed=True)
    assert (sizes.sets, sizes.slot_bytes) == (40, 256), "short calls need long bursts, whatever the other cases are"
    assert found.needed(sizes, timed=True) > own.needed(sizes, timed=True) + (4 << 20) * 8
    one = build_local(spec(doubled((8, "float32", ""))).problem, CPU, 5)
    assert with_all_cases(own, one, spec(), CPU) is own


def right(seconds: float) -> pb.EvalResult:
    timing = pb.TimingStats(median_seconds=seconds)
    return pb.EvalResult(
        outcome=pb.EvalResult.CORRECT,
        correctness=pb.CorrectnessReport(passed_trials=5, total_trials=5),
        candidate_timing=timing if seconds else None,
        candidate_end_to_end=timing if seconds else None,
        roofline=pb.Roofline(bytes=int(seconds)) if seconds else None,
    )


async def together(*results: tuple[pb.EvalResult, bool], **fields: Any) -> tuple[pb.EvalResult, list[EvalSpec]]:
    """Return what becomes of these results, each with whether its evaluation had workloads."""
    asked: list[EvalSpec] = []

    async def one(chosen: EvalSpec) -> tuple[pb.EvalResult, list[tuple[str, str]]]:
        result, has_workloads = results[len(asked)]
        asked.append(chosen)
        return result, [(name, "") for name in NAMES] if has_workloads else []

    return await workloads.evaluate(spec(run_performance=True, **fields), one), asked


@pytest.mark.pure
async def test_times_without_a_reference_are_counted() -> None:
    whole, asked = await together((right(1.0), True), (right(2.0), True), (right(3.0), True))
    assert [each.problem.workload for each in asked] == [0, 1, 2]
    assert whole.workload_summary == pb.WorkloadSummary(total=3, timed=3)
    assert [each.workload.name for each in whole.workloads] == NAMES
    assert [each.candidate_timing.median_seconds for each in whole.workloads] == [1.0, 2.0, 3.0]
    assert [each.roofline.bytes for each in whole.workloads] == [1, 2, 3]
    assert not any(each.HasField("speedup") for each in whole.workloads)
    assert (whole.speedup, whole.HasField("candidate_timing")) == (0.0, False)


@pytest.mark.pure
async def test_cases_that_are_late_need_one_process_together() -> None:
    whole, asked = await together((right(1.0), True), (right(0.0), False), workloads_time="0.000000001s")
    assert [each.timing.wanted for each in asked] == [True, False]
    assert whole.outcome == pb.EvalResult.CORRECT
    assert whole.message == "all outputs of 3 workloads are right"
    assert whole.workload_summary == pb.WorkloadSummary(total=3, timed=1)
    assert [each.workload.name for each in whole.workloads] == NAMES
    assert [each.HasField("candidate_timing") for each in whole.workloads] == [True, False, False]
    assert {each.outcome for each in whole.workloads} == {pb.EvalResult.CORRECT}


@pytest.mark.pure
async def test_a_case_that_fails_in_the_process_of_another() -> None:
    wrong = pb.EvalResult(outcome=pb.EvalResult.INCORRECT, message="workload large (3 of 3): wrong")
    wrong.workloads.add(workload=pb.Workload(name="large"), outcome=wrong.outcome, message="wrong")
    whole, _ = await together((right(1.0), True), (wrong, True))
    assert whole.message == "workload large (3 of 3): wrong"
    assert [each.workload.name for each in whole.workloads] == ["small", "large"]
    assert [each.outcome for each in whole.workloads] == [pb.EvalResult.CORRECT, pb.EvalResult.INCORRECT]


@pytest.mark.alone
def test_each_case_is_timed(judge: Judge) -> None:
    result = judged(judge, "def f(x):\n    return 2 * x")
    assert result["outcome"] == "CORRECT", result["message"]
    assert names(result) == NAMES
    assert all(map(is_timed, result["workloads"]))
    assert {"candidate_timing", "roofline"}.isdisjoint(result)
    assert not any("speedup" in each for each in result["workloads"])
    assert [int(each["roofline"]["bytes"]) for each in result["workloads"]] == [
        2 * 4 * size for size in (8, 4096, 70_000)
    ]
    assert result["speedup"] == 0
    assert (result["workload_summary"]["total"], result["workload_summary"]["timed"]) == (3, 3)
    times = [each["candidate_timing"]["median_seconds"] for each in result["workloads"]]
    assert times[2] > times[0], "70,000 elements take longer than 8"
    assert all(each["correctness"]["passed_trials"] == 3 for each in result["workloads"])


@pytest.mark.parametrize("timed", [True, False])
def test_the_third_case_is_wrong(judge: Judge, timed: bool) -> None:
    result = judged(judge, "def f(x):\n    return (2 if x.numel() < 70_000 else 3) * x", run_performance=timed)
    assert result["outcome"] == "INCORRECT"
    assert result["message"].startswith("workload large (3 of 3): ")
    (wrong,) = result["workloads"]
    assert (wrong["workload"]["name"], wrong["outcome"]) == ("large", "INCORRECT")
    assert "workload_summary" not in result


@pytest.mark.parametrize(
    ("condition", "words"),
    [("x.numel() == 8", "workload case 2 (2 of 3): "), ("x.is_floating_point()", "workload large (3 of 3): ")],
)
def test_right_for_the_first_case_only(judge: Judge, condition: str, words: str) -> None:
    result = judged(judge, f"def f(x):\n    return 2 * x if {condition} else torch.zeros_like(x)")
    assert result["outcome"] == "INCORRECT"
    assert result["message"].startswith(words)


@pytest.mark.parametrize(
    ("body", "outcome", "evidence"),
    [
        ("raise TypeError('no integers')", "RUNTIME_ERROR", "no integers"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "RUNTIME_ERROR", "signal 9"),
        ("__import__('time').sleep(60)", "TIMEOUT", "correctness took longer"),
    ],
)
def test_a_case_on_which_the_candidate_fails_is_named(judge: Judge, body: str, outcome: str, evidence: str) -> None:
    code = f"def f(x):\n    if not x.is_floating_point():\n        {body}\n    return 2 * x"
    result = judged(judge, code, **judge_harness.limits(correctness=3))
    assert result["outcome"] == outcome
    assert result["message"].startswith("workload large (3 of 3): ")
    assert evidence in result["message"]
    assert [each["outcome"] for each in result["workloads"]] == [outcome]


def test_a_source_that_cannot_be_imported_is_no_matter_of_a_case(judge: Judge) -> None:
    result = judged(judge, "raise RuntimeError('no import')", run_performance=False)
    assert (result["outcome"], result["workloads"]) == ("COMPILE_ERROR", [])
    assert result["message"].startswith("RuntimeError: no import")


def test_cases_that_are_not_timed_take_one_process(judge: Judge) -> None:
    result = judged(judge, "def f(x):\n    return 2 * x", run_performance=False)
    assert (result["outcome"], result["message"]) == ("CORRECT", "all outputs of 3 trials are right")
    assert result["workloads"] == []


@pytest.mark.alone
def test_one_case_is_judged_as_ever(judge: Judge) -> None:
    result = judged(judge, "def f(x):\n    return 2 * x", doubled((64, "float32", "only")))
    assert (result["outcome"], result["message"]) == ("CORRECT", "all outputs of 2 trials are right")
    assert result["workloads"] == []
    assert is_timed(result)
    assert "workload_summary" not in result


@pytest.mark.alone
def test_empty_tensors_scalars_and_tuples(judge: Judge) -> None:
    cases = ", ".join(
        [
            '{"inputs": [torch.zeros(0)], "expected": 0.0, "name": "empty"}',
            '{"inputs": [torch.arange(4.0)], "expected": 6.0}',
            '{"inputs": [torch.arange(6.0).view(2, 3)], "expected": (torch.tensor([3.0, 12.0]), torch.zeros(2, 0))}',
        ]
    )
    body = "def f(x):\n    return float(x.sum()) if x.ndim == 1 else (x.sum(1), x[:, :0].clone())\n"
    result = judged(judge, body, GET_CASES.format(cases))
    assert result["outcome"] == "CORRECT", result["message"]
    assert names(result) == ["empty", "case 2", "case 3"]
    assert all(map(is_timed, result["workloads"]))
    wrong = judged(judge, body.replace("x.sum(1)", "x.sum(0)"), GET_CASES.format(cases))
    assert wrong["message"].startswith("workload case 3 (3 of 3): ")


@pytest.mark.alone
def test_cases_that_differ_in_a_number_only(judge: Judge) -> None:
    case = '{{"inputs": [torch.arange(64.0), {0}], "expected": {0} * torch.arange(64.0)}}'
    result = judged(judge, "def f(x, a):\n    return a * x", GET_CASES.format(", ".join(map(case.format, (2.0, 3.0)))))
    assert result["outcome"] == "CORRECT", result["message"]
    assert all(map(is_timed, result["workloads"]))


@pytest.mark.alone
def test_a_small_case_beside_a_large_one(judge: Judge) -> None:
    code = doubled((8, "float32", "small"), (4_000_000, "float32", "large"))
    result = judged(judge, "def f(x):\n    return 2 * x", code)
    assert result["outcome"] == "CORRECT", result["message"]
    small, large = (each["candidate_timing"]["median_seconds"] for each in result["workloads"])
    assert 0 < small < large


@pytest.mark.alone
def test_an_answer_that_is_kept_from_the_checks(judge: Judge) -> None:
    case = '{{"inputs": [torch.full((64,), {0}.0)], "expected": torch.full((64,), 2 * {0}.0)}}'
    body = (
        "calls = 0\nkept = None\n\ndef f(x):\n    global calls, kept\n    calls += 1\n"
        "    if calls > 8:\n        return kept.clone()\n    kept = 2 * x\n    return kept.clone()"
    )
    result = judged(judge, body, GET_CASES.format(", ".join(map(case.format, (1, 2)))), num_perf_trials=50)
    assert result["outcome"] == "INCORRECT"
    assert "a timed call" in result["message"]
