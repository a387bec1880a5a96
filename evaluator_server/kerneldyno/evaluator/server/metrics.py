"""The evaluator's own Prometheus series. The interceptor of `rpc` counts calls, and `gpu_metrics` observes GPUs.

Judges report totals since their start. `DeviceMetrics` turns them into series that outlive a judge. No label has a
value per request.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from kerneldyno.rpc.jsonio import stage_name
from kerneldyno.rpc.metric_series import Series
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

from ..shared.nvml import THROTTLE_REASONS
from .gpu_metrics import GpuHealth
from .process_metrics import ProcessCollectors

OUTCOMES = tuple(pb.EvalResult.Outcome.keys()[1:])
#: Findings of the judge by their id in docs/threat-model.md; all others count as "other".
FINDINGS = (
    "S19",
    "S20",
    "S21",
    "B01",
    "B11",
    "S23",
    "S29",
    "T04",
    "T26",
    "E03",
    "T01",
    "T16",
    "T21",
    "T27",
    "T28",
    "T31",
    "S30",
    "M01",
    "M02",
    "M03",
    "M04",
    "M05",
    "D06",
    "D07",
    "D08",
    "D21",
    "D22",
    "other",
)
#: Reasons for a restart of a judge.
RESTART_CAUSES = ("judge", "zygote", "reference", "reference_timeout", "protocol", "silent", "start")
RUNNER_EXITS = ("clean", "killed", "signal", "error")
#: How rehearsals end.
REHEARSALS = ("failed", "passed")
PROBLEM_ENDS = ("rested", "died")
SEVERITIES = ("info", "warning", "reject")
CLOCKS = {
    pb.TimingStats.CLOCK_DEVICE_EVENTS: "device_events",
    pb.TimingStats.CLOCK_JUDGE: "judge",
    pb.TimingStats.CLOCK_EACH_CALL: "each_call",
}
#: The stages in which an attempt is on a device.
DEVICE_STAGES = (
    *("awaiting_memory", "preparing", "loading", "compiling"),
    *("checking", "awaiting_lease", "timing", "profiling"),
)
#: The stages whose time is measured.
STAGES = ("building", *DEVICE_STAGES)
#: How a build of native code ended: with the headers that it used, from the cache, or not at all.
BUILDS = ("lean", "full", "cached", "failed")
#: Bounds in seconds, two per decade: fewer than elsewhere, because each stage and outcome has a histogram.
_STAGE_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
#: Dense around 1, where the value of a kernel is decided.
_SPEEDUPS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
#: Bounds in seconds. Timings of short calls take at most two seconds, those of longer calls as long as five or ten
#: calls.
_LEASE_SECONDS = (0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
#: Bounds in seconds: from one C++ file without PyTorch's headers to many files for nvcc.
_BUILD_SECONDS = (0.3, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0, 100.0, 300.0)


class Metrics:
    """All series of one evaluator."""

    def __init__(self, registry: CollectorRegistry, devices: Iterable[str]) -> None:
        make = Series(registry)
        counter, gauge, histogram = make.counter, make.gauge, make.histogram
        device = tuple(devices)
        self._devices = frozenset(device)

        self._attempts = counter("attempts", "Attempts finished, by outcome.", outcome=OUTCOMES)
        self._findings = counter("findings", "Findings of finished attempts.", finding=FINDINGS, severity=SEVERITIES)
        self._stage_seconds = histogram(
            "stage_seconds", "Time that attempts spent in a stage.", _STAGE_SECONDS, stage=STAGES, outcome=OUTCOMES
        )
        self._speedups = histogram("speedup", "Speedups by device time, of attempts that were right.", _SPEEDUPS)
        self._end_to_end_speedups = histogram(
            "end_to_end_speedup", "Speedups by end-to-end time, of attempts that were right.", _SPEEDUPS
        )
        self._lease_seconds = histogram(
            "timing_lease_seconds", "Time that a device was held to time one candidate.", _LEASE_SECONDS
        )
        self._timings = counter("timings", "Timings, by the clock that counted.", clock=CLOCKS.values())
        self._throttled = counter(
            "throttled_timings", "Timings on a throttled GPU.", device=device, reason=THROTTLE_REASONS.values()
        )
        self.waiting = gauge("waiting_attempts", "Attempts that wait for a lane.")

        self._builders = gauge("builders", "Candidates that may be built at once, before they get a lane.")
        self._running_builds = gauge("running_builds", "Candidates that are being built.")
        self._builds = counter("builds", "Builds of native libraries, by how they ended.", how=BUILDS)
        self._build_seconds = histogram("build_seconds", "Duration of builds that ran.", _BUILD_SECONDS)
        self._build_cache_bytes = gauge("build_cache_bytes", "Size of the build cache.")
        self._build_cache_entries = gauge("build_cache_entries", "Libraries in the build cache.")
        self._build_cache_evictions = counter("build_cache_evictions", "Libraries that the cache dropped for room.")
        self._evictions_seen = 0

        self.ready = gauge("device_ready", "1 while the device takes work.", device=device)
        self.lanes = gauge("device_lanes", "Attempts that the device runs at once.", device=device)
        self.busy_seconds = counter("device_busy_seconds", "Time under the timing lease.", device=device)
        self.running = gauge("running_attempts", "Attempts on the device.", device=device, stage=DEVICE_STAGES)
        self.spares = gauge("spare_runners", "Warm runners that wait for a candidate.", device=device)
        self.starting = gauge("starting_runners", "Runners that are not warm yet.", device=device)
        self.taken = gauge("taken_runners", "Runners that have a candidate.", device=device)
        self.runner_spawns = counter("runner_spawns", "Runners requested.", device=device)
        self.rehearsals = counter("rehearsals", "Rehearsed candidates, by how it ended.", device=device, how=REHEARSALS)
        self.runner_exits = counter("runner_exits", "Ended runners, by how.", device=device, how=RUNNER_EXITS)
        self.cache_hits = counter("reference_cache_hits", "Evaluations whose problem was already built.", device=device)
        self.cache_misses = counter("reference_cache_misses", "Evaluations that built their problem.", device=device)
        self.cache_problems = gauge("reference_cache_problems", "Problems that are kept built.", device=device)
        self.problem_processes = gauge("problem_processes", "Problems that have a process now.", device=device)
        self.problem_bytes = gauge("problem_process_bytes", "Device memory that these take.", device=device)
        self.problem_births = counter("problem_births", "Processes made for problems.", device=device)
        self.problem_ends = counter(
            "problem_ends", "Ended processes of problems, by how.", device=device, how=PROBLEM_ENDS
        )
        self.host_memory_room = gauge(
            "host_memory_room_bytes", "Host memory for runners that need more than any runner may use.", device=device
        )
        self.host_memory_admitted = gauge(
            "host_memory_admitted_bytes", "The part of it that running evaluations may use.", device=device
        )
        self.restarts = counter("judge_restarts", "Restarts of judges.", device=device, cause=RESTART_CAUSES)
        self.layers = gauge("sandbox_layer_active", "1 when the layer holds.", device=device, layer=())
        self.children = ProcessCollectors(registry)
        self.gpus = GpuHealth(registry)

    def record(self, result: pb.EvalResult) -> None:
        """Count a finished attempt, its findings, and the time of its stages."""
        outcome = pb.EvalResult.Outcome.Name(result.outcome)
        self._attempts.labels(outcome).inc()
        for finding in result.findings:
            severity = pb.Finding.Severity.Name(finding.severity).removeprefix("SEVERITY_").lower()
            if severity in SEVERITIES:
                self._findings.labels(finding.id if finding.id in FINDINGS else "other", severity).inc()
        for span in result.stages:
            stage = stage_name(span.stage)
            if stage in STAGES:
                self._stage_seconds.labels(stage, outcome).observe(span.duration.ToNanoseconds() / 1e9)
        if result.HasField("candidate_timing"):
            self._timings.labels(CLOCKS.get(result.candidate_timing.clock, "device_events")).inc()
            if result.environment.device in self._devices:
                for reason in result.device_state.throttle_reasons:
                    if reason in THROTTLE_REASONS.values():
                        self._throttled.labels(result.environment.device, reason).inc()
        if result.outcome == pb.EvalResult.CORRECT and result.speedup > 0:
            self._speedups.observe(result.speedup)
        if result.outcome == pb.EvalResult.CORRECT and result.end_to_end_speedup > 0:
            self._end_to_end_speedups.observe(result.end_to_end_speedup)
        if result.HasField("timing_effort"):
            self._lease_seconds.observe(result.timing_effort.lease_seconds)

    def show_builders(self, count: int, running: int) -> None:
        """Show how many candidates may be built at once, and how many are."""
        self._builders.set(count)
        self._running_builds.set(running)

    def built(self, build: pb.NativeBuild) -> None:
        """Count one library, and the time of its build if this build ran."""
        full = build.headers == pb.NativeBuild.HEADERS_FULL
        how = "failed" if build.failed else "cached" if build.cached else "full" if full else "lean"
        self._builds.labels(how).inc()
        if not (build.cached or build.failed):  # how long a failed one took is not reported
            self._build_seconds.observe(build.seconds)

    def show_build_cache(self, size: int, entries: int, evictions: int) -> None:
        """Show the state of the build cache.

        Args:
            size: Size of its libraries, in bytes.
            entries: Number of its libraries.
            evictions: Libraries that the present builder process has dropped so far. A new process counts from 0.
        """
        self._build_cache_bytes.set(size)
        self._build_cache_entries.set(entries)
        new = evictions - self._evictions_seen
        self._build_cache_evictions.inc(new if new >= 0 else evictions)
        self._evictions_seen = evictions


class DeviceMetrics:
    """The series of one device, within `metrics`."""

    def __init__(self, metrics: Metrics, device: str, lanes: int) -> None:
        self._metrics = metrics
        self._device = device
        self._spawns = metrics.runner_spawns.labels(device)
        self._exits = {how: metrics.runner_exits.labels(device, how) for how in RUNNER_EXITS}
        self._rehearsals = {how: metrics.rehearsals.labels(device, how) for how in REHEARSALS}
        self._busy = metrics.busy_seconds.labels(device)
        self._hits = metrics.cache_hits.labels(device)
        self._misses = metrics.cache_misses.labels(device)
        self._problems = metrics.cache_problems.labels(device)
        self._processes = metrics.problem_processes.labels(device)
        self._process_bytes = metrics.problem_bytes.labels(device)
        self._births = metrics.problem_births.labels(device)
        self._problem_ends = {how: metrics.problem_ends.labels(device, how) for how in PROBLEM_ENDS}
        self._host_memory_room = metrics.host_memory_room.labels(device)
        self._host_memory_admitted = metrics.host_memory_admitted.labels(device)
        self._restarts = {cause: metrics.restarts.labels(device, cause) for cause in RESTART_CAUSES}
        self._running = {stage: metrics.running.labels(device, stage) for stage in DEVICE_STAGES}
        self._ready = metrics.ready.labels(device)
        self._spares = metrics.spares.labels(device)
        self._starting = metrics.starting.labels(device)
        self._taken = metrics.taken.labels(device)
        self._seen: dict[Counter, float] = {}
        metrics.lanes.labels(device).set(lanes)

    def child_started(self, process: str, pid: int) -> None:
        """Observe the device's process ("judge" or "zygote") as long as it lives."""
        self._metrics.children.watch(self._device, process, pid)

    def judge_started(self) -> None:
        """Forget the totals of the previous judge: the new one counts from 0."""
        self._seen.clear()

    def judge_ready(self, layers: Iterable[fleet_pb.SandboxLayer], gpu_uuid: str) -> None:
        """Record that the device takes work, and what its judge reported. `gpu_uuid` is empty on the CPU."""
        self._ready.set(1)
        for layer in layers:
            self._metrics.layers.labels(self._device, layer.name).set(layer.active)
        if gpu_uuid:
            self._metrics.gpus.watch(self._device, gpu_uuid)

    def judge_ended(self) -> None:
        """Record that the device takes no work for now."""
        counted = (self._spares, self._starting, self._taken, self._problems, self._processes, self._process_bytes)
        for gauge in (self._ready, *counted, self._host_memory_room, self._host_memory_admitted):
            gauge.set(0)

    def judge_restarted(self, cause: str) -> None:
        """Count a restart by its cause."""
        self._restarts[cause].inc()

    def show_running(self, stages: Iterable[pb.Stage.ValueType]) -> None:
        """Show the number of attempts on the device, by stage."""
        tally = Tally(map(stage_name, stages))
        for stage, series in self._running.items():
            series.set(tally[stage])

    def update(self, stats: Mapping[str, Any]) -> None:
        """Update the series from a judge's totals. Raises ValueError or TypeError if they are not numbers."""
        exits = stats.get("runner_exits", {})
        self._advance(self._spawns, stats.get("runner_spawns", 0))
        for how, series in self._exits.items():
            self._advance(series, exits.get(how, 0))
        rehearsals = stats.get("rehearsals", {})
        for how, series in self._rehearsals.items():
            self._advance(series, rehearsals.get(how, 0))
        self._advance(self._busy, stats.get("device_busy_seconds", 0))
        self._advance(self._hits, stats.get("reference_cache_hits", 0))
        self._advance(self._misses, stats.get("reference_cache_misses", 0))
        self._problems.set(float(stats.get("reference_cache_problems", 0)))
        self._processes.set(float(stats.get("problem_processes", 0)))
        self._process_bytes.set(float(stats.get("problem_process_bytes", 0)))
        self._advance(self._births, stats.get("problem_births", 0))
        ends = stats.get("problem_ends", {})
        for how, series in self._problem_ends.items():
            self._advance(series, ends.get(how, 0))
        self._host_memory_room.set(float(stats.get("host_memory_room_bytes", 0)))
        self._host_memory_admitted.set(float(stats.get("host_memory_admitted_bytes", 0)))
        spares, taken = float(stats.get("spares", 0)), float(stats.get("taken", 0))
        self._spares.set(spares)
        self._taken.set(taken)
        self._starting.set(max(0.0, float(stats.get("runners", 0)) - spares - taken))

    def _advance(self, series: Counter, total: Any) -> None:
        before = self._seen.get(series, 0.0)
        self._seen[series] = float(total)
        series.inc(max(0.0, self._seen[series] - before))
