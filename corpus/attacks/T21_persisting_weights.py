"""T21: the weights stay in the L2 cache across the flush.

An access policy window of the stream, with the largest persisting share of the cache that the device gives: a flush by writing does not evict them.

problem: skinny_linear
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_skinny_linear
devices: cuda
"""

import ctypes

import torch
import torch.nn as nn


def cuda_runtime():
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcudart" in line), "libcudart.so")
    return ctypes.CDLL(path)


class Window(ctypes.Structure):
    """cudaAccessPolicyWindow, padded to the size of the union that carries it."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit_property", ctypes.c_int),
        ("miss_property", ctypes.c_int),
        ("padding", ctypes.c_ubyte * 64),
    )


PERSISTING, STREAMING = 2, 1
ATTRIBUTE_ACCESS_POLICY_WINDOW = 1
LIMIT_PERSISTING_L2 = 6
MAX_PERSISTING_L2, MAX_WINDOW = 108, 109


def persist(runtime, address, nbytes):
    """Set aside all the cache that may be, and keep this memory in it whenever the current stream touches it."""
    most, longest = ctypes.c_int(), ctypes.c_int()
    runtime.cudaDeviceGetAttribute(ctypes.byref(most), MAX_PERSISTING_L2, torch.cuda.current_device())
    runtime.cudaDeviceGetAttribute(ctypes.byref(longest), MAX_WINDOW, torch.cuda.current_device())
    runtime.cudaDeviceSetLimit(LIMIT_PERSISTING_L2, ctypes.c_size_t(most.value))
    nbytes = min(nbytes, longest.value)
    window = Window(address, nbytes, min(1.0, most.value / max(nbytes, 1)), PERSISTING, STREAMING)
    lane = None
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if runtime.cudaStreamSetAttribute(stream, ATTRIBUTE_ACCESS_POLICY_WINDOW, ctypes.byref(window)):
        lane = torch.cuda.Stream()  # if this stream takes no attributes: a lane beside it, joined at both ends
        stream = ctypes.c_void_p(lane.cuda_stream)
        runtime.cudaStreamSetAttribute(stream, ATTRIBUTE_ACCESS_POLICY_WINDOW, ctypes.byref(window))
    runtime.cudaGetLastError()  # nobody else is to stumble over a refusal
    return lane


def through(lane, operation, x):
    """Run the operation on `lane`, in order with the current stream; without a lane, on the current stream."""
    if lane is None:
        return operation(x)
    caller = torch.cuda.current_stream()
    lane.wait_stream(caller)
    with torch.cuda.stream(lane):
        y = operation(x)
    caller.wait_stream(lane)
    y.record_stream(caller)
    return y


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.runtime = None

    def forward(self, x):
        if self.runtime is None:
            self.runtime = cuda_runtime()
            weight = self.linear.weight
            self.lane = persist(self.runtime, weight.data_ptr(), weight.nbytes)
        return through(self.lane, self.linear, x)
