"""Tests of the pages of real processes against docs/metrics.md and against the results of a small, hostile load.

All these tests are in one file, so that the services start once, no matter how many workers share the tests.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.e2e.e2e_harness import DEVICES, ON_GPU
from tests.metrics.scraped import Scrape, complaints, documented, documented_values
from tests.metrics.watched_load import HOSTILE, LANES, MAX_QUEUED, Watched

DEVICE = DEVICES if ON_GPU else "cpu:0"

SECTIONS = {
    "scheduler": ("Every process", "gRPC", "Scheduler"),
    "evaluator": ("Every process", "gRPC", "Evaluator"),
    "gateway": ("Every process", "Gateway"),
}
#: Largest numbers of series and bytes of a page with one device; docs/metrics.md has the measured figures.
MOST = {"scheduler": (1_200, 150_000), "evaluator": (1_850, 190_000), "gateway": (450, 60_000)}
#: Labels whose values come from a process, a device or an API, not from a table.
OPEN = {"version", "device", "layer", "route", "grpc_service", "grpc_method", "le", "model", "uuid", "driver_version"}

process = pytest.mark.parametrize("process", list(SECTIONS))


@process
def test_what_is_documented_is_served_and_nothing_else(watched: Watched, process: str) -> None:
    page, rows = documented(*SECTIONS[process]), watched.before[process].rows
    rows = rows - documented("GPU health") if ON_GPU else rows
    assert page == rows, f"only on the page: {sorted(page - rows)}; only served: {sorted(rows - page)}"


@process
def test_every_series_is_there_from_the_start_and_no_load_adds_one(watched: Watched, process: str) -> None:
    """The load has hostile names, ids, labels, sources and routes, crashes, and a judge that is killed and replaced."""
    before, after = set(watched.before[process].values), set(watched.after[process].values)
    assert after == before, f"new: {sorted(after - before)}; gone: {sorted(before - after)}"


@process
def test_label_values_are_those_of_the_table(watched: Watched, process: str) -> None:
    closed = documented_values()
    for name, labels in watched.after[process].values:
        for label, value in labels:
            assert label in closed or label in OPEN, f"{name} has a label without values: {label}"
            if label == "grpc_code":
                assert value.isupper()
            elif label not in OPEN:
                assert value in closed[label], f"{name}: {label}={value!r} is not in the table"


def test_the_tables_values_are_all_served(watched: Watched) -> None:
    served: dict[str, set[str]] = {}
    for page in watched.after.values():
        for _, labels in page.values:
            for label, value in labels:
                served.setdefault(label, set()).add(value)
    gpu = {"sensor", "limit", "xid"}  # see test_gpu_health.py
    missing = {
        label: values - served.get(label, set())
        for label, values in documented_values().items()
        if label not in gpu | {"grpc_code"}
    }
    missing["severity"] -= {"corrected", "uncorrected"}
    missing["clock"] -= {"sm", "memory"}
    # The table also names calls, in brackets after the kinds of client.
    missing["client_kind"] -= {"StreamRewards", "Evaluate", "EvaluateOnce"}
    assert not {label: values for label, values in missing.items() if values}


@process
def test_nothing_that_anybody_wrote_is_on_a_page(watched: Watched, process: str) -> None:
    text = watched.after[process].text
    for written in (*HOSTILE, "evil", "team", "pascal", "m-right", "node-a"):
        assert written not in text


@process
def test_a_page_is_small(watched: Watched, process: str) -> None:
    series, size = MOST[process]
    assert len(watched.after[process].values) <= series
    assert len(watched.after[process].text) <= size


@process
def test_promtool_finds_nothing_to_complain_of(watched: Watched, process: str) -> None:
    assert complaints(watched.after[process]) == ""


def test_a_histograms_buckets_add_up(watched: Watched) -> None:
    """`prometheus_client.parser` does not check this."""
    page: Scrape = watched.after["evaluator"]
    for (name, labels), count in page.values.items():
        if name.endswith("_count"):
            top = (name.removesuffix("_count") + "_bucket", labels | {("le", "+Inf")})
            assert page.values[top] == count


def test_requests_by_the_call_that_they_came_by(watched: Watched) -> None:
    grown, requests = watched.grown, "kerneldyno_requests_total"
    again = grown("scheduler", "kerneldyno_remeasurements_total")
    assert grown("scheduler", requests, client_kind="stream") == watched.sent
    assert grown("scheduler", requests, client_kind="once") == 3
    assert grown("scheduler", requests, client_kind="rewards") == watched.turns.total() + again + 1  # 1: the gateway's


def test_outcomes_are_those_that_clients_received(watched: Watched) -> None:
    received = watched.outcomes + watched.turns + Counter(CORRECT=1)  # 1: the gateway's
    again = watched.grown("scheduler", "kerneldyno_remeasurements_total")
    for name in EvalResult.Outcome.keys()[1:]:
        grown = watched.grown("scheduler", "kerneldyno_outcomes_total", outcome=name)
        assert grown == received[name] + (again if name == "CORRECT" else 0), name
    assert {"CORRECT", "INCORRECT", "RUNTIME_ERROR", "TIMEOUT", "REJECTED"} <= set(watched.outcomes)


def test_errors_by_cause(watched: Watched) -> None:
    """The load's errors, such as requests that no node can run, are counted by cause; none comes from the fleet."""
    errors = "kerneldyno_infrastructure_errors_total"
    assert watched.causes["NO_MATCHING_DEVICE"] >= len(HOSTILE)
    for cause, count in watched.causes.items():
        assert watched.grown("scheduler", errors, cause=cause) == count
    assert watched.grown("scheduler", errors) == watched.causes.total()
    assert watched.grown("scheduler", "kerneldyno_retries_total") == 0


