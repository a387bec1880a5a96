"""S23: a half precision product, handed back as float32.

Operands, sums and result are half precision's.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return (a.half() @ b.half()).float()


# Above is S23_half_matmul. Variants, with what differs:
#
# S23_half_matmul_uniform: a half precision product of positive numbers, handed back as float32.
#   Passes allclose(1e-2) with numbers of one sign.
#   problem: uniform_matmul
