"""What the metrics pages of all processes share: how series are made, and those that every process has.

Labels have closed lists of values wherever these are known beforehand: then every series is there, at 0, before anything has
happened, and the page cannot grow. What only the machine tells has its series once it is known: the layers of a sandbox, and
what is read with each scrape (child processes, GPUs). Scheduler, evaluator and gateway add theirs to the registry that
`new_registry` returns.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from kerneldyno.rpc.version import VERSION

#: Seconds, two to a decade: from a health check to an evaluation that fills an hour.
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)
_LAG_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: Seconds between two looks at the event loop.
_LAG_PERIOD = 0.25


def new_registry() -> CollectorRegistry:
    """Return the registry of a process, with its version and what it uses of the machine."""
    # A gauge for each counter and histogram; what they tell, process_start_time_seconds does too.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    Info("kerneldyno_build", "What runs here.", registry=registry).info({"version": VERSION})
    ProcessCollector(registry=registry)
    return registry


class Series:
    """Makes series of one registry. `labels` are names with all the values that they can have."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, /, **labels: Collection[str]) -> Counter:
        """Make a counter."""
        made = Counter(f"kerneldyno_{name}", text, list(labels), registry=self.registry)
        _fill(made, labels)
        return made

    def gauge(self, name: str, text: str, /, **labels: Collection[str]) -> Gauge:
        """Make a gauge."""
        made = Gauge(f"kerneldyno_{name}", text, list(labels), registry=self.registry)
        _fill(made, labels)
        return made

    def histogram(
        self, name: str, text: str, buckets: Sequence[float] = SECONDS, /, **labels: Collection[str]
    ) -> Histogram:
        """Make a histogram."""
        made = Histogram(f"kerneldyno_{name}", text, list(labels), buckets=buckets, registry=self.registry)
        _fill(made, labels)
        return made


class LoopLag:
    """How late the event loop wakes up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Series(registry).histogram(
            "event_loop_lag_seconds", "How late the event loop wakes up.", _LAG_SECONDS
        )

    async def watch(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD
            await asyncio.sleep(_LAG_PERIOD)
            self._seconds.observe(max(0.0, loop.time() - due))


def _fill(made: Counter | Gauge | Histogram, labels: dict[str, Collection[str]]) -> None:
    if labels:
        for values in itertools.product(*labels.values()):
            made.labels(*values)
