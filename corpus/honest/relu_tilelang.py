"""ReLU in TileLang: TileLang allocates the output.

The length is odd. All the time must be seen to be in its own kernel.

problem: relu_randn
backend: tilelang
devices: cuda
request: {"enable_profiling": true, "provenance_policy": "require_own_kernels"}
"""

import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit(out_idx=[1])
def relu(count, block=1024):
    @T.prim_func
    def relu_of(x: T.Tensor((count,), "float32"), y: T.Tensor((count,), "float32")):
        with T.Kernel(T.ceildiv(count, block), threads=256) as at:
            for i in T.Parallel(block):
                y[at * block + i] = T.max(x[at * block + i], 0.0)

    return relu_of


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return relu(x.numel())(x)
