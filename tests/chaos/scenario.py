"""The plan that a scenario gets, the figures that it returns, and the functions that scenarios share."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneldyno.v1.evaluation_pb2 import EvalRequest
from tests.chaos.checker import Violation, check, totals
from tests.chaos.clients import audit, drive
from tests.chaos.cluster import Cluster
from tests.chaos.history import Event


@dataclass(frozen=True, slots=True)
class Plan:
    """The scale of a run, the seed of its random choices, and the folder for its files."""

    scale: float
    seed: int
    directory: Path

    def count(self, full: int, least: int = 1) -> int:
        """Return `full` times the scale, but at least `least`."""
        return max(least, round(full * self.scale))

    def seconds(self, full: float, least: float) -> float:
        """Return `full` seconds times the scale, but at least `least`."""
        return max(least, full * self.scale)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    row: int
    """Of the fault matrix."""
    promises: str
    """Numbers of the promises that it bears on."""
    what: str
    figure: str
    target: str
    passed: bool
    measured: bool = False
    """Whether the machine has a say in it, as in every time."""


def at_most(row: int, promises: str, what: str, value: float, limit: float, unit: str = "") -> Figure:
    """Return a figure that passes if it is not larger than `limit`."""
    return Figure(
        row, promises, what, _text(value, unit), f"≤ {_text(limit, unit)}", value <= limit, measured=bool(unit)
    )


def at_least(row: int, promises: str, what: str, value: float, limit: float, unit: str = "") -> Figure:
    """Return a figure that passes if it is not smaller than `limit`."""
    return Figure(
        row, promises, what, _text(value, unit), f"≥ {_text(limit, unit)}", value >= limit, measured=bool(unit)
    )


def exactly(row: int, promises: str, what: str, value: Any, wanted: Any) -> Figure:
    """Return a figure that passes if it equals `wanted`."""
    return Figure(row, promises, what, str(value), str(wanted), value == wanted)


def kept(row: int, promises: str, events: Sequence[Event], *, without: Iterable[str] = ()) -> list[Figure]:
    """Check the history of a whole run; return figures on lost and doubled evaluations and on other broken promises."""
    found = [violation for violation in check(events) if violation.rule not in without]
    for violation in found[:20]:
        print(f"    {violation}")
    counted = totals(events)
    lost = _of(found, "lost", "forgotten")
    doubled = _of(found, "doubled", "disagreement")
    what = f"{counted.accepted} accepted, {counted.attempts} attempts, {counted.readings} readings"
    return [
        exactly(row, promises, f"evaluations lost, of {what}", len(lost), 0),
        exactly(row, promises, "ids with two evaluations, or with different answers to readers", len(doubled), 0),
        exactly(row, promises, "other violations", len(found) - len(lost) - len(doubled), 0),
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` do not exceed; infinity if there are no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf


async def run_clients(
    cluster: Cluster,
    loads: Mapping[str, Iterable[EvalRequest]],
    *,
    limit_seconds: float,
    window: int = 64,
    address: str = "",
) -> float:
    """Evaluate each load by a client of its own; return the seconds until all are done. Raises TimeoutError."""
    start = time.monotonic()
    async with asyncio.timeout(limit_seconds), asyncio.TaskGroup() as group:
        for seed, (client, requests) in enumerate(loads.items()):
            where = address or cluster.address
            group.create_task(drive(where, client, requests, cluster.history, window=window, seed=seed))
    return time.monotonic() - start


async def audit_all(cluster: Cluster) -> list[Event]:
    """Read every submitted evaluation in every way, and return the whole history."""
    ids: dict[str, list[str]] = {}
    for event in cluster.events():
        if (event.op, event.kind) == ("submit", "invoke"):
            ids.setdefault(event["client"], []).append(event["id"])
    for client, mine in ids.items():
        await audit(cluster.address, client, dict.fromkeys(mine), cluster.history)
    return cluster.events()


def of_kind(events: Iterable[Event], op: str, kind: str, **fields: Any) -> list[Event]:
    """Return the events with this operation, this kind and these fields."""
    return [e for e in events if (e.op, e.kind) == (op, kind) and all(e.get(k) == v for k, v in fields.items())]


def _of(found: Iterable[Violation], *rules: str) -> list[Violation]:
    return [violation for violation in found if violation.rule in rules]


def _text(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "never"
    number = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".strip()
