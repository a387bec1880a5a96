"""E15: takes all memory of the device and goes on.

It keeps what it gets and works in what is left; whoever is judged beside it may find none.

problem: silu_small
backend: torch
outcome: CORRECT, OUT_OF_MEMORY, RUNTIME_ERROR
devices: cuda
request: {"run_performance": false, "timeout": 20}
"""

import torch
import torch.nn as nn

hoard = []


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.nn.functional.silu(x)
        size = 16 << 30
        while size > 1 << 20:
            try:
                hoard.append(torch.empty(size, dtype=torch.uint8, device=x.device))
            except torch.OutOfMemoryError:
                size //= 2
        return y
