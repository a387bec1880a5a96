"""How long a run took by the clock, and how much of that was work.

Candidates run side by side, and wait for each other. So the sum of their stages is not the time that a user waited: a
batch of two minutes may add up to an hour of queueing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

#: Stages in which a candidate waits for others; in all other stages work is done for it.
WAITING = ("queued", "awaiting memory", "awaiting lease")


@dataclass(frozen=True, slots=True)
class Span:
    """When a request was accepted and when its result was final, in Unix seconds; None if the result does not say."""

    accepted: float | None = None
    finished: float | None = None


def span_of(result: Mapping[str, Any]) -> Span:
    """Return the span of a result in its JSON form. A malformed time counts as absent."""
    return Span(_point(result.get("accept_time")), _point(result.get("finish_time")))


def wall_seconds(spans: Iterable[Span]) -> float | None:
    """Return the time from the first request to the last verdict, in seconds; None if no result has both times."""
    known = [
        (span.accepted, span.finished) for span in spans if span.accepted is not None and span.finished is not None
    ]
    if not known:
        return None
    return max(max(finished for _, finished in known) - min(accepted for accepted, _ in known), 0.0)


def summed(stages: Iterable[tuple[str, float]]) -> tuple[float, float]:
    """Return the seconds of work and those of waiting in `stages`, given by name and seconds."""
    work: list[float] = []
    waiting: list[float] = []
    for name, seconds in stages:
        (waiting if name in WAITING else work).append(seconds)
    return math.fsum(work), math.fsum(waiting)


def _point(value: object) -> float | None:
    """Return a time in Unix seconds. It is parsed here because protobuf's parser is too slow for 100,000 results."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
