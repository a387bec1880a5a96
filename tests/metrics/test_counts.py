"""Counters move as docs/metrics.md says: the pages against the results that the clients of the same load received."""

from __future__ import annotations

from collections import Counter

import pytest
from kerneldyno.v1.evaluation_pb2 import EvalResult

from watched_load import Watched

#: Requests of the load by Evaluate (with the hostile ones), EvaluateOnce and StreamRewards, and by the gateway.
EVALUATED, UNMATCHED, ONCE, TURNS = 12, 4, 3, 16


def test_requests_by_the_call_that_they_came_by(watched: Watched) -> None:
    grown = watched.grown
    again = grown("scheduler", "kerneldyno_remeasurements_total")
    assert grown("scheduler", "kerneldyno_requests_total", client_kind="stream") == EVALUATED + UNMATCHED
    assert grown("scheduler", "kerneldyno_requests_total", client_kind="once") == ONCE
    assert grown("scheduler", "kerneldyno_requests_total", client_kind="rewards") == TURNS + 1 + again


def test_outcomes_are_those_that_clients_received(watched: Watched) -> None:
    received = watched.outcomes + watched.turns + Counter(CORRECT=1)  # the gateway's
    again = watched.grown("scheduler", "kerneldyno_remeasurements_total")
    for name in EvalResult.Outcome.keys()[1:]:
        grown = watched.grown("scheduler", "kerneldyno_outcomes_total", outcome=name)
        assert grown == received[name] + (again if name == "CORRECT" else 0), name
    assert {"CORRECT", "INCORRECT", "RUNTIME_ERROR", "TIMEOUT", "REJECTED"} <= set(watched.outcomes)


def test_errors_by_cause(watched: Watched) -> None:
    """The requests that no node could ever run; none of them is a failure of the fleet."""
    errors = {"kerneldyno_infrastructure_errors_total": UNMATCHED, "kerneldyno_retries_total": 0}
    for name, count in errors.items():
        assert watched.grown("scheduler", name) == count
    assert watched.grown("scheduler", "kerneldyno_infrastructure_errors_total", cause="NO_MATCHING_DEVICE") == UNMATCHED


def test_work_is_placed_once_and_shared(watched: Watched) -> None:
    grown = watched.grown
    shared = grown("scheduler", "kerneldyno_deduplicated_total")
    placed = grown("scheduler", "kerneldyno_placements_total")
    outcomes = grown("scheduler", "kerneldyno_outcomes_total")
    never_placed = UNMATCHED + watched.grown("scheduler", "kerneldyno_extraction_failures_total") + 0
    assert shared >= 1
    assert placed == outcomes - shared - never_placed
    for histogram in ("kerneldyno_queue_seconds", "kerneldyno_evaluation_seconds"):
        assert grown("scheduler", f"{histogram}_count") == placed
    assert grown("scheduler", "kerneldyno_evaluation_attempts_count") == placed + UNMATCHED
    assert grown("scheduler", "kerneldyno_evaluation_attempts_sum") == placed
    assert grown("evaluator", "kerneldyno_attempts_total") == placed


def test_turns_and_rewards(watched: Watched) -> None:
    grown = watched.grown
    for name in EvalResult.Outcome.keys()[1:]:
        expected = watched.turns[name] + (name == "CORRECT")
        assert grown("scheduler", "kerneldyno_turns_total", outcome=name) == expected
    assert grown("scheduler", "kerneldyno_extraction_failures_total") == 4
    assert grown("scheduler", "kerneldyno_reward_count") == len(watched.rewards) + 1
    assert grown("scheduler", "kerneldyno_turns_without_reward_total") == TURNS - len(watched.rewards)
    assert grown("scheduler", "kerneldyno_turn_seconds_count") == TURNS + 1
    assert grown("scheduler", "kerneldyno_turnaround_seconds_count") > 0
    assert grown("scheduler", "kerneldyno_reward_bucket", le="0.0") == sum(reward <= 0 for reward in watched.rewards)


def test_findings_by_id(watched: Watched) -> None:
    assert watched.findings["S19"] == 1, "the load has one decoy"
    assert watched.grown("evaluator", "kerneldyno_findings_total", finding="S19", severity="reject") == 1
    assert watched.grown("evaluator", "kerneldyno_findings_total", severity="reject") == 1
    assert watched.grown("evaluator", "kerneldyno_findings_total", finding="other") == 0
    for finding, count in watched.findings.items():
        assert watched.grown("evaluator", "kerneldyno_findings_total", finding=finding) >= count