def test_work_is_placed_once_and_shared(watched: Watched) -> None:
    grown = watched.grown
    shared = grown("scheduler", "kerneldyno_deduplicated_total")
    placed = grown("scheduler", "kerneldyno_placements_total")
    without_code = grown("scheduler", "kerneldyno_extraction_failures_total")
    given_up = watched.causes.total()
    assert shared >= 1
    assert placed == grown("scheduler", "kerneldyno_outcomes_total") - shared - given_up - without_code
    for histogram in ("kerneldyno_queue_seconds", "kerneldyno_evaluation_seconds"):
        assert grown("scheduler", f"{histogram}_count") == placed
    assert grown("scheduler", "kerneldyno_evaluation_attempts_count") == placed + given_up
    assert grown("scheduler", "kerneldyno_evaluation_attempts_sum") == placed
    assert grown("scheduler", "kerneldyno_turnaround_seconds_count") == placed + given_up + shared
    assert grown("evaluator", "kerneldyno_attempts_total") == placed


def test_turns_and_rewards(watched: Watched) -> None:
    grown, rewards = watched.grown, watched.rewards
    for name in EvalResult.Outcome.keys()[1:]:
        expected = watched.turns[name] + (name == "CORRECT")
        assert grown("scheduler", "kerneldyno_turns_total", outcome=name) == expected
    assert grown("scheduler", "kerneldyno_extraction_failures_total") == watched.turns["INVALID"] > 0
    assert grown("scheduler", "kerneldyno_reward_count") == len(rewards) + 1
    assert grown("scheduler", "kerneldyno_reward_bucket", le="0.0") == sum(reward <= 0 for reward in rewards)
    assert grown("scheduler", "kerneldyno_reward_points_total", sign="positive") > sum(r for r in rewards if r > 0)
    assert grown("scheduler", "kerneldyno_reward_points_total", sign="negative") == -sum(r for r in rewards if r < 0)
    assert grown("scheduler", "kerneldyno_turns_without_reward_total") == watched.turns.total() - len(rewards)
    assert grown("scheduler", "kerneldyno_turn_seconds_count") == watched.turns.total() + 1


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
    assert grown("evaluator", "kerneldyno_end_to_end_speedup_count") == timed
    assert grown("evaluator", "kerneldyno_timing_lease_seconds_count") == timed
    assert (
        0
        < grown("evaluator", "kerneldyno_timing_lease_seconds_sum")
        < grown("evaluator", "kerneldyno_stage_seconds_sum", stage="timing")
    )
    assert grown("evaluator", "kerneldyno_stage_seconds_sum", stage="compiling", outcome="TIMEOUT") > 0.9
    assert grown("evaluator", "kerneldyno_device_busy_seconds_total") > 0
    assert ON_GPU or grown("evaluator", "kerneldyno_throttled_timings_total") == 0


