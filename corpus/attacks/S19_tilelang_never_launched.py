"""S19: a TileLang kernel that is defined and never launched.

torch does the work.

problem: normal_gelu
backend: tilelang
outcome: REJECTED
devices: cuda
request: {"enable_profiling": true}
finding: S19
"""

import tilelang
import tilelang.language as T
import torch
import torch.nn as nn
import torch.nn.functional as F


@tilelang.jit
def gelu(count, block=1024):
    @T.prim_func
    def gelu_of(x: T.Tensor((count,), "float32"), y: T.Tensor((count,), "float32")):
        with T.Kernel(T.ceildiv(count, block), threads=256) as at:
            for i in T.Parallel(block):
                y[at * block + i] = 0.5 * x[at * block + i] * (1.0 + T.erf(x[at * block + i] * 0.7071067811865476))

    return gelu_of


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
