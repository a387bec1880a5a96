"""What a scenario gets (a plan) and gives back (figures), and the measures that scenarios share."""

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
    """How much of the full figure to run, with what luck, and where files may go."""

    scale: float
    seed: int
    directory: Path

    def count(self, full: int, least: int = 1) -> int:
        """`full` at scale 1, and never fewer than `least`."""
        return max(least, round(full * self.scale))

    def seconds(self, full: float, least: float) -> float:
        """The same for durations."""
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
    """A figure that must not be larger than `limit`."""
    return Figure(
        row, promises, what, _text(value, unit), f"≤ {_text(limit, unit)}", value <= limit, measured=bool(unit)
    )


def at_least(row: int, promises: str, what: str, value: float, limit: float, unit: str = "") -> Figure:
    """A figure that must not be smaller than `limit`."""
    return Figure(
        row, promises, what, _text(value, unit), f"≥ {_text(limit, unit)}", value >= limit, measured=bool(unit)
    )


def exactly(row: int, promises: str, what: str, value: Any, wanted: Any) -> Figure:
    """A figure that must be this one."""
    return Figure(row, promises, what, str(value), str(wanted), value == wanted)


def kept(row: int, promises: str, events: Sequence[Event], *, without: Iterable[str] = ()) -> list[Figure]:
    """The history check of a whole run: what was lost, doubled, or otherwise not as promised."""
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
    """The value that `share` of `values` do not exceed; infinite when there are none."""
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
    """Have one client for each load evaluate it to its end; return the seconds. Raises TimeoutError."""
    start = time.monotonic()
    async with asyncio.timeout(limit_seconds), asyncio.TaskGroup() as group:
        for seed, (client, requests) in enumerate(loads.items()):
            where = address or cluster.address
            group.create_task(drive(where, client, requests, cluster.history, window=window, seed=seed))
    return time.monotonic() - start


async def audit_all(cluster: Cluster) -> list[Event]:
    """Read everything that was submitted in every way, and return the whole history."""
    ids: dict[str, list[str]] = {}
    for event in cluster.events():
        if (event.op, event.kind) == ("submit", "invoke"):
            ids.setdefault(event["client"], []).append(event["id"])
    for client, mine in ids.items():
        await audit(cluster.address, client, dict.fromkeys(mine), cluster.history)
    return cluster.events()


def of_kind(events: Iterable[Event], op: str, kind: str, **fields: Any) -> list[Event]:
    """The events like this."""
    return [e for e in events if (e.op, e.kind) == (op, kind) and all(e.get(k) == v for k, v in fields.items())]


def _of(found: Iterable[Violation], *rules: str) -> list[Violation]:
    return [violation for violation in found if violation.rule in rules]


def _text(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "never"
    number = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".strip()
