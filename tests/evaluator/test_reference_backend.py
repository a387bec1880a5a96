"""A reference with its own backend (torch.compile) in a real judge: the runner that times it compiles it."""

from __future__ import annotations

import pytest

from tests.evaluator.judge_harness import REFERENCE, Judge, limits, request


@pytest.mark.long
def test_a_reference_with_a_backend_of_its_own_is_made_ready_where_it_is_timed(judge: Judge) -> None:
    asked = request(
        REFERENCE.replace("class Model(", "class ModelNew("),
        backend="torch",
        reference_backend="REFERENCE_BACKEND_TORCH_COMPILE",
        run_performance=True,
        num_perf_trials=40,
        **limits(timing=120),
    )
    result = judge.evaluate(asked)
    if result["outcome"] == "REFERENCE_ERROR":  # there is no compiler here: the message says so
        assert "compil" in result["message"].lower()
        return
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["reference_timing"]["median_seconds"] > 0


def test_a_candidate_is_timed_beside_further_baselines(judge: Judge) -> None:
    asked = request(
        REFERENCE.replace("class Model(", "class ModelNew("),
        backend="torch",
        baselines=["REFERENCE_BACKEND_TORCH_COMPILE"],
        run_performance=True,
        num_perf_trials=20,
        provenance_policy="PROVENANCE_POLICY_LABEL",
        **limits(timing=120),
    )
    result = judge.evaluate(asked)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
    (baseline,) = result["baselines"]
    assert baseline["backend"] == asked["baselines"][0]
    if baseline.get("error"):  # there is no compiler here
        assert "compil" in baseline["error"].lower()
    else:
        assert baseline["speedup"] > 0
        assert baseline["reference_timing"]["median_seconds"] > 0


def test_a_baseline_that_fails_is_no_failure_of_the_candidate(judge: Judge) -> None:
    broken = "def refuse(*_, **__):\n    raise RuntimeError('no compiler today')\n\ntorch.compile = refuse\n"
    reference = REFERENCE.replace("class Model(", f"{broken}\nclass Model(")
    asked = request(
        REFERENCE.replace("class Model(", "class ModelNew("),
        reference_code=reference,
        backend="torch",
        baselines=["REFERENCE_BACKEND_TORCH_COMPILE"],
        run_performance=True,
        num_perf_trials=20,
        provenance_policy="PROVENANCE_POLICY_LABEL",
        **limits(timing=120),
    )
    result = judge.evaluate(asked)
    assert result["outcome"] == "CORRECT", result["message"]
    (baseline,) = result["baselines"]
    assert "no compiler today" in baseline["error"]
    assert "speedup" not in baseline
