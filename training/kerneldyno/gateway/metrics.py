"""What Prometheus reads of the gateway. Labels come from closed sets: routes, and statuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


@dataclass(slots=True)
class Counted:
    """A request while it is answered."""

    status: int = 500


class Metrics:
    """Counters of one gateway; `in_flight` is asked when the page is."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, in_flight: Callable[[], int]) -> None:
        registry = self._registry = CollectorRegistry()
        self._began = time.monotonic()
        self._requests = Counter(
            "kerneldyno_gateway_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "kerneldyno_gateway_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._open = Gauge("kerneldyno_gateway_open_requests", "Requests being answered.", registry=registry)
        self._sessions = Gauge("kerneldyno_gateway_sessions", "Open environment connections.", registry=registry)
        turns = Gauge("kerneldyno_gateway_turns_in_flight", "Turns without an answer.", registry=registry)
        turns.set_function(in_flight)
        self.answered = 0

    @property
    def uptime(self) -> float:
        """Seconds since the gateway was made."""
        return time.monotonic() - self._began

    @contextmanager
    def request(self, route: str) -> Iterator[Counted]:
        """Counts a request with the status that is left in what it yields."""
        counted, began = Counted(), time.monotonic()
        self._open.inc()
        try:
            yield counted
        finally:
            self._open.dec()
            self.answered += 1
            self._requests.labels(route, str(counted.status)).inc()
            self._seconds.labels(route).observe(time.monotonic() - began)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Counts a WebSocket connection while it lasts."""
        with self._sessions.track_inprogress():
            yield

    def page(self) -> str:
        """The metrics page."""
        return generate_latest(self._registry).decode()
