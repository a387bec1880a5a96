"""GELU in bfloat16, which the request allows.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"allowed_precision": "PRECISION_BF16"}
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x.bfloat16()).float()
