"""Which kernels a few calls ran, by torch's profiler, in the candidate's own process.

The answer is a label, not evidence. This does not use `torch.profiler.profile`: its first use in a process imports all
of Inductor, which takes three seconds on an H200 node, while CUPTI takes only 30 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd import profiler

from ..devices.base import Device

#: Longest kernel name that is sent, in characters: some templates have thousands, and a frame holds at most 1 MiB.
NAME = 400
#: torch's operators that do the work for which people write kernels: products, convolutions, attention, recurrent
#: layers, normalisation, softmax, sorting. Operators that create, move or view tensors are left out. If several
#: operators call each other for one piece of work, only one is here.
_WORK = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_scaled_mm", "_grouped_mm", "_int_mm"),
        "convolution",
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
        *("lstm", "gru", "rnn_tanh", "rnn_relu"),
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm"),
        *("_softmax", "_log_softmax", "sort", "topk", "cumsum", "cumprod"),
    )
)


@dataclass(slots=True)
class Ran:
    """The kernels and operators that ran, in the form of the frame."""

    #: [kernel name, launches, device seconds].
    kernels: list[list[Any]] = field(default_factory=list)
    #: [name, device seconds, host seconds] of each row of the profiler that has device time: operators and kernels.
    averages: list[list[Any]] = field(default_factory=list)


class CallError(Exception):
    """The profiled call raised `cause`; the profiler did not fail."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def profile(call: Callable[[], Any], calls: int, device: Device) -> Ran:
    """Return what `calls` calls ran on the device. One call before them is not counted.

    Raises:
        CallError: A call failed.
        Exception: The profiler failed.
    """
    _run(call, 1, device)
    with profiler.profile(use_device=device.kind if device.kind != "cpu" else None, use_kineto=True) as profiled:
        _run(call, calls, device)
    launches: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for event in profiled.function_events:
        if event.device_type == DeviceType.CUDA:
            launches[event.name] += 1
            seconds[event.name] += event.device_time_total * 1e-6
    averages = [
        [row.key[:NAME], row.device_time_total * 1e-6, row.cpu_time_total * 1e-6]
        for row in profiled.key_averages()
        if row.device_time_total > 0
    ]
    return Ran([[name[:NAME], launches[name], seconds[name]] for name in launches], averages)


def _run(call: Callable[[], Any], calls: int, device: Device) -> None:
    try:
        for _ in range(calls):
            call()
        device.synchronize()
    except Exception as error:
        raise CallError(error) from error


def working_operators(call: Callable[[], Any]) -> list[str]:
    """Return which of torch's operators did work in one call, from a profile of the host alone."""
    with profiler.profile(use_device=None, use_kineto=True) as profiled:
        call()
    return sorted({event.name for event in profiled.function_events} & _WORK)
