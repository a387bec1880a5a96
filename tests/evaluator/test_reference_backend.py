"""A reference with its own backend (torch.compile) in a real judge: the runner that times it compiles it."""

from __future__ import annotations

from tests.evaluator.judge_harness import REFERENCE, Judge, limits, request


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
