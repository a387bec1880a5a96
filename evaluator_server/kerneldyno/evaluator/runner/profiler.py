"""Which kernels a few calls ran, by torch's profiler (CUPTI), in the candidate's own process: a label, not evidence.

Not by way of `torch.profiler.profile`, whose first use in a process imports the whole of Inductor: three seconds on one
H200 node, of which CUPTI takes 30 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd import profiler

from ..devices.base import Device


def profile(call: Callable[[], Any], calls: int, device: Device) -> tuple[list[list[Any]], float]:
    """Return [kernel name, launches, device seconds] of each kernel in `calls` calls, and host seconds of all rows."""
    call()
    device.synchronize()
    with profiler.profile(use_device=device.kind if device.kind != "cpu" else None, use_kineto=True) as profiled:
        for _ in range(calls):
            call()
        device.synchronize()
    launches: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    host = 0.0
    for event in profiled.function_events:
        if event.device_type == DeviceType.CUDA:
            launches[event.name] += 1
            seconds[event.name] += event.device_time_total * 1e-6
        else:
            host += event.self_cpu_time_total * 1e-6
    return [[name[:400], launches[name], seconds[name]] for name in launches], host