def test_stages_clocks_and_speedups(watched: Watched) -> None:
    grown = watched.grown
    correct = grown("evaluator", "kerneldyno_attempts_total", outcome="CORRECT")
    timed = grown("evaluator", "kerneldyno_timings_total")
    stage = "kerneldyno_stage_seconds_count"
    assert grown("evaluator", stage, stage="checking", outcome="CORRECT") == correct
    assert grown("evaluator", stage, stage="awaiting_lease", outcome="CORRECT") == timed > 0
    assert grown("evaluator", stage, stage="timing") >= timed
    assert grown("evaluator", "kerneldyno_speedup_count") == timed
    assert grown("evaluator", "kerneldyno_stage_seconds_sum", stage="compiling", outcome="TIMEOUT") > 0.9
    assert grown("evaluator", "kerneldyno_device_busy_seconds_total") > 0
    assert grown("evaluator", "kerneldyno_throttled_timings_total") == 0


def test_the_pool_and_the_reference_cache(watched: Watched) -> None:
    grown, after = watched.grown, watched.after["evaluator"]
    attempts = grown("evaluator", "kerneldyno_attempts_total")
    known = grown("evaluator", "kerneldyno_reference_cache_hits_total")
    built = grown("evaluator", "kerneldyno_reference_cache_misses_total")
    assert built == 2, "the load has two problems"
    assert known + built == attempts
    assert grown("evaluator", "kerneldyno_runner_exits_total", how="killed") == 1, "the candidate that was too slow"
    assert grown("evaluator", "kerneldyno_runner_spawns_total") >= attempts
    assert after.value("kerneldyno_spare_runners", device="cpu:0") == 2
    assert after.value("kerneldyno_starting_runners", device="cpu:0") == 0
    assert after.value("kerneldyno_taken_runners", device="cpu:0") == 0
    assert after.value("kerneldyno_running_attempts") == after.value("kerneldyno_waiting_attempts") == 0


def test_a_killed_judge_is_counted_and_its_device_comes_back(watched: Watched) -> None:
    after = watched.after["evaluator"]
    assert watched.grown("evaluator", "kerneldyno_judge_restarts_total") == 1
    assert after.value("kerneldyno_device_ready", device="cpu:0") == 1
    assert after.value("kerneldyno_device_lanes", device="cpu:0") == 2
    assert after.value("kerneldyno_reference_cache_problems", device="cpu:0") == 0, "the new judge has built none"
    for process in ("judge", "zygote"):
        assert after.value("kerneldyno_child_resident_memory_bytes", process=process) > 50e6
        assert after.value("kerneldyno_child_cpu_seconds_total", process=process) > 0.1
    assert after.value("kerneldyno_sandbox_layer_active", layer="seccomp") == 1


def test_the_journal_and_the_fleet(watched: Watched) -> None:
    after = watched.after["scheduler"]
    assert watched.grown("scheduler", "kerneldyno_journal_commit_records_sum") >= 3 * EVALUATED
    assert 0 < watched.grown("scheduler", "kerneldyno_journal_commit_seconds_sum") < 60
    assert watched.grown("scheduler", "kerneldyno_journal_commit_failures_total") == 0
    assert after.value("kerneldyno_journal_pending_records") == after.value("kerneldyno_journal_stalled") == 0
    assert after.value("kerneldyno_nodes", state="serving") == after.value("kerneldyno_devices") == 1
    assert after.value("kerneldyno_lanes") == 2
    assert after.value("kerneldyno_running") == after.value("kerneldyno_waiting_evaluations") == 0
    assert after.value("kerneldyno_waiting_evaluations_limit") == 20


def test_the_gateways_routes(watched: Watched) -> None:
    grown = watched.grown
    requests = "kerneldyno_gateway_requests_total"
    assert grown("gateway", requests, route="/rm", status="200") == 1
    assert grown("gateway", requests, route="/rm", status="400") == 1
    assert grown("gateway", requests, route="/status/{task_id:path}", status="404") == 1
    assert grown("gateway", requests) == 3, "what has no route is not counted"
    assert grown("gateway", "kerneldyno_gateway_request_seconds_count", route="/rm") == 2
    assert watched.after["gateway"].value("kerneldyno_gateway_turns_in_flight") == 0


@pytest.mark.parametrize("process", ["scheduler", "evaluator", "gateway"])
def test_every_process_tells_of_itself(watched: Watched, process: str) -> None:
    page = watched.after[process]
    assert page.value("kerneldyno_build_info") == 1
    assert watched.grown(process, "kerneldyno_event_loop_lag_seconds_count") >= 4
    assert watched.grown(process, "process_cpu_seconds_total") > 0
    assert page.value("process_resident_memory_bytes") > 10e6


def test_calls_by_status(watched: Watched) -> None:
    handled = "grpc_server_handled_total"
    assert watched.grown("scheduler", handled, grpc_method="EvaluateOnce", grpc_code="INVALID_ARGUMENT") == 2
    assert watched.grown("scheduler", handled, grpc_method="EvaluateOnce", grpc_code="OK") == 1
    assert watched.grown("scheduler", "grpc_server_started_total", grpc_method="StreamRewards") >= 1
