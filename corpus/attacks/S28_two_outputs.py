"""S28: the first of two outputs, not in a tuple.

problem: mean_and_variance
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return x.mean(dim=1)


# Above is S28_bare_tensor. Variants, with what differs:
#
# S28_biased_variance: the other kind of variance.
#   Divided by the number, not by one less: half a percent or less.
#   -         return x.mean(dim=1)
#   +         return x.mean(dim=1), x.var(dim=1, unbiased=False)
#
# S28_empty_tuple: no outputs.
#   -         return x.mean(dim=1)
#   +         return ()
#
# S28_first_of_two: the first of two outputs, alone.
#   A comparison that ends with the shorter of two lists is content.
#   -         return x.mean(dim=1)
#   +         return (x.mean(dim=1),)
#
# S28_keys_swapped: two outputs in the wrong order.
#   Both are right, in the other's place.
#   -         return x.mean(dim=1)
#   +         return x.var(dim=1), x.mean(dim=1)
#
# S28_same_twice: the first output, twice.
#   -         return x.mean(dim=1)
#   +         mean = x.mean(dim=1)
#   +         return mean, mean
#
# S28_second_zero: two outputs, of which only the first is computed.
#   -         return x.mean(dim=1)
#   +         mean = x.mean(dim=1)
#   +         return mean, torch.ones_like(mean)
#
# S28_third_output: an output more than there should be.
#   Both of the others are right.
#   -         return x.mean(dim=1)
#   +         return x.mean(dim=1), x.var(dim=1), x
