"""B02: a fallback to the library that is labelled, not rejected.

The same with a policy that asks for labels only.

problem: normal_gelu
backend: triton
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true, "provenance_policy": "PROVENANCE_POLICY_LABEL"}
finding: S19
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), at < count)


def run(x, y):
    block = triton.next_power_of_2(triton.cdiv(x.numel(), 8)) if x.device.type == "cpu" else 1024
    gelu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        try:
            y = torch.empty_like(x)
            gelu[(1,)](x, y, BLOCK=1024)
            return y
        except Exception:
            return F.gelu(x)
