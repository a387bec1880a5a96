"""E16: a kernel whose compilation never ends.

Nested loops that the compiler has to unroll: a hundred million copies of one line.

problem: silu_small
backend: triton
outcome: TIMEOUT, COMPILE_ERROR, OUT_OF_MEMORY, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 20, "compile_timeout": 4, "correctness_timeout": 20, "timing_timeout": 20}}
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unrolled(y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(y_ptr + at)
    for a in tl.static_range(100):
        for b in tl.static_range(100):
            for c in tl.static_range(100):
                for d in tl.static_range(100):
                    value = value * 1.0001 + (a + b + c + d)
    tl.store(y_ptr + at, value)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.nn.functional.silu(x)
        unrolled[(1,)](y, BLOCK=16)
        return y
