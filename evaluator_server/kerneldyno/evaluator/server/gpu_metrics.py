"""GPU health on the metrics page: a thread queries the driver every few seconds, and the page shows the last values.

Once a judge is ready, its cell reports which GPU the device is. On a machine without GPUs or without NVML there are no
series. If a GPU answered before and no longer does, its `kerneldyno_gpu_up` is 0.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..shared.nvml import Driver, GpuError, Reading

_log = logging.getLogger(__name__)

#: Seconds between two readings. A reading keeps the driver busy for milliseconds, and candidates are timed meanwhile.
PERIOD = 5.0
#: Longest wait of the thread for an error, in seconds. Stopping the thread may take this long.
_WAIT = 0.5
#: Xids with their own series: in the first line those that applications cause, in the second those that GPUs cause. All
#: others count as "other".
XIDS = (
    *("13", "31", "43", "45", "94"),
    *("48", "63", "64", "74", "79", "92", "95", "109", "119", "120", "other"),
)


@dataclass(slots=True)
class _Gpu:
    uuid: str
    handle: Any = None
    reading: Reading | None = None
    """None while the driver does not answer."""
    seen: bool = False
    """True once the driver has answered."""
    reported: bool = False
    """True if the log already says that the GPU does not answer."""
    listening: bool = False
    """True if the driver reports this GPU's Xids."""
    xids: dict[str, int] = field(default_factory=lambda: dict.fromkeys(XIDS, 0))


class GpuHealth(Collector):
    """The GPUs of this evaluator. Any thread may call `watch`; the page's thread calls `collect`."""

    def __init__(self, registry: CollectorRegistry, period: float = PERIOD) -> None:
        self._period = period
        self._gpus: dict[str, _Gpu] = {}
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        registry.register(self)

    def watch(self, device: str, uuid: str) -> None:
        """Show the GPU with this UUID as `device` from now on."""
        known = self._gpus.get(device)
        if known is None or known.uuid != uuid:
            self._gpus[device] = _Gpu(uuid)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu-health", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2 * _WAIT)

    # The thread

    def _run(self) -> None:
        try:
            driver = Driver()
        except GpuError as error:
            _log.warning("event=gpu_health_unavailable reason=%r", str(error))
            return
        try:
            while not self._stopped.is_set():
                for device, gpu in list(self._gpus.items()):
                    self._look(driver, device, gpu)
                self._listen(driver)
        finally:
            for gpu in list(self._gpus.values()):
                gpu.reading = None  # the page must not show old values for ever

    def _look(self, driver: Driver, device: str, gpu: _Gpu) -> None:
        try:
            if gpu.handle is None:
                gpu.handle = driver.find(gpu.uuid)
                gpu.listening |= driver.listen(gpu.handle, gpu.uuid)
            gpu.reading = driver.read(gpu.handle)
            gpu.seen, gpu.reported = True, False
        except GpuError as error:
            if not gpu.reported:
                _log.warning("event=gpu_silent device=%s reason=%r", device, str(error))
            gpu.reported = True
            gpu.reading = gpu.handle = None  # find it again next time: it may have been reset

    def _listen(self, driver: Driver) -> None:
        """Count the errors that occur within one period."""
        until = time.monotonic() + self._period
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            if (found := driver.next_xid(min(left, _WAIT))) is not None:
                self._count(*found)

    def _count(self, uuid: str, xid: int) -> None:
        for device, gpu in list(self._gpus.items()):
            if gpu.uuid == uuid:
                gpu.xids[str(xid) if str(xid) in XIDS else "other"] += 1
                _log.warning("event=gpu_xid device=%s xid=%d", device, xid)

    # The page

    def collect(self) -> Iterator[Metric]:
        """Return the values that the driver reported last."""
        page = _Page()
        for device, gpu in list(self._gpus.items()):
            if not gpu.seen:
                continue
            reading = gpu.reading  # read it once: the thread may set it to None meanwhile
            page.gauge("up", "1 while the driver answers for the GPU.", reading is not None, device=device)
            if gpu.listening:
                for xid, count in gpu.xids.items():
                    page.counter("xid_errors", "Errors that the driver reported.", count, device=device, xid=xid)
            if reading is not None:
                _show(page, device, gpu.uuid, reading)
        yield from page.families.values()


def _show(page: _Page, device: str, uuid: str, reading: Reading) -> None:
    gauge, counter = page.gauge, page.counter
    driver, text = reading.driver_version, "Model, UUID and driver of the GPU."
    gauge("info", text, 1, device=device, model=reading.model, uuid=uuid, driver_version=driver)
    for sensor, celsius in reading.temperatures.items():
        gauge("temperature_celsius", "Temperature.", celsius, device=device, sensor=sensor)
    for limit, celsius in reading.temperature_limits.items():
        text = "Temperature at which the driver acts."
        gauge("temperature_limit_celsius", text, celsius, device=device, limit=limit)
    for clock, hertz in reading.clocks.items():
        gauge("clock_hertz", "Clock now.", hertz, device=device, clock=clock)
    for clock, hertz in reading.clock_limits.items():
        gauge("clock_limit_hertz", "Highest clock.", hertz, device=device, clock=clock)
    for reason, active in reading.throttled.items():
        gauge("throttled", "1 while clocks are lowered for this reason.", active, device=device, reason=reason)
    gauge("power_watts", "Power drawn.", reading.power, device=device)
    gauge("power_limit_watts", "Power limit.", reading.power_limit, device=device)
    gauge("utilization_ratio", "Share of time in which a kernel ran.", reading.utilization, device=device)
    gauge("memory_used_bytes", "Device memory in use.", reading.memory_used, device=device)
    gauge("memory_bytes", "Total device memory.", reading.memory, device=device)
    for severity, errors in reading.ecc_errors.items():
        counter("ecc_errors", "Memory errors since the driver was loaded.", errors, device=device, severity=severity)
    for severity, rows in reading.remapped_rows.items():
        gauge("remapped_rows", "Rows of memory that were replaced.", rows, device=device, severity=severity)
    gauge("row_remap_pending", "1 when a row is replaced at the next reset.", reading.remap_pending, device=device)
    gauge("row_remap_failed", "1 when a row could not be replaced.", reading.remap_failed, device=device)


class _Page:
    """The metric families of one scrape. A family is created with its first value; None is no value."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def gauge(self, name: str, text: str, value: float | None, **labels: str) -> None:
        self._add(GaugeMetricFamily, name, text, value, labels)

    def counter(self, name: str, text: str, value: float | None, **labels: str) -> None:
        self._add(CounterMetricFamily, name, text, value, labels)

    def _add(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        value: float | None,
        labels: dict[str, str],
    ) -> None:
        if value is not None:
            if name not in self.families:
                self.families[name] = kind(f"kerneldyno_gpu_{name}", text, labels=list(labels))
            self.families[name].add_metric(list(labels.values()), float(value))
