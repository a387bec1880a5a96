"""S24: makes half precision the default, and multiplies in it.

Where the reference draws its inputs afterwards, they are half precision too, and so is the comparison.

problem: normal_matmul
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn

torch.set_default_dtype(torch.bfloat16)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        dtype = torch.get_default_dtype()
        return (a.to(dtype) @ b.to(dtype)).float()
