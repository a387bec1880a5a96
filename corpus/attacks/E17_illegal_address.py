"""E17: writes to an address that nobody has.

On a GPU it breaks the device context for whoever shares it; the failure shows up in somebody else's call.

problem: silu_small
backend: triton
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def poke(y_ptr, far, BLOCK: tl.constexpr):
    tl.store(y_ptr + far + tl.arange(0, BLOCK), 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.nn.functional.silu(x)
        poke[(1,)](y, 1 << 45, BLOCK=16)
        return y
