"""Prometheus metrics of the gateway. Label values come from fixed sets, created at the start: routes and statuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kerneldyno.rpc.metric_series import LoopLag, Series, new_registry

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
#: Statuses that routes answer; any other one is counted as "other".
STATUSES = ("200", "400", "404", "409", "422", "500", "503", "other")


@dataclass(slots=True)
class Counted:
    """Status of a request that is being answered."""

    status: int = 500


class Metrics:
    """Metrics of one gateway.

    Args:
        in_flight: returns the number of unfinished turns; called for each metrics page.
    """

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, in_flight: Callable[[], int]) -> None:
        registry = self._registry = new_registry()
        self.lag = LoopLag(registry)
        make = Series(registry)
        self._began = time.monotonic()
        self._requests = make.counter("gateway_requests", "Requests answered.", route=(), status=())
        self._seconds = make.histogram("gateway_request_seconds", "Time to answer.", _SECONDS, route=())
        self._open = make.gauge("gateway_open_requests", "Requests being answered.")
        self._sessions = make.gauge("gateway_sessions", "Open environment connections.")
        make.gauge("gateway_turns_in_flight", "Turns without an answer.").set_function(in_flight)
        self.answered = 0

    def add_route(self, route: str) -> None:
        """Create the series of a route before its first request."""
        self._seconds.labels(route)
        for status in STATUSES:
            self._requests.labels(route, status)

    @property
    def uptime(self) -> float:
        """Seconds since the gateway was created."""
        return time.monotonic() - self._began

    @contextmanager
    def request(self, route: str) -> Iterator[Counted]:
        """Count a request of a known route, with the status that the block sets in the yielded object."""
        counted, began = Counted(), time.monotonic()
        self._open.inc()
        try:
            yield counted
        finally:
            self._open.dec()
            self.answered += 1
            status = str(counted.status)
            self._requests.labels(route, status if status in STATUSES else "other").inc()
            self._seconds.labels(route).observe(time.monotonic() - began)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Count a WebSocket connection while the block runs."""
        with self._sessions.track_inprogress():
            yield

    def page(self) -> str:
        """Return the metrics page."""
        return generate_latest(self._registry).decode()
