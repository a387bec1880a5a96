"""A metrics page like that of an evaluator with two GPUs, for machines without a GPU: `python gpu_exporter.py`.

The evaluator's own code makes the series, labels and page. Only the driver is made up: it gives readings that a card
like an H200 could give. Lines on standard input say what happens to `cuda:0` from then on: `lost`, `hot`, `xid 79`,
`ecc`, `full`, `weak` (a layer of its sandbox does not hold). The program prints its address and ends when its input
ends.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from kerneldyno.evaluator.server import gpu_metrics
from kerneldyno.evaluator.server.metrics import DeviceMetrics, Metrics
from kerneldyno.evaluator.shared.nvml import THROTTLE_REASONS, GpuError, Reading
from kerneldyno.rpc import serving
from kerneldyno.rpc.metric_series import new_registry
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1.fleet_service_pb2 import SandboxLayer

DEVICES = {"cuda:0": "GPU-00000000-0000-0000-0000-000000000000", "cuda:1": "GPU-11111111-1111-1111-1111-111111111111"}
GIB = float(1 << 30)
#: Lines that say what happens to the first GPU.
said: list[str] = []


class MadeUpDriver:
    """A replacement for NVML. The cards are busy for half a minute, then idle for as long."""

    def find(self, uuid: str) -> str:
        """Return a handle: the UUID itself."""
        return uuid

    def listen(self, handle: Any, uuid: str) -> bool:
        """Return True: this driver reports errors in any case."""
        return True

    def next_xid(self, seconds: float) -> tuple[str, int] | None:
        """Return the next requested error, each once; without one, wait and return None."""
        for line in said:
            if line.startswith("xid "):
                said.remove(line)
                return DEVICES["cuda:0"], int(line.removeprefix("xid "))
        time.sleep(seconds)
        return None

    def read(self, handle: Any) -> Reading:
        """Return the readings of a card."""
        first = handle == DEVICES["cuda:0"]
        happens = said if first else []
        if "lost" in happens:
            raise GpuError("the GPU is lost")
        busy = (time.time() / 30 + (0 if first else 0.4)) % 2 < 1
        warm = (time.time() / 10) % 3
        hot, full, ecc = "hot" in happens, "full" in happens, "ecc" in happens
        return Reading(
            model="Made-up H200",
            driver_version="580.00",
            temperatures={"gpu": 88.0 if hot else (58 if busy else 36) + warm, "memory": (64 if busy else 41) + warm},
            temperature_limits={"slowdown": 87.0, "shutdown": 92.0},
            clocks={"sm": (1.2e9 if hot else 1.98e9) if busy else 3.45e8, "memory": 3.201e9},
            clock_limits={"sm": 1.98e9, "memory": 3.201e9},
            throttled={reason: hot and reason == "hw_thermal_slowdown" for reason in THROTTLE_REASONS.values()},
            power=(560 if busy else 78) + 5 * warm,
            power_limit=700.0,
            utilization=0.9 if busy else 0.0,
            memory_used=(139 if full else 22 if busy else 5) * GIB,
            memory=140.4 * GIB,
            ecc_errors={"corrected": 2.0, "uncorrected": 1.0 if ecc else 0.0},
            remapped_rows={"corrected": 1.0, "uncorrected": 0.0},
            remap_pending=ecc,
            remap_failed=False,
        )


def layers(*, weak: bool) -> list[SandboxLayer]:
    """Return layers that hold wherever the tests run, so that the real evaluator beside this one is no weaker."""
    names = ("seccomp", "files", "no_capabilities", "one_gpu")
    return [SandboxLayer(name=name, active=not (weak and name == "one_gpu")) for name in names]


def throttled_attempt(device: str) -> pb.EvalResult:
    """Return a finished attempt that was timed on a GPU at its power limit."""
    result = pb.EvalResult(outcome=pb.EvalResult.CORRECT, speedup=1.4)
    result.candidate_timing.clock = pb.TimingStats.CLOCK_DEVICE_EVENTS
    result.environment.device = device
    result.device_state.throttle_reasons.append("sw_power_cap")
    return result


def main() -> None:
    """Serve until standard input ends."""
    gpu_metrics.Driver = MadeUpDriver  # type: ignore[misc, assignment]
    registry = new_registry()
    metrics = Metrics(registry, DEVICES)
    metrics.gpus._period = 0.5  # so that tests do not wait five seconds for a reading
    devices = {name: DeviceMetrics(metrics, name, lanes=4) for name in DEVICES}
    for name, device in devices.items():
        device.judge_ready(layers(weak=False), DEVICES[name])
        metrics.record(throttled_attempt(name))
    endpoint = serving.start_metrics("127.0.0.1:0", registry)
    assert endpoint is not None
    serving.print_ready("gpu-exporter", metrics=endpoint.address)
    for line in sys.stdin:
        said.append(line.strip())
        if line.strip() == "weak":
            devices["cuda:0"].judge_ready(layers(weak=True), DEVICES["cuda:0"])


if __name__ == "__main__":
    main()
