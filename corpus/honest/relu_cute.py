"""ReLU in CuTe DSL: one element per thread.

The length is odd. All the time must be seen to be in its own kernel.

problem: relu_randn
backend: cute
devices: cuda
request: {"enable_profiling": true, "provenance_policy": "require_own_kernels"}
"""

import cuda.bindings.driver as cuda
import torch
import torch.nn as nn
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 256 + thread
    if at < cute.size(x):
        value = x[at]
        y[at] = value if value > 0.0 else Float32(0.0)


@cute.jit
def run(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    relu_kernel(x, y).launch(grid=[cute.ceil_div(cute.size(x), 256), 1, 1], block=[256, 1, 1], stream=stream)


def flat(tensor):
    return from_dlpack(tensor.view(-1)).mark_layout_dynamic()


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        y = torch.empty_like(x)
        arguments = flat(x), flat(y), cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        self.compiled = self.compiled or cute.compile(run, *arguments)
        self.compiled(*arguments)
        return y
