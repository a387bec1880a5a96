"""Which kernels a few calls ran, by torch.profiler (CUPTI), in the candidate's own process: a label, not evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from ..devices.base import Device


def profile(call: Callable[[], Any], calls: int, device: Device) -> tuple[list[list[Any]], float]:
    """Return [kernel name, launches, device seconds] of each kernel in `calls` calls, and host seconds of all rows."""
    activities = [ProfilerActivity.CPU]
    if device.kind == "cuda":
        activities.append(ProfilerActivity.CUDA)
    call()
    device.synchronize()
    with torch.profiler.profile(activities=activities) as profiled:
        for _ in range(calls):
            call()
        device.synchronize()
    launches: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    host = 0.0
    for event in profiled.events():
        if event.device_type == DeviceType.CUDA:
            launches[event.name] += 1
            seconds[event.name] += event.device_time_total * 1e-6
        else:
            host += event.self_cpu_time_total * 1e-6
    return [[name[:400], launches[name], seconds[name]] for name in launches], host
