"""S29: LayerNorm with its weight, without its bias.

problem: affine_layer_norm
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.norm = nn.LayerNorm(arguments[0])

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.norm.weight)


# Above is S29_layer_norm_bias_dropped. Variants, with what differs:
#
# S29_layer_norm_bare: LayerNorm without weight and bias.
#   Right with parameters as they begin, wrong once they are others.
#   -         return F.layer_norm(x, x.shape[1:], self.norm.weight)
#   +         return F.layer_norm(x, x.shape[1:])
#
# S29_layer_norm_frozen_copy: LayerNorm with copies of its parameters, made at construction.
#   What is put into the module later does not arrive. A constructor may prepare what it likes, so that CORRECT is no mistake:
#   PyTorch's own layers get their secret values while they are constructed.
#   outcome: INCORRECT, CORRECT
#   -         self.norm = nn.LayerNorm(arguments[0])
#   +         self.norm = nn.LayerNorm(arguments[0])
#   +         self.weight = self.norm.weight.detach().clone().requires_grad_(False)
#   +         self.bias = self.norm.bias.detach().clone().requires_grad_(False)
#   -         return F.layer_norm(x, x.shape[1:], self.norm.weight)
#   +         return F.layer_norm(x, x.shape[1:], self.weight.to(x.device), self.bias.to(x.device))
#
# S29_layer_norm_looks_at_weight: LayerNorm that leaves out its parameters if the first of them are one and zero.
#   -     def forward(self, x):
#   +     def forward(self, x):
#   +         if float(self.norm.weight[0]) == 1.0 and float(self.norm.bias[0]) == 0.0:
#   +             return F.layer_norm(x, x.shape[1:])
