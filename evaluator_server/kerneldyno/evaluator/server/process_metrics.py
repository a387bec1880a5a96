"""Processor time and memory of each device's judge and zygote, read from /proc at each scrape of the metrics page.

Judges and zygotes serve no metrics page: a judge is trusted but busy, and a zygote must not have threads. Runners are
not shown: each is used once, and its warden enforces its limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LABELS = ("device", "process")


class ProcessCollectors(Collector):
    """Series of processes, by device and role."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watched: dict[tuple[str, str], ProcessCollector] = {}
        registry.register(self)

    def watch(self, device: str, process: str, pid: int) -> None:
        """Show process `pid` as `process` of `device`, instead of an earlier one.

        Processes that have ended are not shown.
        """
        self._watched[device, process] = ProcessCollector(pid=lambda: pid, registry=None)

    def collect(self) -> Iterator[Metric]:
        """Read all processes. The page's thread calls this."""
        cpu = CounterMetricFamily(
            "kerneldyno_child_cpu_seconds", "Processor time of judges and zygotes.", labels=_LABELS
        )
        memory = GaugeMetricFamily(
            "kerneldyno_child_resident_memory_bytes", "Resident memory of judges and zygotes.", labels=_LABELS
        )
        shown: dict[str, CounterMetricFamily | GaugeMetricFamily]
        shown = {"process_cpu_seconds_total": cpu, "process_resident_memory_bytes": memory}
        for labels, process in list(self._watched.items()):
            for family in process.collect():
                for sample in family.samples:
                    if sample.name in shown:
                        shown[sample.name].add_metric(labels, sample.value)
        yield cpu
        yield memory
