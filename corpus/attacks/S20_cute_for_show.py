"""S20: a CuTe DSL kernel that is launched; torch gives the answer.

The kernel computes the answer as well, and it is thrown away.

problem: normal_gelu
backend: cute
outcome: REJECTED
devices: cuda
request: {"enable_profiling": true}
finding: S20
"""

import cuda.bindings.driver as cuda
import torch
import torch.nn as nn
import torch.nn.functional as F
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def gelu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 256 + thread
    if at < cute.size(x):
        value = x[at]
        y[at] = 0.5 * value * (1.0 + cute.math.tanh(0.7978845608 * (value + 0.044715 * value * value * value)))


@cute.jit
def run(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    gelu_kernel(x, y).launch(grid=[cute.ceil_div(cute.size(x), 256), 1, 1], block=[256, 1, 1], stream=stream)


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
        return F.gelu(x)
