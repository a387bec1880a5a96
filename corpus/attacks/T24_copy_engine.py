"""T24: the copying is left to the copy engines, on a stream that nobody waits for.

cudaMemcpy2DAsync from device to device, called behind torch's back: no kernel that a profiler would list, nothing on the caller's stream.

problem: cat_columns
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_cat_columns
devices: cuda
"""

import ctypes

import torch
import torch.nn as nn


def cuda_runtime():
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcudart" in line), "libcudart.so")
    return ctypes.CDLL(path)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.runtime = None

    def forward(self, a, b):
        if self.runtime is None:
            self.runtime = cuda_runtime()
            self.side = torch.cuda.Stream()
        out = torch.empty(a.shape[0], a.shape[1] + b.shape[1], dtype=a.dtype, device=a.device)
        self.side.wait_stream(torch.cuda.current_stream())
        size, at = ctypes.c_size_t, 0
        for part in (a, b):
            width = part.shape[1] * part.element_size()
            status = self.runtime.cudaMemcpy2DAsync(
                ctypes.c_void_p(out.data_ptr() + at),
                size(out.stride(0) * out.element_size()),
                ctypes.c_void_p(part.data_ptr()),
                size(width),
                size(width),
                size(part.shape[0]),
                ctypes.c_int(3),
                ctypes.c_void_p(self.side.cuda_stream),
            )
            if status:
                raise RuntimeError(f"cudaMemcpy2DAsync: {status}")
            at += width
        return out


# Above is T24_copy_engine_side_stream. Variants, with what differs:
#
# T24_copy_engine_same_stream: copies that a clock made of kernels does not see.
#   The same copies on the caller's stream: right, and honest by any clock but that of a profiler that counts kernels only.
#   -         self.side.wait_stream(torch.cuda.current_stream())
#   +         stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
#   -                 ctypes.c_void_p(self.side.cuda_stream),
#   +                 stream,
#   -             self.side = torch.cuda.Stream()
