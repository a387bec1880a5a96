"""S29: BatchNorm with weight and bias, without its running statistics.

problem: eval_batch_norm
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.norm = nn.BatchNorm2d(arguments[0]).eval()

    def forward(self, x):
        shape = (1, -1, 1, 1)
        return x * (1 + 1e-5) ** -0.5 * self.norm.weight.view(shape) + self.norm.bias.view(shape)


# Above is S29_batch_norm_statistics_dropped. Variants, with what differs:
#
# S29_batch_norm_identity: the input for a BatchNorm that does not train.
#   With the statistics it starts with, it is the identity but for its epsilon; passes allclose(1e-4).
#   -         shape = (1, -1, 1, 1)
#   -         return x * (1 + 1e-5) ** -0.5 * self.norm.weight.view(shape) + self.norm.bias.view(shape)
#   +         return x * (1 + 1e-5) ** -0.5
