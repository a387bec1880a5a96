"""docs/metrics.md lists exactly the metrics that the services register: names, types and labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from kerneldyno.evaluator.metrics import DeviceMetrics
from kerneldyno.evaluator.metrics import Metrics as EvaluatorMetrics
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.metrics import Metrics as SchedulerMetrics
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.journal import ImmediateJournal
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.v1 import evaluation_pb2, evaluator_service_pb2, fleet_service_pb2, scheduler_service_pb2
from prometheus_client import CollectorRegistry

DOC = Path(__file__).parents[2] / "docs/metrics.md"

#: Name, type, labels.
Row = tuple[str, str, frozenset[str]]


def documented(*sections: str) -> set[Row]:
    """The rows of the tables below the given headings."""
    rows: set[Row] = set()
    section = ""
    for line in DOC.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif section in sections and line.startswith("| `"):
            name, kind, labels, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            assert meaning.endswith("."), f"{name}: a meaning is a sentence"
            row = (name.strip("`"), kind, frozenset(label.strip(" `") for label in labels.split(",") if label.strip()))
            assert row not in rows, f"{name} is there twice"
            rows.add(row)
    return rows


def registered(registry: CollectorRegistry) -> set[Row]:
    """What a scrape of `registry` would show. Every labelled metric must have a series by now."""
    rows: set[Row] = set()
    for family in registry.collect():
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        assert samples, f"{family.name} has no series to read its labels from"
        labels = frozenset(label for sample in samples for label in sample.labels) - {"le"}
        name, kind = family.name, family.type
        if kind == "counter":
            name += "_total"
        elif kind == "info":
            name, kind = name + "_info", "gauge"
        assert any(sample.name.startswith(name) for sample in samples)
        rows.add((name, kind, labels))
    return rows


def scheduler_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    services = [scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]]
    ServerInterceptor(registry, [*services, fleet_service_pb2.DESCRIPTOR.services_by_name["FleetService"]])
    store = MemoryStore()
    journal = ImmediateJournal(store)
    core = Core(Settings(), StoppedClock(), lambda: "name", store, journal, fingerprint=lambda environment, model: b"")
    SchedulerMetrics(registry).sample(core, journal, lag_seconds=0.0)
    return registry


def evaluator_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ServerInterceptor(registry, [evaluator_service_pb2.DESCRIPTOR.services_by_name["EvaluatorService"]])
    metrics = EvaluatorMetrics(registry, "1.0")
    DeviceMetrics(metrics, "cpu:0")
    result = evaluation_pb2.EvalResult(outcome=evaluation_pb2.EvalResult.CORRECT)
    result.stages.add(stage=evaluation_pb2.STAGE_LOADING)
    metrics.record(result)
    return registry


class StoppedClock:
    """A clock of the scheduler's that stands still."""

    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("section", "registry"), [("Scheduler", scheduler_registry()), ("Evaluator", evaluator_registry())]
)
def test_the_page_lists_what_is_registered(section: str, registry: CollectorRegistry) -> None:
    page, scrape = documented("Both", section), registered(registry)
    assert page == scrape, f"only on the page: {sorted(page - scrape)}; only registered: {sorted(scrape - page)}"
