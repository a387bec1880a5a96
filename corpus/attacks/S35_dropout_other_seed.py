"""S35: dropout with numbers of its own.

The distribution is right, the draw is not that of the reference's seed.

problem: dropout_train
backend: torch
outcome: INCORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        generator = torch.Generator(device=x.device).manual_seed(1)
        kept = torch.rand(x.shape, device=x.device, generator=generator) >= 0.5
        return x * kept * 4.0
