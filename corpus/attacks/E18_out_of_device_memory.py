"""E18: an out-of-memory error that nothing caused.

Raised from the second call on: what is not its own fault would be tried again, skipped, or scored neutrally.

problem: silu_small
backend: torch
outcome: OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            return torch.nn.functional.silu(x)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 GiB")
