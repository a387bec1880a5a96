"""E18: an out-of-memory error whose numbers are none, so that whoever reads them fails, and it is the infrastructure's fault.

problem: silu_small
backend: torch
outcome: OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        raise torch.OutOfMemoryError(
            "Tried to allocate 1.2.3 GiB. GPU 0 has a total capacity of . GiB of which . GiB is free."
        )
