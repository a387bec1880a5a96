"""Tests that names which a node, judge or route invents never become labels: they count together or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kerneldyno.evaluator.server.metrics import FINDINGS, DeviceMetrics
from kerneldyno.evaluator.server.metrics import Metrics as EvaluatorMetrics
from kerneldyno.gateway.metrics import Metrics as GatewayMetrics
from kerneldyno.scheduler.core.model import Evaluation, Job, Key, Priority, Requirement, Spec, Verdict
from kerneldyno.scheduler.telemetry.metrics import Metrics as SchedulerMetrics
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.metrics.scraped import Scrape

pytestmark = pytest.mark.pure

EVIL = 'EVIL"} 1e9\nevil_total'


def scrape(registry: CollectorRegistry) -> Scrape:
    return Scrape.read(generate_latest(registry).decode())


def test_causes_that_a_node_invents_are_other() -> None:
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, max_queued=10)
    before = scrape(registry)
    spec = Spec(Requirement("triton", "kernelbench"), b"reference", b"payload", 240.0)
    for cause in (EVIL, "JUDGE_ERROR"):
        metrics.retried(Job(b"id", spec, "share", Priority.LOW, 0.0), cause)
        done = Evaluation(Key("client", "id"), b"", b"", Priority.LOW, {}, 0.0, 10.0, finished_wall=12.5)
        done.verdict = Verdict.failed(cause, "detail", retryable=True)
        metrics.evaluation_done(done)
    after = scrape(registry)
    assert set(after.values) == set(before.values)
    for name in ("kerneldyno_retries_total", "kerneldyno_infrastructure_errors_total"):
        assert after.value(name, cause="OTHER") == after.value(name, cause="JUDGE_ERROR") == 1
        assert after.value(name) == 2
    assert after.value("kerneldyno_outcomes_total", outcome="INFRASTRUCTURE_ERROR") == 2
    assert after.value("kerneldyno_turnaround_seconds_sum") == 5.0


def test_what_a_judge_invents_is_other_or_nothing() -> None:
    registry = CollectorRegistry()
    metrics = EvaluatorMetrics(registry, ["cuda:0", "cuda:1"])
    device = DeviceMetrics(metrics, "cuda:0", 2)
    before = scrape(registry)
    result = pb.EvalResult(outcome=pb.EvalResult.CORRECT, speedup=2.0)
    for name in (EVIL, "S19"):
        result.findings.add(id=name, severity=pb.Finding.SEVERITY_WARNING)
    result.findings.add(id="S19")  # without a severity
    result.candidate_timing.clock = pb.TimingStats.CLOCK_JUDGE
    result.device_state.throttle_reasons[:] = [EVIL, "hw_slowdown"]
    for stage in (pb.STAGE_QUEUED, pb.STAGE_TIMING, pb.STAGE_DONE):
        result.stages.add(stage=stage).duration.FromMilliseconds(500)
    for name in ("cuda:1", EVIL):
        result.environment.device = name
        metrics.record(result)
    device.update({EVIL: 1, "runner_exits": {EVIL: 1, "killed": 3}, "spares": 1, "taken": 2, "runners": 4})
    after = scrape(registry)
    assert set(after.values) == set(before.values)
    assert after.value("kerneldyno_findings_total", finding="other", severity="warning") == 2
    assert after.value("kerneldyno_findings_total", finding="S19") == 2
    assert after.value("kerneldyno_timings_total", clock="judge") == 2
    assert after.value("kerneldyno_throttled_timings_total") == 1
    assert after.value("kerneldyno_throttled_timings_total", device="cuda:1", reason="hw_slowdown") == 1
    assert after.value("kerneldyno_stage_seconds_count") == 2
    assert after.value("kerneldyno_stage_seconds_sum", stage="timing", outcome="CORRECT") == 1.0
    assert after.value("kerneldyno_runner_exits_total") == 3
    assert after.value("kerneldyno_starting_runners", device="cuda:0") == 1


def test_both_speedups_and_the_lease_are_counted_and_only_where_they_were_measured() -> None:
    registry = CollectorRegistry()
    metrics = EvaluatorMetrics(registry, ["cuda:0"])
    older = pb.EvalResult(outcome=pb.EvalResult.CORRECT, speedup=2.0)
    older.candidate_timing.clock = pb.TimingStats.CLOCK_DEVICE_EVENTS
    wrong = pb.EvalResult(outcome=pb.EvalResult.INCORRECT, speedup=0.0, end_to_end_speedup=0.0)
    both = pb.EvalResult(outcome=pb.EvalResult.CORRECT, speedup=1.5, end_to_end_speedup=40.0)
    both.candidate_timing.clock = pb.TimingStats.CLOCK_EACH_CALL
    both.timing_effort.lease_seconds = 0.5
    newer = pb.EvalResult(outcome=pb.EvalResult.CORRECT)
    newer.candidate_timing.clock = 9  # type: ignore[assignment]
    for result in (older, wrong, both, newer):
        metrics.record(result)
    after = scrape(registry)
    assert (after.value("kerneldyno_speedup_count"), after.value("kerneldyno_speedup_sum")) == (2, 3.5)
    assert after.value("kerneldyno_end_to_end_speedup_count") == 1
    assert after.value("kerneldyno_end_to_end_speedup_bucket", le="30.0") == 0
    assert after.value("kerneldyno_timing_lease_seconds_count") == 1
    assert after.value("kerneldyno_timing_lease_seconds_sum") == 0.5
    assert after.value("kerneldyno_timings_total", clock="each_call") == 1
    assert after.value("kerneldyno_timings_total", clock="device_events") == 2, "and a clock of a later release"


def test_every_finding_of_the_threat_model_has_a_series() -> None:
    page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
    table = page.partition("\n## Findings\n")[2].partition("\n## ")[0]
    known = re.findall(r"^\| `([A-Z]\d\d)` \|", table, re.MULTILINE)
    assert len(known) > 10
    assert sorted(FINDINGS) == sorted([*known, "other"])


def test_totals_of_a_judge_become_series_that_outlive_it() -> None:
    registry = CollectorRegistry()
    device = DeviceMetrics(EvaluatorMetrics(registry, ["cpu:0"]), "cpu:0", 2)
    for spawns in (3, 5):
        device.update({"runner_spawns": spawns, "reference_cache_problems": 4})
    device.judge_ended()
    assert scrape(registry).value("kerneldyno_reference_cache_problems") == 0
    device.judge_started()
    device.update({"runner_spawns": 2})
    assert scrape(registry).value("kerneldyno_runner_spawns_total", device="cpu:0") == 7


def test_host_memory_is_shown_as_long_as_its_judge_lives() -> None:
    registry = CollectorRegistry()
    device = DeviceMetrics(EvaluatorMetrics(registry, ["cpu:0"]), "cpu:0", 2)
    device.update({"host_memory_room_bytes": 90, "host_memory_admitted_bytes": 32})

    def shown() -> list[float]:
        page = scrape(registry)
        return [page.value(f"kerneldyno_host_memory_{what}_bytes", device="cpu:0") for what in ("room", "admitted")]

    assert shown() == [90, 32]
    device.judge_ended()
    assert shown() == [0, 0]


def test_statuses_that_no_route_answers_are_other() -> None:
    metrics = GatewayMetrics(lambda: 3)
    metrics.add_route("/rm")
    before = Scrape.read(metrics.page())
    for status in (200, 418):
        with metrics.request("/rm") as counted:
            counted.status = status
    after = Scrape.read(metrics.page())
    assert set(after.values) == set(before.values)
    assert after.value("kerneldyno_gateway_requests_total", status="other") == 1
    assert after.value("kerneldyno_gateway_turns_in_flight") == 3
