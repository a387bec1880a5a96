"""Asked for as a CUDA graph, which it cannot be: half of its work goes to the legacy stream, as launches without a stream do.

problem: chained_tanh
backend: torch
outcome: CORRECT
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            y = torch.tanh(torch.tanh(x))
        return torch.tanh(y)
