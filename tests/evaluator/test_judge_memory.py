"""Problems that need much or too much memory, with a real judge: typed outcomes, and no harm to other evaluations."""

from __future__ import annotations

import pytest

from tests.evaluator.judge_harness import Judge, candidate, request
from tests.evaluator.memory_problems import GREEDY, problem

pytestmark = pytest.mark.alone


def is_unharmed(judge: Judge) -> bool:
    return judge.evaluate(request(candidate(), run_performance=True))["outcome"] == "CORRECT"


def test_inputs_that_no_machine_holds_are_told_by_their_sizes(judge: Judge) -> None:
    result = judge.evaluate(problem(shape="1 << 20, 1 << 20"))
    assert result["outcome"] == "PROBLEM_TOO_LARGE", result["message"]
    evidence = result["problem_too_large"]
    assert (evidence["stage"], evidence["needed_bytes"]) == ("inputs", str(8 << 40))
    assert 0 < int(evidence["device_bytes"]) < 8 << 40
    assert "8192.00 GiB" in result["message"]
    assert is_unharmed(judge)


def test_a_reference_that_asks_for_more_than_there_is_is_tried_alone_and_then_bytes_are_named(judge: Judge) -> None:
    result = judge.evaluate(problem("torch.ones(1 << 44, device=x.device)"))
    assert result["outcome"] == "PROBLEM_TOO_LARGE", result["message"]
    evidence = result["problem_too_large"]
    assert evidence["stage"] == "reference"
    assert int(evidence["needed_bytes"]) >= 1 << 46
    stages = [span["stage"] for span in result["stages"]]
    assert stages[0] == "STAGE_PREPARING"
    assert is_unharmed(judge)


def test_a_reference_that_takes_all_there_is_and_goes_on_harms_nobody(judge: Judge) -> None:
    tokens = [judge.submit(problem(GREEDY)), *(judge.submit(request(candidate())) for _ in range(3))]
    outcomes: dict[str, str] = {}
    while len(outcomes) < len(tokens):
        frame = judge._next()
        if frame["op"] == "result":
            outcomes[frame["attempt"]] = frame["result"]["outcome"]
    assert [outcomes[token] for token in tokens] == ["CORRECT"] * 4
    assert is_unharmed(judge)


def test_what_was_planned_is_in_the_result(judge: Judge) -> None:
    use = judge.evaluate(problem(run_performance=True))["memory_use"]
    assert (use["input_bytes"], use["output_bytes"]) == ("16384", "16384")
    assert int(use["planned_bytes"]) > 1 << 30
    assert int(use["reference_peak_bytes"]) >= 16384