def test_the_pool_and_the_reference_cache(watched: Watched) -> None:
    grown, after = watched.grown, watched.after["evaluator"]
    attempts = grown("evaluator", "kerneldyno_attempts_total")
    names = ("COMPILE_ERROR", "INVALID")  # decided from the source alone, without the problem
    unread = sum(grown("evaluator", "kerneldyno_attempts_total", outcome=name) for name in names)
    known = grown("evaluator", "kerneldyno_reference_cache_hits_total")
    built = grown("evaluator", "kerneldyno_reference_cache_misses_total")
    assert built == 2, "the load has two problems"
    assert attempts - unread <= known + built <= attempts
    assert grown("evaluator", "kerneldyno_runner_exits_total", how="killed") == 1, "the candidate that was too slow"
    assert grown("evaluator", "kerneldyno_runner_spawns_total") >= attempts - unread
    assert after.value("kerneldyno_spare_runners", device=DEVICE) == LANES
    assert after.value("kerneldyno_starting_runners", device=DEVICE) == 0
    assert after.value("kerneldyno_taken_runners", device=DEVICE) == 0
    assert after.value("kerneldyno_host_memory_room_bytes", device=DEVICE) > 100e6
    assert after.value("kerneldyno_host_memory_admitted_bytes", device=DEVICE) == 0
    assert after.value("kerneldyno_running_attempts") == after.value("kerneldyno_waiting_attempts") == 0


def test_a_killed_judge_is_counted_and_its_device_comes_back(watched: Watched) -> None:
    after = watched.after["evaluator"]
    assert watched.grown("evaluator", "kerneldyno_judge_restarts_total") == 1
    assert after.value("kerneldyno_device_ready", device=DEVICE) == 1
    assert after.value("kerneldyno_device_lanes", device=DEVICE) == LANES
    assert after.value("kerneldyno_reference_cache_problems", device=DEVICE) == 0, "the new judge has built none"
    for process in ("judge", "zygote"):
        assert after.value("kerneldyno_child_resident_memory_bytes", process=process) > 50e6
        assert after.value("kerneldyno_child_cpu_seconds_total", process=process) > 0.1
    assert after.value("kerneldyno_sandbox_layer_active", layer="seccomp") == 1


def test_the_journal_and_the_fleet(watched: Watched) -> None:
    after = watched.after["scheduler"]
    assert watched.grown("scheduler", "kerneldyno_journal_commit_records_sum") >= 3 * watched.sent
    assert 0 < watched.grown("scheduler", "kerneldyno_journal_commit_seconds_sum") < 60
    assert watched.grown("scheduler", "kerneldyno_journal_commit_failures_total") == 0
    assert after.value("kerneldyno_journal_pending_records") == after.value("kerneldyno_journal_stalled") == 0
    assert after.value("kerneldyno_nodes", state="serving") == after.value("kerneldyno_devices") == 1
    assert after.value("kerneldyno_lanes") == LANES
    assert after.value("kerneldyno_running") == after.value("kerneldyno_backlog_evaluations") == 0
    assert after.value("kerneldyno_backlog_evaluations_limit") == MAX_QUEUED


def test_the_gateways_routes(watched: Watched) -> None:
    grown = watched.grown
    requests = "kerneldyno_gateway_requests_total"
    assert grown("gateway", requests, route="/rm", status="200") == 1
    assert grown("gateway", requests, route="/rm", status="400") == 1
    assert grown("gateway", requests, route="/status/{task_id:path}", status="404") == 1
    assert grown("gateway", requests) == 3, "what has no route is not counted"
    assert grown("gateway", "kerneldyno_gateway_request_seconds_count", route="/rm") == 2
    assert watched.after["gateway"].value("kerneldyno_gateway_turns_in_flight") == 0


@process
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


@pytest.mark.gpu
def test_the_gpu_tells_how_it_is(watched: Watched) -> None:
    """This checks the readings of a real driver; test_gpu_health.py checks the rest without a driver."""
    page = watched.after["evaluator"]
    (info,) = (dict(labels) for name, labels in page.values if name == "kerneldyno_gpu_info")
    assert info["device"] == DEVICE
    assert info["uuid"].startswith("GPU-")
    assert info["model"]
    assert info["driver_version"]
    assert page.value("kerneldyno_gpu_up") == 1
    assert 10 < page.value("kerneldyno_gpu_temperature_celsius", sensor="gpu") < 110
    assert (
        0
        < page.value("kerneldyno_gpu_clock_hertz", clock="sm")
        <= page.value("kerneldyno_gpu_clock_limit_hertz", clock="sm")
    )
    assert 0 < page.value("kerneldyno_gpu_power_watts") < 2 * page.value("kerneldyno_gpu_power_limit_watts")
    assert 1e9 < page.value("kerneldyno_gpu_memory_used_bytes") < page.value("kerneldyno_gpu_memory_bytes")
    assert 0 <= page.value("kerneldyno_gpu_utilization_ratio") <= 1
    assert watched.grown("evaluator", "kerneldyno_gpu_xid_errors_total") == 0, "no candidate of the load breaks a GPU"
