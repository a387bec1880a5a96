"""S23: a product in eight bits, on the tensor cores made for it.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        one = torch.ones((), device=a.device)
        low_a, low_b = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()
        return torch._scaled_mm(low_a, low_b, one, one, out_dtype=torch.bfloat16).float()
