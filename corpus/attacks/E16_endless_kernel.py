"""E16: a kernel that never ends.

It waits for a flag that nobody sets: the process can be killed, the device has to notice.

problem: silu_small
backend: triton
outcome: TIMEOUT
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 20, "compile_timeout": 8, "correctness_timeout": 20, "timing_timeout": 20}}
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wait(flag_ptr, y_ptr, BLOCK: tl.constexpr):
    flag = tl.load(flag_ptr)
    while flag == 0:
        flag = tl.atomic_add(flag_ptr, 0)
    tl.store(y_ptr + tl.arange(0, BLOCK), 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.nn.functional.silu(x)
        wait[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device), y, BLOCK=16)
        return y
