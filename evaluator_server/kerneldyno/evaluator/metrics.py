"""The evaluator's own Prometheus metrics, in a registry of their own; calls are counted by the interceptor of `rpc`.

Judges report counters as totals since their start; `DeviceMetrics` turns them into series that outlive a judge.
No label is ever per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Seconds: from a warm import to a stage at its longest limit.
_STAGE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
_LAG_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_RUNNER_EXITS = ("clean", "killed", "signal", "error")
#: Seconds between two looks at the event loop.
_LAG_PERIOD = 0.5

#: Why a judge was started anew.
RESTART_CAUSES = ("judge", "zygote", "reference", "reference_timeout", "protocol", "silent", "start")


class Metrics:
    """All series of one evaluator."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kerneldyno_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kerneldyno_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"kerneldyno_{name}", text, labels, buckets=buckets, registry=registry)

        self.attempts = counter("attempts", "Attempts finished, by outcome.", "outcome")
        self.stage_seconds = histogram("stage_seconds", "Time that attempts spent in a stage.", _STAGE_BUCKETS, "stage")
        self.runner_spawns = counter("runner_spawns", "Runners forked.", "device")
        self.runner_exits = counter("runner_exits", "Runners ended, by how.", "device", "how")
        self.busy_seconds = counter("device_busy_seconds", "Time that the device worked for candidates.", "device")
        self.spares = gauge("spare_runners", "Warm runners that wait for a candidate.", "device")
        self.cache_hits = counter("reference_cache_hits", "References that were hot.", "device")
        self.cache_misses = counter("reference_cache_misses", "References that had to be built.", "device")
        self.running = gauge("running_attempts", "Attempts on the device.", "device")
        self.waiting = gauge("waiting_attempts", "Attempts that wait for a lane.")
        self.restarts = counter("judge_restarts", "Judges started anew, by cause.", "device", "cause")
        self.loop_lag = histogram("event_loop_lag_seconds", "How late the event loop wakes up.", _LAG_BUCKETS)
        gauge("build_info", "Always 1; the version is in the label.", "version").labels(version).set(1)
        for outcome in pb.EvalResult.Outcome.keys()[1:]:
            self.attempts.labels(outcome)

    def record(self, result: pb.EvalResult) -> None:
        """Count a finished attempt and the time that its stages took."""
        self.attempts.labels(pb.EvalResult.Outcome.Name(result.outcome)).inc()
        for span in result.stages:
            name = pb.Stage.Name(span.stage).removeprefix("STAGE_").lower()
            self.stage_seconds.labels(name).observe(span.duration.ToNanoseconds() / 1e9)

    async def watch_loop(self) -> None:
        """Measure the event loop's lag until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD
            await asyncio.sleep(_LAG_PERIOD)
            self.loop_lag.observe(max(0.0, loop.time() - due))


class DeviceMetrics:
    """The series of one device."""

    def __init__(self, metrics: Metrics, device: str) -> None:
        self._spawns = metrics.runner_spawns.labels(device)
        self._exits = {how: metrics.runner_exits.labels(device, how) for how in _RUNNER_EXITS}
        self._busy = metrics.busy_seconds.labels(device)
        self._hits = metrics.cache_hits.labels(device)
        self._misses = metrics.cache_misses.labels(device)
        self._restarts = {cause: metrics.restarts.labels(device, cause) for cause in RESTART_CAUSES}
        self.spares = metrics.spares.labels(device)
        self.running = metrics.running.labels(device)
        self._seen: dict[Counter, float] = {}

    def judge_started(self) -> None:
        """Forget the totals of the judge before: the new one counts from 0."""
        self._seen.clear()
        self.spares.set(0)

    def judge_restarted(self, cause: str) -> None:
        """Count one restart."""
        self._restarts[cause].inc()

    def update(self, stats: Mapping[str, Any]) -> None:
        """Take over a judge's totals. Raises ValueError or TypeError when they are no numbers."""
        exits = stats.get("runner_exits", {})
        self._advance(self._spawns, stats.get("runner_spawns", 0))
        for how, series in self._exits.items():
            self._advance(series, exits.get(how, 0))
        self._advance(self._busy, stats.get("device_busy_seconds", 0))
        self._advance(self._hits, stats.get("reference_cache_hits", 0))
        self._advance(self._misses, stats.get("reference_cache_misses", 0))
        self.spares.set(float(stats.get("spares", 0)))

    def _advance(self, series: Counter, total: Any) -> None:
        before = self._seen.get(series, 0.0)
        self._seen[series] = float(total)
        series.inc(max(0.0, self._seen[series] - before))
